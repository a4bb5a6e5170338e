// Each pass that may be left out may be, and all of them: the library's kernels then give the same
// in the emulator, bit for bit where they do not allow fast math, and have no races.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/matmul/matmul.h"
#include "kernels/row_softmax/row_softmax.h"
#include "kernels/tile_copy/tile_copy.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "tests/passes/race_check.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

using testing::RandomBindings;
using Dims = std::map<std::string, int64_t>;

constexpr int kTraces = 60;

// Words for kernel.without: every optional pass alone, then all together.
std::vector<std::string> sets_of_passes() {
  std::vector<std::string> sets;
  std::string all;
  for (const Pass& pass : all_passes()) {
    if (!pass.optional) continue;
    sets.emplace_back(pass.name);
    all += fmt::format("{}{}", all.empty() ? "" : " ", pass.name);
  }
  sets.push_back(all);
  return sets;
}

void run(const Kernel& kernel, RandomBindings& bindings) {
  device("emulator").compile(kernel)->run(bindings.bindings());
  CHECK(bindings.damage() == "");
}

bool has_rings(const Kernel& kernel) {
  bool found = false;
  walk(kernel, kernel.body, [&](OpId id) { found |= kernel.op(id).code == OpCode::CommitCopies; });
  return found;
}

void expect_same_results(Kernel kernel, const Dims& dims,
                         const std::map<std::string, Scalar>& params = {}) {
  testing::RandomOptions options;
  options.integers = false;
  const RandomBindings inputs(kernel, dims, params, options);
  RandomBindings expected = inputs;
  run(kernel, expected);
  std::optional<double> tolerance;
  if (kernel.fast_math) tolerance = 0.01;
  for (const std::string& without : sets_of_passes()) {
    INFO(kernel.name << " without " << without);
    kernel.without = without;
    RandomBindings got = inputs;
    run(kernel, got);
    CHECK(got.difference(expected, tolerance) == "");
    Kernel lowered = kernel;
    lowered.target = "sm_90";
    run_passes(lowered, passes_for(lowered, Tier::Sm80), {.verify_each = true, .after_each = {}});
    CHECK(testing::RaceCheck(lowered, kTraces).find() == "");
    if (without.find("make_async") != std::string::npos) CHECK_FALSE(has_rings(lowered));
  }
}

void expect_same_attention(const AttentionConfig& config) {
  const AttentionConfig c = validated(config);
  const Dims dims{{"batch", 1},   {"heads", 1}, {"heads_kv", 1}, {"seq", 37},
                  {"seq_kv", 70}, {"rows", 3},  {"cols", 5},     {"entries", 4}};
  INFO(fmt::format("{} dims {} {} form {}", name(c.dtype), c.head_dim, c.dim_v(),
                   static_cast<int>(c.form)));
  expect_same_results(block_sparse_attention_kernel(c), dims,
                      {{"scale", Scalar::of_float(F32, 0.125)}});
}

TEST_CASE("attention without passes", "[without]") {
  using enum BlockForm;
  for (bool fast_math : {false, true})
    expect_same_attention({.dtype = F16,
                           .head_dim = 32,
                           .block = 16,
                           .form = MaskBool,
                           .fast_math = fast_math,
                           .stages = 3});
  expect_same_attention({.dtype = BF16,
                         .head_dim = 48,
                         .head_dim_v = 16,
                         .block = {16, 32},
                         .causal = true,
                         .form = Lists,
                         .lse = true,
                         .fast_math = false,
                         .block_n = 16});
  expect_same_attention({.dtype = F32,
                         .head_dim = 16,
                         .block = 16,
                         .form = Dense,
                         .written_out = true,
                         .fast_math = false,
                         .stages = 2});
}

TEST_CASE("products of matrices without passes", "[without]") {
  const Dims dims{{"m", 40}, {"n", 45}, {"k", 72}};
  expect_same_results(matmul_kernel({.block_m = 32, .block_n = 32, .block_k = 16, .stages = 3}),
                      dims);
  expect_same_results(matmul_kernel({.dtype = F64,
                                     .out = F64,
                                     .transpose_b = true,
                                     .block_m = 16,
                                     .block_n = 16,
                                     .block_k = 16}),
                      dims);
}

TEST_CASE("kernels on rows without passes", "[without]") {
  const Dims dims{{"rows", 19}, {"cols", 150}};
  for (bool fast_math : {false, true})
    expect_same_results(row_softmax_kernel({F16, 4, 64, fast_math}), dims);
  expect_same_results(tile_copy_kernel({F32, BF16, 8, 64}), dims);
}

}  // namespace
}  // namespace kiln
