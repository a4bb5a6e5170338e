// Atomics, rows by index, device_assert and watch in the interpreter, and loops of the language.
#include <catch2/catch.hpp>

#include "ir/report.h"
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Contains;

namespace {

const char* const kTensors = R"(%x = tensor {name = "x"} : tensor i32[6]
  %h = tensor {name = "h", role = inout} : tensor i32[4])";

Run run(const std::string& body, const Numbers& x = {0, 3, 3, 9, -1, 0}) {
  Run made(one_block(kTensors, body));
  made.tensor("x", I32, {6}, x).tensor("h", I32, {4}, {10, 20, 30, 40});
  return made;
}

std::string in_loop(const std::string& body) {
  return "parallel {extents = [6]} do |%i: i32| {\n" + body + "\n}";
}

}  // namespace

TEST_CASE("atomics of points that meet", "[interp]") {
  CHECK(run(in_loop("%b = load %x, %i : i32\n%o = atomic %c1, %h, %b {kind = add} : i32"))().values(
            "h") == Numbers{12, 20, 30, 42});
  CHECK(run(in_loop("%o = atomic %i, %h, %c0 {kind = max} : i32\n"
                    "%p = atomic %i, %h, %c1 {kind = min} : i32"))()
            .values("h") == Numbers{10, 0, 30, 40});
  CHECK(run("%o = atomic %c1, %h, %c0 {kind = exchange} : i32\nstore %o, %h, %c1")().values("h") ==
        Numbers{1, 10, 30, 40});
}

TEST_CASE("atomics and other accesses of one element in one parallel", "[interp]") {
  const char* const kAtomic = "%o = atomic %c1, %h, %c0 {kind = add} : i32\n";
  CHECK(run(in_loop(std::string(kAtomic) + "%l = load %h, %c0 : i32")).error() ==
        "10: parallel: iteration [0] reads element offset 0 of tensor i32[4], which iteration [0] "
        "updates atomically");
  CHECK_THAT(run(in_loop(std::string("%l = load %h, %c0 : i32\n") + kAtomic)).error(),
             Contains("iteration [0] updates atomically element offset 0 of tensor i32[4], which "
                      "iteration [0] reads"));
  CHECK_THAT(run(in_loop(std::string("store %i, %h, %i\n") + kAtomic)).error(),
             Contains("iteration [0] updates atomically element offset 0 of tensor i32[4], which "
                      "iteration [0] writes"));
  // Other elements are free.
  CHECK(run(in_loop(std::string(kAtomic) + "%l = load %h, %c1 : i32")).error() == "no error");
}

TEST_CASE("gather and scatter", "[interp]") {
  const char* const kRows = R"(%r = alloc : shared i32[3]
    store %two, %r, %c0
    store %minus, %r, %c1
    store %c0, %r, %two
  )";
  const std::string before =
      std::string("%two = const {value = 2} : i32\n%minus = const {value = -1} : i32\n") + kRows;
  const auto made = [&](const std::string& body) {
    Run run(one_block(R"(%x = tensor {name = "x"} : tensor f32[3, 2]
      %y = tensor {name = "y", role = inout} : tensor f32[3, 2])",
                      before + body));
    run.tensor("x", F32, {3, 2}, {1, 2, 3, 4, 5, 6}).tensor("y", F32, {3, 2}, {7, 7, 7, 7, 7, 7});
    return run;
  };
  CHECK(made("%t = alloc : shared f32[3, 2]\ngather %x, %r, %t {pad = 9.0}\ncopy %t, %y")().values(
            "y") == Numbers{5, 6, 9, 9, 1, 2});
  CHECK(made("scatter %x, %r, %y")().values("y") == Numbers{5, 6, 7, 7, 1, 2});
  CHECK_THAT(made("store %c0, %r, %c0\nscatter %x, %r, %y").error(),
             Contains("scatter: rows 0 and 2 both have the index 0"));
}

