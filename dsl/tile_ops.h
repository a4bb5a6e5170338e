// Operations on whole tiles, tensors and views. ir/ops.def says exactly what each does.
#pragma once

#include "dsl/storage.h"

namespace kiln {
inline namespace dsl {

// Copies, converting the dtype. Shapes agree once extents of 1 are dropped; what lies outside of
// the source reads as `pad`, what lies outside of the destination is not written.
struct CopyOptions {
  double pad = 0;
};
void copy(const Storage& source, const Storage& destination, CopyOptions options = {},
          Loc loc = Loc::here());
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

}  // namespace dsl
}  // namespace kiln
