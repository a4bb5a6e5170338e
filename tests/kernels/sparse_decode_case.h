// One sparse-decode problem: caches in any layout, selections, results, and the comparison with
// float64.
#pragma once

#include <random>
#include <string>

#include "kernels/compare.h"
#include "kernels/sparse_decode/sparse_decode.h"

namespace kiln::test {

// Order of a cache's axes: pages (or the batch), keys and heads; interleaved: k and v in turn.
enum class CacheLayout : uint8_t { Nhd, Hnd, Interleaved };

struct DecodeProblem {
  int64_t batch = 1, heads_kv = 1, room = 64;  // keys a sequence; whole pages if paged
  int64_t entries = 2;                         // of a list, or beyond the blocks of a mask
  CacheLayout layout = CacheLayout::Nhd;
};

// Owns all arrays; `args` points at them and may be changed by the test.
struct SparseDecodeCase {
  DecodeConfig config;
  DecodeProblem sizes;
  Array q, o, lse, lengths, starts, chosen, table, k_scale, v_scale, k_store, v_store;
  DecodeArgs args;

  SparseDecodeCase(const DecodeConfig& config, const DecodeProblem& sizes);  // of zeros
  SparseDecodeCase(const SparseDecodeCase&) = delete;

  // Lengths from 0 to the room; lists with duplicates and entries that are not blocks; masks.
  void randomize(std::mt19937_64& random);
  // Normal q, k, v where a token looks; `poison` in all other places of the caches, and a huge page
  // wherever no page of the sequence is.
  void fill_cache(std::mt19937_64& random, double poison);
  bool sees(int64_t b, int64_t token, int64_t head_kv, int64_t key) const;
  // Of key and head, in k or v; where the page table says.
  void set(const Memory& cache, int64_t b, int64_t key, int64_t head, int64_t d,
           double value) const;
  int64_t selections() const { return config.per_token ? config.tokens : 1; }

  // Results are NaN before the run, so that an element left unwritten shows.
  void run(Device& device);
  void check(Device& device);  // runs and compares o and lse with the reference
  void compare_with_reference() const;
  std::string describe() const;
};

}  // namespace kiln::test
