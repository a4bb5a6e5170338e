// ldmatrix and stmatrix as layouts.
//
// The instructions move x = 1, 2 or 4 matrices of 8 rows of 16 bytes, any rows: lane 8j + i has the
// address of row i of matrix j. In registers a matrix is spread as (PTX ISA, "Matrix fragments for
// ldmatrix"), in units of 2 bytes:
//
//               row                         column
//     plain     lane/4                      2*(lane%4) + h      h: the half of the 32-bit register
//     .trans    2*(lane%4) + h              lane/4
//
// So plain matrices are 4-byte pieces of a row over four lanes, of any element type that fits;
// .trans is for 16-bit elements. As rows are free, whether a fragment can move like this depends on
// nothing but the 16 bytes: which register and lane bits span a chunk of the tile's memory.
#pragma once

#include <optional>

#include "ir/layout/layout.h"

namespace kiln {

struct MatrixMove {
  int axis = 0;             // of the tile; its elements of a row are consecutive in memory
  int count = 1;            // x1, x2, x4
  bool transposed = false;  // .trans
  // Row addresses: (instruction as reg, lane, warp) → the coordinate of the row's first element,
  // with `axis` counted in rows of 16 bytes. Lanes beyond 8 * count repeat other lanes' addresses.
  // offset_steps(rows, in_vectors(shared, axis, 16 / bytes)) gives the addresses in 16-byte units.
  // Instruction s fills or reads count * 4 / bytes registers of the fragment, from
  // s * count * 4 / bytes on, matrix j in the j-th 32-bit register of them.
  Layout rows = Layout(0);
};

// How ldmatrix (or stmatrix) moves the whole fragment from (to) the shared tile, at the widest x;
// nothing if it cannot, or if the fragment's padding reaches beyond the shared tile's: then each
// thread accesses its own registers. The shared tile starts at a multiple of 16 bytes.
std::optional<MatrixMove> plan_matrix_move(const Layout& fragment, const Layout& shared, int bytes);

}  // namespace kiln
