// The maker of random inputs must see what it promises to see.
#include "tests/support/random_bindings.h"

#include <catch2/catch.hpp>

#include "ir/parse.h"

namespace kiln {
namespace {

Kernel sample() {
  return parse(R"(kernel @k {
  %n = dim {name = "n"} : i32
  %c = param {name = "c"} : f32
  %x = tensor %n {name = "x"} : tensor f16[?, 6]
  %y = tensor %n {name = "y", role = output} : tensor i32[3, ?]
  %w = tensor %n {name = "w", role = workspace} : tensor i32[3, ?]
})");
}

TEST_CASE("given dims and params are used, others chosen, and the seed decides everything") {
  testing::RandomBindings a(sample(), {{"n", 5}}), b(sample(), {{"n", 5}});
  Bindings bound = a.bindings();
  CHECK(bound.dims.at("n") == 5);
  CHECK(bound.params.at("c").dtype == F32);
  CHECK(bound.tensors.size() == 2);
  CHECK(bound.tensors.at("x").shape == Shape{5, 6});
  CHECK(bound.tensors.at("y").shape == Shape{3, 5});
  for (int64_t i = 0; i < 5; ++i) CHECK(a.at("x", {i, 3}).f == b.at("x", {i, 3}).f);
  testing::RandomBindings chosen(sample());
  CHECK(chosen.dims().at("n") >= 1);
}

TEST_CASE("writes outside tensors and into inputs are damage, those into outputs are not") {
  for (bool odd_strides : {false, true}) {
    testing::RandomOptions options;
    options.odd_strides = odd_strides;
    testing::RandomBindings random(sample(), {{"n", 5}}, {}, options);
    Memory y = random.bindings().tensors.at("y"), x = random.bindings().tensors.at("x");
    auto* data = static_cast<int32_t*>(y.data);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j) data[i * y.strides[0] + j] = 1;
    CHECK(random.damage() == "");
    data[-1] = 0;
    CHECK(random.damage() != "");
    data[-1] = static_cast<int32_t>(0xCDCDCDCD);
    CHECK(random.damage() == "");
    *static_cast<uint8_t*>(x.data) ^= 1;
    CHECK_THAT(random.damage(), Catch::Matchers::Contains("input 'x'"));
  }
}

TEST_CASE("a forgotten output element is a difference") {
  testing::RandomBindings a(sample(), {{"n", 2}}), b = a;
  CHECK(a.difference(b) == "");
  a.fill("y", [](const Shape& index) { return static_cast<double>(index[0]); });
  CHECK_THAT(a.difference(b), Catch::Matchers::Contains("y[0, 0]"));
  b.fill("y", [](const Shape& index) { return static_cast<double>(index[0]); });
  CHECK(a.difference(b) == "");
}

}  // namespace
}  // namespace kiln
