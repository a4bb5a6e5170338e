// Grouped-query sparse decode as a user would write it: one query a sequence, key blocks that a
// list or mask selects, split over thread blocks whose parts a second launch merges.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "runtime/array.h"
#include "runtime/device.h"

namespace kiln::test {

struct DecodeConfig {
  DType dtype = F16;
  int64_t group = 4, dim = 64, block = 32;  // query heads a key head; keys a block
  bool lists = true;                        // else a bool mask
};
// q [batch, heads, dim], k and v [batch, heads_kv, room, dim], lengths i32 [batch], chosen: i32 or
// bool [batch, heads_kv, entries]; o as q, lse f32 [batch, heads]. Dims: splits.
Kernel sparse_decode_kernel(const DecodeConfig& config);

struct DecodeSizes {
  int64_t batch = 1, heads_kv = 1, room = 64, entries = 2, splits = 1;
};

struct DecodeCase {
  DecodeConfig config;
  DecodeSizes sizes;
  Array q, k, v, lengths, chosen, o, lse;

  DecodeCase(const DecodeConfig& config, const DecodeSizes& sizes);  // of zeros
  // Normal q, k, v; lengths from 0 to the room; any entries, duplicates and wrong ones among them.
  void randomize(std::mt19937_64& random);
  bool sees(int64_t b, int64_t head_kv, int64_t key) const;
  void poison(double value);  // every key and value that no query sees
  void run(Device& device);
  void check(Device& device);           // runs and compares with float64
  void compare_with_reference() const;  // o and lse
};

}  // namespace kiln::test
