// Local arrays: the law, and what the interpreter makes of them.
#include <catch2/catch.hpp>

#include "ir/print.h"
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Contains;

namespace {

Run run(const std::string& body) {
  Run made(one_block(R"(%x = tensor {name = "x"} : tensor i32[4]
  %y = tensor {name = "y", role = output} : tensor i32[4])",
                     "%a = alloc : local i32[2, 2]\n" + body));
  made.tensor("x", I32, {4}, {0, 1, 3, -1}).tensor("y", I32, {4});
  return made;
}

std::string in_loop(const std::string& body) {
  return "parallel {extents = [4]} do |%i: i32| {\n%v = load %x, %i : i32\n" + body + "\n}\n";
}

}  // namespace

TEST_CASE("local arrays are small, and taken element by element", "[verify]") {
  const std::string array = "%q = alloc : local f32[4, 4]\n";
  const char* const kOneByOne = "load and store its elements one by one, or use a shared tile";
  check_all({
      {"alloc: a local array: expected 1 to 4 axes and at most 64 elements, got local f32[65]",
       "a shared tile holds more", inside("%q = alloc : local f32[65]  // here")},
      {"alloc: a local array: expected 1 to 4 axes and at most 64 elements, got local f32[]",
       "a shared tile holds more", inside("%q = alloc : local f32[]  // here")},
      {"alloc: a local array: expected 1 to 4 axes and at most 64 elements, got local "
       "f32[1, 1, 1, 1, 1]",
       "a shared tile holds more", inside("%q = alloc : local f32[1, 1, 1, 1, 1]  // here")},
      {"alloc: expected positive constant extents, got local f32[0]",
       "the shape of a tile is known when the kernel is built",
       inside("%q = alloc : local f32[0]  // here")},
      {"alloc: a local array has no offset", "leave it out",
       inside("%q = alloc {offset = 16} : local f32[4]  // here")},
      {"fill: 'destination': expected a tensor or tile, got the array local f32[4, 4]", kOneByOne,
       inside(array + "fill %c0, %q  // here")},
      {"slice: 'base': expected a tensor or tile, got the array local f32[4, 4]", kOneByOne,
       inside(array + "%v = slice %q, %c0, %c0 : view local f32[1, 4]  // here")},
      {"reshape: 'base': expected a tensor or tile, got the array local f32[4, 4]", kOneByOne,
       inside(array + "%v = reshape %q : shared f32[16]  // here")},
      {"atomic: 'base': expected a tensor or tile, got the array local f32[4, 4]", kOneByOne,
       inside(array + "%f = const {value = 1.0} : f32\n"
                      "%v = atomic %f, %q, %c0, %c0 {kind = add} : f32  // here")},
      {"load: indices of local f32[4, 4]: expected 2, got 1", "one index an axis",
       inside(array + "%v = load %q, %c0 : f32  // here")},
      {"store: writes the block's local f32[4, 4] inside a parallel",
       "an array made inside the parallel is each point's own; points share shared tiles",
       inside(array + "parallel {extents = [4]} do |%i: i32| {\n"
                      "store %i, %q, %i, %i  // here\n}")},
      {"alloc: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
       "move it out of the parallel; alloc_local gives each point its own",
       in_parallel("%q = alloc : shared f32[4]  // here")},
  });
  accept(inside(array + "parallel {extents = [4]} do |%i: i32| {\n"
                        "%own = alloc : local f16[64]\n%v = load %q, %i, %i : f32\n"
                        "store %v, %own, %i\n%w = load %own, %c1 : f16\n}"));
}

TEST_CASE("local arrays: text and back", "[parse]") {
  const std::string text = R"(kernel @k {
  %const.0 = const {value = 1} : i32
  launch %const.0 do |%bx: i32| {
    %alloc.0 = alloc : local bf16[2, 8]
    store %bx, %alloc.0, %bx, %const.0
  }
}
)";
  CHECK(print(parse(text)) == text);
}

TEST_CASE("local arrays of the block and of points", "[interp]") {
  const std::string table =
      "store %c0, %a, %c0, %c0\nstore %c1, %a, %c0, %c1\n%k = const {value = 7} : i32\n"
      "store %k, %a, %c1, %c0\nstore %k, %a, %c1, %c1\n";
  // A table, read at any index; out of range is 0.
  CHECK(run(table + in_loop("%t = load %a, %c1, %v : i32\nstore %t, %y, %i"))().values("y") ==
        Numbers{7, 7, 0, 0});
  // Outside nothing is stored; values are converted.
  CHECK(run(table +
            "%f = const {value = 2.75} : f32\n%n = const {value = -1} : i32\n"
            "store %f, %a, %c1, %c1\nstore %f, %a, %n, %c1\nstore %f, %a, %c0, %k\n" +
            in_loop("%t = load %a, %c1, %c1 : i32\n%u = load %a, %c0, %c1 : i32\n"
                    "%w = add %t, %u : i32\nstore %w, %y, %i"))()
            .values("y") == Numbers{3, 3, 3, 3});
  // A point has its own, new for each.
  CHECK(run(in_loop("%o = alloc : local i32[2]\nstore %i, %o, %c0\nstore %v, %o, %c1\n"
                    "%w = load %o, %v : i32\nstore %w, %y, %i"))()
            .values("y") == Numbers{0, 1, 0, 0});
  CHECK_THAT(run(in_loop("%o = alloc : local i32[2]\n%q = compare %i, %c0 {kind = eq} : bool\n"
                         "%w = select %q, %c0, %c1 : i32\nstore %i, %o, %w\n"
                         "%z = load %o, %c0 : i32\nstore %z, %y, %i"))
                 .error(),
             Contains("load reads element [0] of local i32[2], which was never written"));
  CHECK_THAT(run("%z = load %a, %c0, %c1 : i32\nstore %z, %y, %c0").error(),
             Contains("load reads element [0, 1] of local i32[2, 2], which was never written"));
}
