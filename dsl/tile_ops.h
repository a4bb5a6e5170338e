// Operations on whole tiles, tensors and views. ir/ops.def says exactly what each does.
#pragma once

#include "dsl/storage.h"

namespace kiln {
inline namespace dsl {

// Copies, converting the dtype. Shapes agree once extents of 1 are dropped; what lies outside of
// the source reads as `pad` (NAN and INFINITY too), of the destination is not written.
struct CopyOptions {
  double pad = 0;
};
void copy(const Storage& source, const Storage& destination, CopyOptions options = {},
          Loc loc = Loc::here());
// destination[i, ...] = source[rows[i], ...]: rows is a tile of i32, one a row of the destination;
// the source a tensor, shared tile or part of one, whose axes in front of as many as the
// destination has are of extent 1. Rows whose index is negative or too large read as `pad`.
struct GatherOptions {
  double pad = 0;
};
void gather(const Storage& source, const Storage& rows, const Storage& destination,
            GatherOptions options = {}, Loc loc = Loc::here());
// destination[rows[i], ...] = source[i, ...]: rows whose index is negative or too large are
// dropped; no two of the others have the same.
void scatter(const Storage& source, const Storage& rows, const Storage& destination,
             Loc loc = Loc::here());

// Of a tensor, along an axis but the last, the elements first, first + step, … below `end` and the
// tensor's own end: a view to take parts of (what is outside reads as the reader's pad value).
View every(const Tensor& tensor, int axis, int step, const Arg& first, const Arg& end,
           Loc loc = Loc::here());

// Where the condition does not hold, running the kernel to its end gives an error with the text at
// this line. May stand in a parallel. Never changes results; launches that do not wait for their
// end do not look. A C++ bool is looked at while tracing.
void device_assert(Arg condition, const std::string& text = "", Loc loc = Loc::here());
// Writes a tile's elements with the text and the block to standard error: as it runs on the host
// and in the interpreter, elsewhere once a run that waits for its end is done, the first 4 MiB of
// them. Never changes results.
void watch(const Storage& tile, const std::string& text = "", Loc loc = Loc::here());

// The elements of a shared tile, in order of rows, as a tile of another shape: the same storage
// under another name.
Tile reshape(const Storage& tile, const std::vector<Arg>& extents, Loc loc = Loc::here());
// Its bytes as a tile of another shape and dtype, as many in all: bits stay what they are.
Tile view(const Storage& tile, const std::vector<Arg>& extents, DType dtype, Loc loc = Loc::here());

void fill(const Storage& destination, Arg value, Loc loc = Loc::here());
void clear(const Storage& destination, Loc loc = Loc::here());

// How warps share a gemm's result; never changes the result.
enum class GemmPolicy : uint8_t { Square, FullRow, FullCol };
using enum GemmPolicy;

// c[M, N] += a[M, K] · b[K, N], accumulated in c's dtype. transpose_a: a is [K, M]; transpose_b: b
// is [N, K]; clear: c is set to 0 first.
struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool clear = false;
  GemmPolicy policy = Square;
};
void gemm(const Storage& a, const Storage& b, const Storage& c, GemmOptions options = {},
          Loc loc = Loc::here());

// Reduces an axis (negative: from the end) into a destination without it or with extent 1 there.
// clear = false combines the result with what the destination holds.
void reduce_max(const Storage& source, const Storage& destination, int dim = -1, bool clear = true,
                Loc loc = Loc::here());
void reduce_min(const Storage& source, const Storage& destination, int dim = -1, bool clear = true,
                Loc loc = Loc::here());
void reduce_sum(const Storage& source, const Storage& destination, int dim = -1, bool clear = true,
                Loc loc = Loc::here());
void reduce_absmax(const Storage& source, const Storage& destination, int dim = -1,
                   bool clear = true, Loc loc = Loc::here());
void reduce_and(const Storage& source, const Storage& destination, int dim = -1, bool clear = true,
                Loc loc = Loc::here());
void reduce_or(const Storage& source, const Storage& destination, int dim = -1, bool clear = true,
               Loc loc = Loc::here());
void reduce_xor(const Storage& source, const Storage& destination, int dim = -1, bool clear = true,
                Loc loc = Loc::here());

// The position (i32) of an axis's largest or smallest element: of equal ones the first. NaN is
// ignored; -1 if there is nothing else. As for other reductions, `index` lacks the axis or has it
// with extent 1.
void reduce_argmax(const Storage& source, const Storage& index, int dim = -1,
                   Loc loc = Loc::here());
void reduce_argmin(const Storage& source, const Storage& index, int dim = -1,
                   Loc loc = Loc::here());

// Sums along an axis up to and with each element, with `reverse` from the end. Tiles of one shape,
// of one dtype of numbers or any two floats.
void cumsum(const Storage& source, const Storage& destination, int dim = -1, bool reverse = false,
            Loc loc = Loc::here());

// Sorts the numbers along an axis, the largest first: equal ones stay in order, NaN goes last. The
// results have the keys' shape: `sorted` the keys in their order, `positions` (i32) where each was,
// or `sorted_values` what stood there in `values`, a tile of the keys' shape and any dtype.
void sort(const Storage& keys, const Storage& sorted, const Storage& positions, int dim = -1,
          Loc loc = Loc::here());
void sort(const Storage& keys, const Storage& values, const Storage& sorted,
          const Storage& sorted_values, int dim = -1, Loc loc = Loc::here());

// The first k of that order: the results have extent k on the axis, 1 up to all of it.
void topk(const Storage& keys, const Storage& largest, const Storage& positions, int dim = -1,
          Loc loc = Loc::here());
void topk(const Storage& keys, const Storage& values, const Storage& largest,
          const Storage& their_values, int dim = -1, Loc loc = Loc::here());

}  // namespace dsl
}  // namespace kiln
