// Programs around a loop that may be pipelined: bodies that make a careless prefetch wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dsl/dsl.h"

namespace kiln::testing {

constexpr int64_t kBlocks = 3, kTiles = 12, kRows = 16, kColumns = 32;

// The loops of one variant: serial, or pipelined with that many stages.
struct Looper {
  int stages = -1;  // -1: serial

  template <class Body>
  void operator()(Arg begin, Arg end, Body&& body) const {
    if (stages < 0) {
      for (auto k : serial(begin, end)) body(k);
    } else {
      for (auto k : pipelined(begin, end, {.stages = stages})) body(k);
    }
  }
  // The set entries of a mask, in order.
  template <class Body>
  void over_mask(const Storage& row, int64_t extent, Arg limit, Body&& body) const;
  // The entries of a list, each once, in the list's order.
  template <class Body>
  void over_list(const Storage& row, Arg count, Body&& body) const;
  Looper deeper() const { return {stages < 0 ? -1 : stages + 1}; }
};

// What bodies read and write. Each variant and block has its own part of what is written.
struct Tensors {
  Tensor a, b, wide;           // f16 [kTiles, 16, 32], f16 [kTiles, 32, 16], f32 as a
  Tensor flags, pages, links;  // i32 [kBlocks, kTiles], and [kTiles]
  Tensor mask, list;           // bool, i32 [kBlocks, kTiles]
  Tensor state, counts;        // inout: i32 [variants, kBlocks, kTiles, 32], i32 [.., .., 8]
  Tensor halves;               // inout f16 [variants, kBlocks, kTiles, 16, 32]
  Tensor y, z;                 // output: f32 [variants, kBlocks, 16, 32], i32 [.., .., 4]
};
struct Scene : Tensors {
  int variant;
  Looper loop;
  Arg trips;
  Expr block;
};

struct PipelinedBody {
  std::string name;
  std::function<void(const Scene&)> write;
};
const std::vector<PipelinedBody>& pipelined_bodies();  // over a range: all of
std::vector<PipelinedBody> bodies_of_tiles();          // pipelined_tiles.cpp
std::vector<PipelinedBody> bodies_of_addresses();      // pipelined_addresses.cpp
const std::vector<PipelinedBody>& selected_bodies();   // over a mask or list

// A launch for each variant.
struct Variant {
  int stages;
  int64_t trips = -1;  // -1: the dim n
};
Kernel pipelined_program(const PipelinedBody& body, const std::vector<Variant>& variants,
                         bool all_serial);

// ---- what bodies are made of
inline Tile shared_tile(DType dtype = F16) {
  return alloc_shared({kRows, kColumns}, dtype);
}
inline Tile zeros() {
  Tile sum = alloc_fragment({kRows, kColumns}, F32);
  clear(sum);
  return sum;
}
inline void finish(const Scene& t, const Tile& sum) {
  copy(sum, t.y(t.variant, t.block, all, all));
}
inline Expr tile_of(const Scene& t, const Expr& k) {
  return (k + t.block) % static_cast<int>(kTiles);
}
inline void add(const Tile& tile, const Tile& sum, int factor = 1) {
  for (auto [i, j] : parallel(kRows, kColumns)) sum(i, j) += cast(tile(i, j), F32) * factor;
}

template <class Body>
void Looper::over_mask(const Storage& row, int64_t extent, Arg limit, Body&& body) const {
  if (stages < 0) {
    for (auto k : serial(min(limit, static_cast<int>(extent)))) when(row(0, k), [&] { body(k); });
  } else {
    for (auto k : selected(row, {.limit = limit, .stages = stages, .ordered = true})) body(k);
  }
}

template <class Body>
void Looper::over_list(const Storage& row, Arg count, Body&& body) const {
  if (stages < 0) {
    for (auto k : serial(min(count, static_cast<int>(kTiles)))) {
      auto entry = Expr(row(0, k));
      Var before = 0;
      for (auto earlier : serial(k)) before += select(row(0, earlier) == entry, 1, 0);
      when(entry >= 0 && entry < static_cast<int>(kTiles) && before == 0, [&] { body(entry); });
    }
  } else {
    for (auto k : selected(row, {.limit = static_cast<int>(kTiles),
                                .count = count,
                                .stages = stages,
                                .ordered = true}))
      body(k);
  }
}

}  // namespace kiln::testing
