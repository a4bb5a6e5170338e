// What GPU tiers decide, in the IR: attributes and ops that print, parse, are checked, and mean
// nothing to the interpreter's one thread.
#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "ir/print.h"
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;

namespace {

constexpr const char* kLowered = R"ir(kernel @lowered {fast_math = true, target = "sm_90a"} {
  %x = tensor {name = "x"} : tensor f32[2, 16]
  %y = tensor {name = "y", role = output} : tensor f32[16]
  %const.0 = const {value = 1} : i32
  launch %const.0 {warps = 2, shared = 320} do |%bx: i32| {
    %alloc.0 = alloc {layout = "[2, 16] offset (0, 1) (0, 2) (0, 4) (0, 8) (1, 0)", offset = 64} : shared f32[2, 16]
    %alloc.1 = alloc {layout = "[2, 16] reg (0, 1) (1, 0) lane (0, 2) (0, 4) (0, 8) (0, 0) (0, 0) warp (0, 0)"} : fragment f32[2, 16]
    %alloc.2 = alloc {layout = "[2, 16] reg (0, 8) (1, 0) lane (0, 1) (0, 2) (0, 4) (0, 0) (0, 0) warp (0, 0)"} : fragment f32[2, 16]
    %alloc.3 = alloc {layout = "[16] reg (8) lane (1) (2) (4) (0) (0) warp (0)"} : fragment f32[16]
    %alloc.4 = alloc {layout = "[2, 16] offset (0, 1) (0, 2) (0, 4) (0, 8) (1, 0)", offset = 192} : shared f32[2, 16]
    copy %x, %alloc.0 {instruction = cp_async, reason = "rows of 64 bytes"}
    wait_copies {pending = 1}
    wait_copies
    barrier
    copy %alloc.0, %alloc.1 {instruction = vector}
    convert %alloc.1, %alloc.2
    reduce %alloc.2, %alloc.3, %alloc.4 {kind = sum, dim = 0}
    parallel {extents = [16], layout = "[16] reg (8) lane (1) (2) (4) (0) (0) warp (0)"} do |%i: i32| {
      %load.0 = load %alloc.3, %i : f32
      %add.0 = add %load.0, %load.0 : f32
      store %add.0, %alloc.3, %i
    }
    copy %alloc.3, %y
  }
}
)ir";

std::string with_layout(const std::string& layout, const std::string& type) {
  return inside("%t = alloc {layout = \"" + layout + "\"} : " + type + "  // here");
}

}  // namespace

TEST_CASE("lowered: what passes decide is in the text and is read back") {
  const Kernel kernel = parse(kLowered);
  CHECK(print(kernel) == kLowered);
  CHECK(kernel.target == "sm_90a");
  CHECK(kernel.fast_math);
  CHECK_NOTHROW(verify(kernel));
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Launch) continue;
    CHECK(op.integer("warps") == 2);
    CHECK(op.integer("shared") == 320);
    const Op& tile = kernel.op(kernel.region(op.regions[0]).ops[0]);
    CHECK(layout_of(tile) == row_major({2, 16}));
    CHECK(tile_layout(kernel, tile.result) == row_major({2, 16}));
    CHECK(tile.integer("offset") == 64);
  }
}

TEST_CASE("lowered: the target is part of the hash, and of copies") {
  Kernel kernel = parse(kLowered);
  const std::string before = hash(kernel);
  CHECK(canonical(kernel).target == "sm_90a");
  kernel.target = "sm_80";
  CHECK(hash(kernel) != before);
  kernel.target.clear();
  CHECK(print(kernel).find("target") == std::string::npos);
  CHECK(print(parse(print(kernel))) == print(kernel));
}

TEST_CASE("lowered: a kernel's attributes are fast_math and target") {
  auto message = [](const std::string& attributes) {
    try {
      parse("kernel @k {" + attributes + "} {\n}\n");
    } catch (const UserError& error) {
      return error.message() + " " + error.hint();
    }
    return std::string("read");
  };
  CHECK(message("target = \"sm_80\"") == "read");
  CHECK(message("target = \"sm_80\", fast_math = false") == "read");
  CHECK_THAT(message("target = sm_80"), Catch::Contains("target"));
  CHECK_THAT(message("target = 80"), Catch::Contains("target"));
  CHECK_THAT(message("gpu = \"sm_80\""),
             Catch::Contains("'fast_math', 'target', 'without' and 'note'"));
}

