// Fragments: how the matrix instructions and plain vector code spread a tile over threads.
//
// Sources: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions" (the figures of m16n8k8,
// m16n8k16 and m16n8k32) and "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions"
// (the register fragments of wgmma). With g = lane / 4, c = lane % 4 and v = 4 / bytes elements in
// a 32-bit register they are three patterns:
//
//     accumulator   row g (+8 in registers 2, 3)            column 2c, 2c + 1
//     operand A     row g (+8 in the odd 32-bit registers)  k = vc … vc + v-1 (+4v in the upper
//     two) operand B     column g                                k = vc … vc + v-1 (+4v in the
//     second)
//
// A tile whose extents are not multiples of the instruction's is padded: registers that lie outside
// hold zero in operands, anything in accumulators.
#pragma once

#include <cstdint>

#include "ir/layout/layout.h"

namespace kiln {

// How the warps of a gemm share its rows and columns. m * n * copies is the number of warps; the
// copies (outermost) all compute the same.
struct WarpGrid {
  int64_t m = 1;
  int64_t n = 1;
  int64_t copies = 1;
  bool operator==(const WarpGrid&) const = default;
};

enum class WarpPolicy : uint8_t {
  Rows,     // whole rows to a warp: never split along n
  Columns,  // whole columns: never along m
  Square,   // the least sum of rows and columns a warp reads
};

// Splits `warps` over m_tiles x n_tiles instruction tiles, evenly: m divides m_tiles, n divides
// n_tiles; as few copies as the policy permits. Any positive arguments.
WarpGrid split_warps(WarpPolicy policy, int64_t m_tiles, int64_t n_tiles, int64_t warps);

// One element type of mma operands: k is the instruction's, 32 / bytes or 16 / bytes.
struct MmaInput {
  int bytes = 2;
  int k = 16;
};
inline constexpr MmaInput kMma16BitK16{2, 16};  // f16, bf16: mma.m16n8k16, wgmma k16
inline constexpr MmaInput kMma16BitK8{2, 8};    // f16, bf16: mma.m16n8k8
inline constexpr MmaInput kMmaTf32{4, 8};       // tf32: mma.m16n8k8, wgmma k8
inline constexpr MmaInput kMma8Bit{1, 32};      // s8, u8, e4m3, e5m2: mma.m16n8k32, wgmma k32

// C and D of mma.sync over [m, n]; 32-bit or, packed in pairs, 16-bit elements. A warp has
// consecutive rows and columns; registers run through an instruction's tile, then n, then m.
Layout mma_accumulator(int64_t m, int64_t n, const WarpGrid& warps);

// A over [m, k], every warp with the rows of its accumulator; warps along n hold copies. Registers:
// instruction, then k, then m.
Layout mma_operand_a(int64_t m, int64_t k, MmaInput input, const WarpGrid& warps);

// B over [k, n]; warps along m hold copies. Registers: instruction, then n, then k. For a tile
// stored as [n, k], permute_axes(…, {1, 0}).
Layout mma_operand_b(int64_t k, int64_t n, MmaInput input, const WarpGrid& warps);

// D of wgmma over [m, n]: four warps make a group of 64 rows, a group has consecutive rows.
// Registers: an instruction of the whole n, then m. `groups` splits m.
Layout wgmma_accumulator(int64_t m, int64_t n, int64_t groups);

// A of wgmma in registers over [m, k]. Registers: instruction, then k, then m.
Layout wgmma_operand_a(int64_t m, int64_t k, MmaInput input, int64_t groups);

// Plain code over a tile of any shape: aligned vectors along the last axis (at most 16 bytes; less
// if a thread would have no work), neighbouring lanes on neighbouring vectors, each factor of the
// thread count on an axis that it divides: the widest vectors for which that needs no padding.
// Where none are, the longest axis is padded; when every element has a thread, the rest hold
// copies. Registers: vector, then the axes, last first. Arithmetic on padding is harmless; only
// accesses to memory of registers that leave the tile (known for each register) need a predicate.
Layout blocked(const Coordinate& shape, int64_t warps, int bytes);

// Every thread holds the whole tile, in row-major register order.
Layout replicated(const Coordinate& shape, int64_t warps);

}  // namespace kiln