TEST_CASE("device_assert says what did not hold at the end", "[interp]") {
  Run failed =
      run(in_loop("%b = load %x, %i : i32\n%ok = compare %b, %c0 {kind = ge} : bool\n"
                  "device_assert %ok {text = \"bins are not negative\"}\n"
                  "%o = atomic %c1, %h, %b {kind = add} : i32"));
  CHECK(failed.error() == "11: device_assert: bins are not negative (first in block 0, 0, 0)");
  CHECK(failed.values("h") == Numbers{12, 20, 30, 42});
}

TEST_CASE("what watch writes", "[interp]") {
  const Type type = Type::tile(Space::Shared, F32, {2, 2});
  CHECK(watch_text(watch_headline(Loc{}, "s"), {1, 2, 3}, type, [](int64_t i) {
          return i == 1 ? std::nullopt : std::optional(Scalar::of_float(F32, 0.5 * double(i)));
        }).find("watch s, block 1, 2, 3: shared f32[2, 2]\n 0 ?\n 1 1.5\n") != std::string::npos);
}

TEST_CASE("mistakes with atomics, rows and loops", "[verify]") {
  const std::vector<Mistake> mistakes = {
      {"atomic: expected a tensor or shared tile, got fragment f32[8, 4]",
       "an element of a fragment has one thread: store to it, or combine them with reduce",
       in_parallel("%q = atomic %z, %f, %i, %j {kind = add} : f32  // here")},
      {"atomic: or: expected i32, i64, u32 or u64, got f32",
       "accumulate in one of these and convert with copy",
       in_parallel("%q = atomic %z, %s, %i, %j {kind = or} : f32  // here")},
      {"atomic: add: expected f32, f64, i32, i64, u32 or u64, got f16",
       "accumulate in one of these and convert with copy",
       tiles("%h = const {value = 0.0} : f16\n"
             "%q = atomic %h, %a, %c0, %c0 {kind = add} : f16  // here")},
      {"atomic: 'value': expected f32, got i32", "cast it",
       in_parallel("%q = atomic %i, %s, %i, %j {kind = add} : f32  // here")},
      {"atomic: reads 'o', which is an output", "declare it inout or workspace",
       in_parallel("%w = atomic %z, %o, %i, %j {kind = add} : f32  // here")},
      {"atomic: writes 'x', which is an input", "declare it output, inout or workspace",
       inside("%h = const {value = 0.0} : f16\n"
              "%w = atomic %h, %x, %c0, %c0 {kind = add} : f16  // here")},
      {"gather: 'rows': expected a tile of 64 i32, one a row of 'destination', got tensor "
       "i32[4, 4]",
       "copy them to a tile first, with pad -1", tiles("gather %x, %list, %a  // here")},
      {"gather: shapes differ: 'destination' is 64x128 f16, 'source' is ?x64 f16",
       "all but the first axis of the rows agree; in front of those the other has extents of 1",
       tiles("%r = alloc : shared i32[64]\ngather %x, %r, %a  // here")},
      {"scatter: 'destination': expected a tensor or shared tile, got fragment f32[64, 64]",
       "a thread has its own elements of a fragment only: copy it to a shared tile",
       tiles("%r = alloc : shared i32[128]\nscatter %bt, %r, %c  // here")},
      {"device_assert: condition: expected bool, got i32", "compare it with something",
       inside("device_assert %c0 {text = \"\"}  // here")},
      {"loop: has no exit_if directly in its region: it would never end",
       "exit_if %condition do { } directly in its region", inside("loop do {  // here\n}")},
      {"exit_if: expected it directly in the region of a loop",
       "store the condition in a scalar variable and exit in the loop's region",
       inside("%yes = const {value = true} : bool\nexit_if %yes do {  // here\n}")},
      {"exit_if: condition: expected bool, got i32", "compare it with something",
       inside("loop do {\nexit_if %c0 do {  // here\n}\n}")},
  };
  for (const Mistake& mistake : mistakes) check(mistake, IrStage::Traced);
}
