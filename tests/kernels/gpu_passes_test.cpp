// The library's kernels through the passes of a GPU tier: what the interpreter makes of them stays
// the same, bit for bit.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/matmul/matmul.h"
#include "kernels/row_softmax/row_softmax.h"
#include "passes/pipeline.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

using testing::RandomBindings;
using Dims = std::map<std::string, int64_t>;

void expect_same_results(const Kernel& kernel, const Dims& dims,
                         const std::map<std::string, Scalar>& params = {}) {
  INFO(kernel.name);
  Kernel host = kernel;
  run_passes(host, pipeline_for(Tier::Host));
  testing::RandomOptions options;
  options.integers = false;
  RandomBindings expected(kernel, dims, params, options);
  const RandomBindings inputs = expected;
  interpret(host, expected.bindings());
  for (const char* target : {"sm_80", "sm_90"}) {
    INFO(target);
    Kernel gpu = kernel;
    gpu.target = target;
    run_passes(gpu, pipeline_for(Tier::Sm80), {.verify_each = true, .after_each = {}});
    RandomBindings got = inputs;
    interpret(gpu, got.bindings());
    CHECK(got.damage() == "");
    CHECK(got.difference(expected) == "");
  }
}

void expect_same_attention(const AttentionConfig& config) {
  const AttentionConfig c = validated(config);
  const Dims dims{{"batch", 1},   {"heads", 2}, {"heads_kv", 1}, {"seq", 37},
                  {"seq_kv", 70}, {"rows", 3},  {"cols", 5},     {"entries", 4}};
  INFO(fmt::format("{} dims {} {} tiles {} {} form {}", name(c.dtype), c.head_dim, c.dim_v(),
                   c.block_m, c.block_n, static_cast<int>(c.form)));
  expect_same_results(block_sparse_attention_kernel(c), dims,
                      {{"scale", Scalar::of_float(F32, 0.125)}});
}

TEST_CASE("attention through the passes of a GPU") {
  using enum BlockForm;
  expect_same_attention({.dtype = F16, .head_dim = 64, .block = 64});
  expect_same_attention({.dtype = BF16,
                         .head_dim = 48,
                         .head_dim_v = 16,
                         .block = {16, 32},
                         .causal = true,
                         .form = Lists,
                         .lse = true,
                         .block_n = 16});
  expect_same_attention({.dtype = F32,
                         .head_dim = 16,
                         .head_dim_v = 80,
                         .block = {48, 16},
                         .causal = true,
                         .form = Dense,
                         .fast_math = false,
                         .stages = 0});
  expect_same_attention({.dtype = F16,
                         .head_dim = 32,
                         .block = 32,
                         .form = MaskI8,
                         .lse = true,
                         .written_out = true});
  for (BlockForm form : {MaskBool, Lists, Dense})
    for (int64_t stages : {1, 2, 3})
      expect_same_attention({.dtype = F16,
                             .head_dim = 32,
                             .head_dim_v = 16,
                             .block = {32, 16},
                             .causal = stages == 2,
                             .form = form,
                             .stages = stages,
                             .schedule = Schedule::Overlap});
}

TEST_CASE("products of matrices through the passes of a GPU") {
  const Dims dims{{"m", 70}, {"n", 45}, {"k", 37}};
  expect_same_results(matmul_kernel({}), dims);
  expect_same_results(
      matmul_kernel(
          {.dtype = BF16, .out = BF16, .transpose_a = true, .block_n = 32, .block_k = 24}),
      dims);
  expect_same_results(matmul_kernel({.dtype = F32, .transpose_b = true, .block_m = 48}), dims);
  expect_same_results(
      matmul_kernel({.dtype = F64, .out = F64, .block_m = 27, .block_n = 19, .block_k = 9}), dims);
}

TEST_CASE("softmax of rows through the passes of a GPU") {
  const Dims dims{{"rows", 19}, {"cols", 150}};
  expect_same_results(row_softmax_kernel({.dtype = F32, .block_m = 16, .block_n = 128}), dims);
  expect_same_results(
      row_softmax_kernel({.dtype = F16, .block_m = 3, .block_n = 40, .fast_math = false}), dims);
}

}  // namespace
}  // namespace kiln