TEST_CASE("lowered: a layout is one of its tile", "[verify]") {
  check_all({
      {"alloc: layout: expected one over [4, 8], got [8, 4]",
       "ir/layout/text.h says how a layout is written",
       with_layout("[8, 4] offset (0, 1) (0, 2) (1, 0) (2, 0) (4, 0)", "shared f32[4, 8]")},
      {"alloc: layout: expected one by offset in shared memory, got one by thread",
       "ir/layout/text.h says how a layout is written",
       with_layout("[8] reg (1) (2) (4) lane (0) (0) (0) (0) (0)", "shared f32[8]")},
      {"alloc: layout: expected one by register, 32 lanes and warp, got one by offset",
       "ir/layout/text.h says how a layout is written",
       with_layout("[8] offset (1) (2) (4)", "fragment f32[8]")},
      {"alloc: layout: expected one by register, 32 lanes and warp, got 16 lanes",
       "ir/layout/text.h says how a layout is written",
       with_layout("[8] lane (1) (2) (4) (0)", "fragment f32[8]")},
      {"parallel: layout: expected one over [8], got [4]",
       "ir/layout/text.h says how a layout is written",
       inside("parallel {extents = [8], layout = \"[4] lane (1) (2) (0) (0) (0)\"} do |%i: i32| {  "
              "// here\n}")},
      {"parallel: layout: expected one by register, 32 lanes and warp, got one by offset",
       "ir/layout/text.h says how a layout is written",
       inside("parallel {extents = [8], layout = \"[8] offset (1) (2) (4)\"} do |%i: i32| {  // "
              "here\n}")},
  });
  const Kernel broken = parse(with_layout("[8] offset (1) (2", "shared f32[8]"));
  CHECK_THROWS_WITH(verify(broken), Catch::Contains("alloc: layout: "));
}

TEST_CASE("lowered: convert is between fragments of one type", "[verify]") {
  check_all({
      {"convert: expected fragments of one type, got fragment f32[64] and fragment f32[64, 64]",
       "copy converts", tiles("convert %m, %c  // here")},
      {"convert: expected fragments of one type, got fragment f32[64, 64] and fragment f16[64, 64]",
       "copy converts", tiles("convert %c, %p  // here")},
      {"convert: expected fragments of one type, got shared f16[64, 128] and shared f16[64, 128]",
       "copy converts", tiles("convert %a, %b  // here")},
      {"convert: writes fragment f32[64] and also uses it as another operand",
       "go through another tile", tiles("convert %m, %m  // here")},
  });
  accept(tiles("convert %m, %l\nbarrier\nwait_copies {pending = 3}"));
  check_all(
      {{"barrier: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
        "move it out of the parallel", in_parallel("barrier  // here")},
       {"wait_copies: stands inside a parallel, which holds scalar ops, loads, stores and atomics "
        "only",
        "move it out of the parallel", in_parallel("wait_copies  // here")}});
}

TEST_CASE("lowered: one thread copies at once and waits for nobody", "[interp]") {
  Run run(kLowered);
  Numbers x(32), y(16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i * i);
  for (size_t i = 0; i < y.size(); ++i) y[i] = 2 * (x[i] + x[i + 16]);
  run.tensor("x", F32, {2, 16}, x).tensor("y", F32, {16});
  CHECK(run().values("y") == y);
}

TEST_CASE("lowered: convert needs a source that was written", "[interp]") {
  Run run(one_block(R"(%y = tensor {name = "y", role = output} : tensor f32[2])",
                    "%f = alloc : fragment f32[2]\n%g = alloc : fragment f32[2]\n"
                    "convert %f, %g\ncopy %g, %y"));
  run.tensor("y", F32, {2});
  CHECK_THAT(run.error(), Catch::Contains("never written"));
}
