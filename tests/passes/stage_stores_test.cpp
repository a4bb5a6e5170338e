// Random accumulators stored to tensors of random dtypes, extents and places, beside tiles that are
// alive or dead by then.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "ir/interp.h"
#include "ir/layout/fragments.h"
#include "ir/layout/shared.h"
#include "ir/layout/text.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/memory_plan_impl.h"
#include "passes/pipeline.h"
#include "tests/passes/race_check.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

using testing::RaceCheck;
using testing::RandomBindings;

class StoreProgram {
 public:
  explicit StoreProgram(uint64_t seed) : random_(seed) {}

  Kernel make() {
    const int64_t warps = pick<int64_t>({1, 2, 3, 4, 8});
    const int64_t m = 16 * between(1, 8), n = 8 * between(1, 12);
    const WarpGrid grid = split_warps(
        pick({WarpPolicy::Rows, WarpPolicy::Columns, WarpPolicy::Square}), m / 16, n / 8, warps);
    const Layout layout =
        between(0, 4) > 0 ? mma_accumulator(m, n, grid) : blocked({m, n}, warps, 4);
    const int64_t rest = 16 * between(1, 64);  // rows of a tile of another use
    const char* again = between(0, 1) ? "copy %s, %f0" : "";
    const char* loop = pick({"serial", "pipelined"});
    const char* target = pick({"sm_80", "sm_86", "sm_120"});
    const char* dtype = pick({"f16", "bf16", "f32", "i8", "e4m3"});
    const int64_t row = between(-3, 3), column = between(-9, 9);
    return parse(fmt::format(R"(kernel @k {{target = "{target}"}} {{
  %rows = dim {{name = "rows"}} : i32
  %columns = dim {{name = "columns"}} : i32
  %x = tensor {{name = "x"}} : tensor f32[{m}, {n}]
  %z = tensor {{name = "z"}} : tensor f32[{rest}, 16]
  %w = tensor {{name = "w", role = output}} : tensor f32[{rest}, 16]
  %y = tensor %rows, %columns {{name = "y", role = output}} : tensor {dtype}[2, ?, ?]
  %one = const {{value = 1}} : i32
  launch %one {{warps = {warps}}} do |%b: i32| {{
    %zero = const {{value = 0}} : i32
    %two = const {{value = 2}} : i32
    %row = const {{value = {row}}} : i32
    %column = const {{value = {column}}} : i32
    %s = alloc {{layout = "{shared}"}} : shared f32[{rest}, 16]
    %f0 = alloc {{layout = "{plain}"}} : fragment f32[{rest}, 16]
    %f = alloc {{layout = "{layout}"}} : fragment f32[{m}, {n}]
    copy %z, %s
    copy %s, %f0
    copy %x, %f
    for %zero, %two, %one {{kind = {loop}}} do |%i: i32| {{
      %to = slice %y, %i, %row, %column : view global {dtype}[1, {m}, {n}]
      copy %f, %to
    }}
    {again}
    copy %f0, %w
  }}
}}
)",
                             fmt::arg("target", target), fmt::arg("m", m), fmt::arg("n", n),
                             fmt::arg("rest", rest), fmt::arg("warps", warps),
                             fmt::arg("again", again), fmt::arg("dtype", dtype),
                             fmt::arg("row", row), fmt::arg("column", column),
                             fmt::arg("shared", layout_text(row_major({rest, 16}))),
                             fmt::arg("plain", layout_text(blocked({rest, 16}, warps, 4))),
                             fmt::arg("layout", layout_text(layout)), fmt::arg("loop", loop)));
  }
  // Of the output.
  std::map<std::string, int64_t> dims() {
    const int64_t rows = between(1, 140);
    return {{"rows", rows}, {"columns", between(1, 110)}};
  }

 private:
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[between(0, static_cast<int64_t>(from.size()) - 1)];
  }

  std::mt19937_64 random_;
};

TEST_CASE("stores that are staged, or say why not, write what they wrote") {
  int staged = 0, declined = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    StoreProgram program(seed);
    const Kernel kernel = program.make();
    Kernel after = kernel;
    run_passes(after, std::vector<Pass>{pass_named("stage_stores")},
               {.verify_each = true, .after_each = {}});
    INFO("seed " << seed << "\n" << print(after));
    const std::string text = print(after);
    staged += text.find("rows in vectors of 16 bytes") != std::string::npos;
    declined += text.find("not through shared memory") != std::string::npos;
    CHECK((text == print(kernel) || staged + declined > 0));
    testing::RandomOptions options;
    options.integers = true;
    const RandomBindings inputs(kernel, program.dims(), {}, options);
    RandomBindings expected = inputs, got = inputs;
    interpret(kernel, expected.bindings());
    interpret(after, got.bindings());
    CHECK(got.damage() == "");
    CHECK(got.difference(expected, 0.0) == "");
    run_passes(after,
               std::vector<Pass>{pass_named("plan_shared_memory"), pass_named("insert_barriers")},
               {.verify_each = true, .after_each = {}});
    CHECK(RaceCheck(after).find() == "");
  }
  CHECK(staged > 20);
  CHECK(declined > 20);
}

}  // namespace
}  // namespace kiln
