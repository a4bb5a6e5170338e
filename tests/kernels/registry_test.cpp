// Every library kernel, by name, on every device, against its reference.
#include "kernels/registry.h"
#include "kernels/sparse_decode/sparse_decode.h"

#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/compare.h"
#include "kernels/matmul/matmul.h"
#include "runtime/compile.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

// Random inputs of the given shapes, normal around `mean`; checks every output against the
// reference.
void check_kernel(std::string_view name, const std::map<std::string, std::string>& given,
                  const std::map<std::string, Shape>& inputs, double mean = 0) {
  const KernelEntry& entry = kernel_named(name);
  Options options = entry.with_defaults(given);
  std::mt19937_64 random(run_seed());
  for (auto where : devices()) {
    Function compiled = compile(device(where), entry.build(options, device(where).target()));
    Arguments arguments;
    std::map<std::string, Array> arrays;
    for (const auto& [tensor, shape] : inputs) {
      arrays[tensor] = Array(compiled.signature().tensor(tensor)->dtype, shape);
      Array& array = arrays[tensor];
      fill_normal(array, random);
      for (int64_t i = 0; mean != 0 && i < array.size(); ++i) array.set(i, array.get(i) + mean);
      arguments.tensor(tensor, arrays[tensor]);
    }
    for (const auto& [param, value] : entry.default_params(options)) arguments.param(param, value);
    for (auto& [tensor, array] : make_outputs(compiled.signature(), arguments)) {
      arrays[tensor] = std::move(array);
      arguments.tensor(tensor, arrays[tensor]);
    }
    Bindings bindings = bind(compiled.signature(), arguments);
    kiln::testing::run_on(device(where), *compiled.executable(), bindings);
    for (const auto& [tensor, expected] : entry.reference(options, bindings)) {
      const Array& got = arrays.at(tensor);
      Comparison result = compare(got.values(), expected, std::max<int64_t>(got.shape().back(), 1),
                                  accuracy_rule(got.dtype()));
      INFO(name << " on " << where << ": " << tensor << ": " << result.str());
      CHECK(result.ok());
    }
    CHECK(entry.work(options, bindings).flops >= 0);
  }
}

}  // namespace

TEST_CASE("tile_copy, any shape and conversion", "[registry]") {
  for (Shape shape : {Shape{5, 300}, {1, 1}, {33, 1030}, {0, 4}, {4, 0}})
    check_kernel("tile_copy", {}, {{"x", shape}});
  check_kernel("tile_copy", {{"dtype", "f16"}, {"out", "f32"}}, {{"x", {20, 100}}});
  check_kernel("tile_copy", {{"dtype", "f32"}, {"out", "bf16"}, {"block_n", "48"}},
               {{"x", {9, 100}}});
}

TEST_CASE("row_softmax, any shape", "[registry]") {
  for (Shape shape : {Shape{5, 300}, {1, 1}, {33, 128}, {0, 4}, {4, 0}})
    check_kernel("row_softmax", {}, {{"x", shape}});
  check_kernel("row_softmax", {{"dtype", "f16"}, {"block_n", "48"}}, {{"x", {20, 100}}});
  check_kernel("row_softmax", {{"dtype", "bf16"}, {"fast_math", "false"}}, {{"x", {20, 100}}});
  // exp of the values, or of their distance from 0, would be 0 or infinite.
  for (double mean : {-1000.0, -200.0, 200.0, 1000.0})
    check_kernel("row_softmax", {{"block_n", "32"}}, {{"x", {20, 100}}}, mean);
}

TEST_CASE("matmul, any shape and transpose", "[registry]") {
  check_kernel("matmul", {}, {{"a", {70, 50}}, {"b", {50, 90}}});
  check_kernel("matmul", {{"dtype", "f32"}, {"block_k", "16"}}, {{"a", {1, 100}}, {"b", {100, 3}}});
  check_kernel("matmul", {{"transpose_b", "true"}}, {{"a", {40, 65}}, {"b", {33, 65}}});
  check_kernel("matmul", {{"transpose_a", "true"}, {"out", "f16"}},
               {{"a", {65, 40}}, {"b", {65, 33}}});
  check_kernel("matmul", {{"dtype", "f64"}, {"out", "f64"}, {"block_m", "16"}, {"block_n", "16"}},
               {{"a", {20, 30}}, {"b", {30, 20}}});
  check_kernel("matmul", {{"dtype", "bf16"}}, {{"a", {8, 0}}, {"b", {0, 8}}});
}

TEST_CASE("block_sparse_attention by name", "[registry]") {
  check_kernel("block_sparse_attention",
               {{"form", "dense"}, {"head_dim", "32"}, {"lse", "true"}, {"causal", "true"}},
               {{"q", {1, 2, 40, 32}}, {"k", {1, 1, 70, 32}}, {"v", {1, 1, 70, 32}}});
}

TEST_CASE("shipped settings are the shipped configurations", "[registry]") {
  const auto keys = [](const std::string& name) {
    const KernelEntry& entry = kernel_named(name);
    std::vector<std::string> all;
    for (const auto& settings : entry.shipped)
      all.push_back(hash(entry.build(entry.with_defaults(settings), "sm_90")));
    return all;
  };
  std::vector<std::string> attention, matmul, decode;
  for (const AttentionConfig& config : shipped_attention_configs())
    attention.push_back(hash(block_sparse_attention_kernel(validated(config, "sm_90"))));
  for (const MatmulConfig& config : shipped_matmul_configs())
    matmul.push_back(hash(matmul_kernel(validated(config, "sm_90"))));
  for (const DecodeConfig& config : shipped_decode_configs())
    decode.push_back(hash(sparse_decode_kernel(config)));
  CHECK(keys("block_sparse_attention") == attention);
  CHECK(keys("matmul") == matmul);
  CHECK(keys("sparse_decode") == decode);
  for (const KernelEntry& entry : kernel_registry()) CHECK(keys(entry.name).size() >= 1);
}

TEST_CASE("sparse_decode by name", "[registry]") {
  check_kernel(
      "sparse_decode", {{"form", "dense"}, {"head_dim", "32"}, {"lse", "true"}, {"split", "false"}},
      {{"q", {2, 1, 8, 32}}, {"k", {2, 40, 2, 32}}, {"v", {2, 40, 2, 32}}, {"lengths", {2}}}, 20);
}

TEST_CASE("wrong names and values are sentences", "[registry]") {
  CHECK_THROWS_WITH(kernel_named("matmull"),
                    Contains("no kernel 'matmull'") && Contains("row_softmax"));
  const KernelEntry& matmul = kernel_named("matmul");
  CHECK_THROWS_WITH(matmul.with_defaults({{"tile", "8"}}),
                    Contains("no option 'tile'") && Contains("block_m"));
  auto build = [&](const char* option, const char* value) {
    return [=, &matmul] { matmul.build(matmul.with_defaults({{option, value}}), "host"); };
  };
  CHECK_THROWS_WITH(build("block_m", "x")(), Contains("block_m: expected an integer, got 'x'"));
  CHECK_THROWS_WITH(build("block_m", "4")(), Contains("block_m: expected 8 to 256, got 4"));
  CHECK_THROWS_WITH(build("dtype", "i32")(),
                    Contains("dtype: expected one of f16, bf16, f32, f64"));
  CHECK_THROWS_WITH(build("transpose_a", "yes")(),
                    Contains("transpose_a: expected one of false, true"));
}
