// Moving a tile from one fragment layout to another, by the cheapest means.
//
//     Identical   the same registers of the same threads: nothing to do
//     Registers   each thread has what it needs, in other registers
//     Shuffle     the warp has what its lanes need
//     Shared      through shared memory and a barrier
//
// Two m16n8 accumulator tiles side by side hold what one 16-bit m16k16 operand A does
// (fragments.h): the scores of one gemm are the operand of the next at no cost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/layout/layout.h"

namespace kiln {

// One exchange within each warp: lane l gets register `from_reg` of lane source[l], and keeps it as
// register `to_reg` if `takes` has bit l. Lanes that do not take read their own. Steps that read
// one packed 32-bit register with equal sources can share a shuffle; the cost assumes that they do.
struct ShuffleStep {
  int to_reg = 0;
  int from_reg = 0;
  uint32_t takes = 0;
  std::array<uint8_t, 32> source{};

  bool is_local() const;  // every lane reads its own: a move (a select if not all take it)
};

struct Conversion {
  enum class Kind : uint8_t { Identical, Registers, Shuffle, Shared };
  Kind kind = Kind::Identical;
  // Registers: register r of `to` is register registers[r] of `from`; -1 if it holds only padding.
  std::vector<int> registers;
  std::vector<ShuffleStep> steps;  // Shuffle
  std::optional<Layout> staging;   // Shared: of the tile in between
  int64_t cost = 0;                // in issue slots of a warp, roughly
};

// Both layouts are of one tile: equal shapes, lanes and warps (InternalError). For every element of
// the tile, every owner in `to` ends up with the value of the owners in `from`, which agree.
// `bytes` is the element's size.
Conversion plan_conversion(const Layout& from, const Layout& to, int bytes);

}  // namespace kiln
