// One attention problem: inputs, results, and the comparison with float64.
#pragma once

#include <random>
#include <string>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/compare.h"

namespace kiln::test {

struct Sizes {
  int64_t batch = 1, heads = 1, heads_kv = 1, seq = 64, seq_kv = 64;
};

// Owns all arrays; `args` points at them and may be changed by the test.
struct AttentionCase {
  AttentionConfig config;
  Sizes sizes;
  Array q, k, v, o, lse, mask;
  BlockLists lists;
  AttentionArgs args;

  AttentionCase(const AttentionConfig& config, const Sizes& sizes);  // all inputs 0, mask full
  AttentionCase(const AttentionCase&) = delete;

  BlockGrid grid() const { return grid_of(config, args); }
  // Normal q, k, v; every block selected with the given probability, empty rows included.
  void randomize(uint64_t seed, double density = 0.5);
  void use(const Array& bool_mask);  // as mask or lists, whatever the form says
  // Results are NaN before the run, so that an element left unwritten shows.
  void run(Device& device);
  // Runs and compares o (and lse) with the reference; CHECKs with a description.
  void check(Device& device);
  std::string describe() const;
};

void fill(Array& array, double value);
void fill_normal(Array& array, std::mt19937_64& random);

// The seed of this run's random tests: KILN_TEST_SEED, or from the clock. Printed once.
uint64_t run_seed();
// To test on: host and interpreter, or what KILN_TEST_DEVICE names; and the first of them, for
// larger problems.
std::vector<std::string_view> devices();
Device& fast_device();

}  // namespace kiln::test
