// Layouts of tiles in shared memory: rows with padding, and panels with XOR swizzles.
//
// A swizzled panel has rows of 128, 64 or 32 bytes. Within eight rows the 16-byte chunks of a row
// are permuted so that a column of chunks touches all banks:
//
//     panel    address ^=            chunk c of row r is at chunk
//     128 B    (address/128%8)*16    c ^ (r % 8)
//      64 B    (address/128%4)*16    c ^ (r/2 % 4)
//      32 B    (address/128%2)*16    c ^ (r/4 % 2)
//
// These are the patterns of TMA and wgmma (PTX ISA, "Swizzling Modes" of tensors and "Strides and
// canonical layouts" of wgmma), so one tile serves ldmatrix, TMA and wgmma. They hold for absolute
// addresses: a tile starts at a multiple of swizzle_alignment(). Wider tiles are panels one after
// another, each with all the rows: 96 halves are 3 panels of 64 bytes, 80 are 5 of 32 bytes.
#pragma once

#include <array>
#include <cstdint>

#include "ir/layout/layout.h"

namespace kiln {

// Row-major; each row of the last axis takes `pitch` elements, at least its extent.
Layout row_major(const Coordinate& shape, int64_t pitch);
Layout row_major(const Coordinate& shape);

// The least pitch at which rows start at multiples of 16 bytes, an odd number of 16-byte chunks
// apart: eight rows' chunks of one column are then in different banks.
int64_t padded_pitch(int64_t columns, int bytes);

// The widest panel, 128, 64 or 32 bytes, that divides a row; 0 if none does.
int panel_bytes(int64_t columns, int bytes);

// Panels of `panel` bytes over the last two axes (rank 2 at least); leading axes repeat them.
// Rows are padded to multiples of 8 and columns to whole panels.
Layout swizzled(const Coordinate& shape, int bytes, int panel);

// Panels of 128 bytes in which bit b of a chunk's number is flipped by bit row_bits[b] of its row;
// for threads' own accesses, which need no certain start. {0, 1, 2} is swizzled(shape, bytes, 128),
// {s, s + 1, s + 2} for rows 2^s apart. kSwizzledPairs also lets four lanes write 8 bytes each of a
// row, of four rows at a time, as those of an accumulator do.
Layout swizzled_by(const Coordinate& shape, int bytes, const std::array<int, 3>& row_bits);
inline constexpr std::array<int, 3> kSwizzledPairs = {2, 0, 1};

// Where a swizzled tile must start: 1024, 512 or 256 bytes, after which the pattern repeats.
int64_t swizzle_alignment(int panel);

// The byte address at which a panel keeps what is at `address` without swizzling; its own inverse.
int64_t swizzle_address(int64_t address, int panel);

// Swizzled where a row is made of panels and the rows fill a pattern of eight at least once, else
// rows with padded_pitch: fewer rows would take the room of eight.
Layout shared_tile(const Coordinate& shape, int bytes);

}  // namespace kiln
