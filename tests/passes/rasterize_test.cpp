// expand_rasterize by execution: every block of a random grid runs once, and in which order.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>

#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "passes/passes.h"

namespace kiln {
namespace {

// Each block counts itself, and notes as the how manieth it ran; z is a third axis.
Kernel counting(bool fixed, const int64_t (&grid)[3], int64_t panel) {
  const auto extent = [&](const char* name, int64_t value) {
    return fixed ? fmt::format("%{} = const {{value = {}}} : i32\n", name, value)
                 : fmt::format("%{0} = param {{name = \"{0}\"}} : i32\n", name);
  };
  const std::string text = fmt::format(
      R"(kernel @k {{
  {}{}{}
  %count = tensor {{name = "count", role = inout}} : tensor i32[{}, {}, {}]
  %order = tensor {{name = "order", role = inout}} : tensor i32[{}, {}, {}]
  %next = tensor {{name = "next", role = inout}} : tensor i32[1]
  launch %x, %y, %z {{rasterize = {}}} do |%bx: i32, %by: i32, %bz: i32| {{
    %zero = const {{value = 0}} : i32
    %one = const {{value = 1}} : i32
    %u = atomic %one, %count, %bz, %by, %bx {{kind = add}} : i32
    %at = atomic %one, %next, %zero {{kind = add}} : i32
    store %at, %order, %bz, %by, %bx
  }}
}})",
      extent("x", grid[0]), extent("y", grid[1]), extent("z", grid[2]), grid[2], grid[1], grid[0],
      grid[2], grid[1], grid[0], panel);
  return parse(text, "rasterize");
}

struct Ran {
  std::vector<int32_t> count, order;
};

Ran run(const Kernel& kernel, bool fixed, const int64_t (&grid)[3]) {
  const Shape shape = {grid[2], grid[1], grid[0]};
  Ran ran{std::vector<int32_t>(static_cast<size_t>(count(shape))),
          std::vector<int32_t>(static_cast<size_t>(count(shape)))};
  int32_t next = 0;
  const Shape strides = {grid[1] * grid[0], grid[0], 1};
  Bindings bindings;
  bindings.tensors["count"] = {ran.count.data(), I32, shape, strides};
  bindings.tensors["order"] = {ran.order.data(), I32, shape, strides};
  bindings.tensors["next"] = {&next, I32, {1}, {1}};
  if (!fixed)
    for (size_t axis = 0; axis < 3; ++axis)
      bindings.params[std::string(1, "xyz"[axis])] = Scalar::of_int(I32, grid[axis]);
  interpret(kernel, bindings);
  return ran;
}

TEST_CASE("rasterize: every block once, in panels", "[passes]") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const int64_t grid[3] = {pick(7), pick(9), 1 + pick(1)};
    const int64_t panel = round % 20 == 0 ? 0x7fffffff : pick(11);
    const bool fixed = round % 2;
    INFO("grid " << grid[0] << " x " << grid[1] << " x " << grid[2] << ", panels of " << panel);
    Kernel kernel = counting(fixed, grid, panel);
    expand_rasterize(kernel);
    verify(kernel);
    if (round % 4 < 2) simplify(kernel);
    const Ran ran = run(kernel, fixed, grid);
    CHECK(ran.count == std::vector<int32_t>(ran.count.size(), 1));
    // By the definition, panel after panel, each column by column.
    std::vector<int32_t> expected(ran.order.size());
    int32_t at = 0;
    const int64_t width = std::max<int64_t>(panel, 1);
    for (int64_t z = 0; z < grid[2]; ++z)
      for (int64_t first = 0; first < grid[1]; first += width)
        for (int64_t x = 0; x < grid[0]; ++x)
          for (int64_t y = first; y < std::min(first + width, grid[1]); ++y)
            expected[static_cast<size_t>((z * grid[1] + y) * grid[0] + x)] = at++;
    // One whose places overflow i32 keeps the order of a launch without.
    if (grid[0] <= 0x7fffffff / width) CHECK(ran.order == expected);
  }
}

}  // namespace
}  // namespace kiln
