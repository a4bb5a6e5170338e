// Structure of the interpreter: launches, loops, selections, storage, races, bindings.
#include <catch2/catch.hpp>

#include <cmath>

#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Contains;

namespace {

// Appends the running number of each visit to what a loop did: out[visits] = index.
std::string visits(const std::string& interface, const std::string& loop_head) {
  return one_block(interface + R"(
    %out = tensor {name = "out", role = inout} : tensor i32[16]
    %length = tensor {name = "length", role = inout} : tensor i32[])",
                   loop_head + R"( do |%k: i32| {
      %n = load %length : i32
      store %k, %out, %n
      %m = add %n, %c1 : i32
      store %m, %length
    })");
}

Numbers visited(Run& run, const InterpOptions& options = {}) {
  run.tensor("out", I32, {16}).tensor("length", I32, {});
  run(options);
  Numbers out = run.values("out");
  out.resize(static_cast<size_t>(run.values("length")[0]));
  return out;
}

}  // namespace

TEST_CASE("for runs while below the end", "[interp]") {
  auto loop = [](int begin, int end, int step) {
    Run run(visits(R"(%begin = param {name = "begin"} : i32
      %end = param {name = "end"} : i32
      %step = param {name = "step"} : i32)",
                   "for %begin, %end, %step"));
    run.param("begin", Scalar::of_int(I32, begin)).param("end", Scalar::of_int(I32, end));
    run.param("step", Scalar::of_int(I32, step));
    return visited(run);
  };
  CHECK(loop(0, 3, 1) == Numbers{0, 1, 2});
  CHECK(loop(-2, 5, 3) == Numbers{-2, 1, 4});
  CHECK(loop(3, 3, 1).empty());
  CHECK(loop(5, 3, 1).empty());
  CHECK(loop(2147483645, 2147483647, 2) == Numbers{2147483645});
  CHECK_THROWS_WITH(loop(0, 3, 0), Contains("expected a step above 0, got 0"));
  CHECK_THROWS_WITH(loop(0, 3, -1), Contains("got -1"));
}

// Each trip adds S to acc, then copies a[k] into S: the prefetch may not overtake the read.
TEST_CASE("every kind of loop gives the serial result", "[interp]") {
  for (std::string kind : {"serial", "unroll", "pipelined"})
    for (int stages = 0; stages <= 4; ++stages)
      for (int trips : {0, 1, 2, 3, 8}) {
        Run run(one_block(R"(%a = tensor {name = "a"} : tensor f32[8]
          %o = tensor {name = "o", role = output} : tensor f32[])",
                          "%n = const {value = " + std::to_string(trips) + R"(} : i32
          %s = alloc : shared f32[1]
          %acc = alloc : fragment f32[]
          %hundred = const {value = 100.0} : f32
          %zero = const {value = 0.0} : f32
          fill %hundred, %s
          store %zero, %acc
          for %c0, %n, %c1 {kind = )" +
                              kind + ", stages = " + std::to_string(stages) + R"(} do |%k: i32| {
            %x = load %s, %c0 : f32
            %y = load %acc : f32
            %z = add %x, %y : f32
            store %z, %acc
            %part = slice %a, %k : view global f32[1]
            copy %part, %s
          }
          copy %acc, %o)"));
        run.tensor("a", F32, {8}, {1, 2, 3, 4, 5, 6, 7, 8}).tensor("o", F32, {});
        double expected = trips == 0 ? 0 : 100 + (trips - 1) * trips / 2;
        CHECK(run().values("o") == Numbers{expected});
      }
}

TEST_CASE("selected over a mask", "[interp]") {
  auto mask = [](const std::string& dtype, const Numbers& row, std::optional<int> limit,
                 InterpOptions options = {}, const std::string& attrs = "") {
    Run run(
        visits("%len = dim {name = \"len\"} : i32\n%row = tensor %len {name = \"row\"} : tensor " +
                   dtype + "[?]\n%limit = param {name = \"limit\"} : i32",
               std::string("selected %row") + (limit ? ", %limit" : "") + attrs));
    run.tensor("row", *dtype_from_name(dtype), {static_cast<int64_t>(row.size())}, row);
    run.dim("len", static_cast<int64_t>(row.size()));
    run.param("limit", Scalar::of_int(I32, limit.value_or(0)));
    return visited(run, options);
  };
  CHECK(mask("bool", {1, 0, 0, 1, 1}, {}) == Numbers{0, 3, 4});
  CHECK(mask("i8", {0, -1, 5, 0}, {}) == Numbers{1, 2});
  CHECK(mask("i8", {1, 1, 1, 1}, 2) == Numbers{0, 1});
  CHECK(mask("i8", {1, 1}, 7) == Numbers{0, 1});
  CHECK(mask("i8", {1, 1}, 0).empty());
  CHECK(mask("i8", {1, 1}, -3).empty());
  CHECK(mask("bool", {0, 0, 0}, {}).empty());
  CHECK(mask("bool", {}, {}).empty());
  InterpOptions reverse{.reverse_selected = true};
  CHECK(mask("bool", {1, 0, 1, 1}, {}, reverse) == Numbers{3, 2, 0});
  CHECK(mask("bool", {1, 0, 1, 1}, {}, reverse, " {ordered = true}") == Numbers{0, 2, 3});
}

TEST_CASE("selected over a list is a set", "[interp]") {
  auto list = [](const Numbers& row, std::optional<int> limit, std::optional<int> count,
                 InterpOptions options = {}, const std::string& attrs = "") {
    std::string operands = "selected %row";
    if (limit || count) operands += limit ? ", %limit" : ", _";
    if (count) operands += ", %count";
    Run run(visits(R"(%len = dim {name = "len"} : i32
      %row = tensor %len {name = "row"} : tensor i32[1, ?]
      %limit = param {name = "limit"} : i32
      %count = param {name = "count"} : i32)",
                   operands + attrs));
    run.tensor("row", I32, {1, static_cast<int64_t>(row.size())}, row);
    run.dim("len", static_cast<int64_t>(row.size()));
    run.param("limit", Scalar::of_int(I32, limit.value_or(0)));
    run.param("count", Scalar::of_int(I32, count.value_or(0)));
    return visited(run, options);
  };
  CHECK(list({4, 0, 2}, {}, {}) == Numbers{4, 0, 2});
  CHECK(list({-1, 1, 0}, {}, {}) == Numbers{1, 0});
  CHECK(list({3, 3, 1, 3, 1}, {}, {}) == Numbers{3, 1});
  CHECK(list({5, 1, 2}, 2, {}) == Numbers{1});
  CHECK(list({5, 1, 2}, 3, 2) == Numbers{1});
  CHECK(list({5, 1, 2}, 9, 0).empty());
  CHECK(list({5, 1, 2}, 9, -4).empty());
  CHECK(list({5, 1, 2}, 9, 100) == Numbers{5, 1, 2});
  CHECK(list({-1, -1}, 9, 2).empty());
  InterpOptions reverse{.reverse_selected = true};
  CHECK(list({5, 1, 5, 2}, {}, {}, reverse) == Numbers{2, 1, 5});
  CHECK(list({5, 1, 5, 2}, {}, {}, reverse, " {ordered = true}") == Numbers{5, 1, 2});
}

TEST_CASE("a selected row beyond its tensor selects nothing", "[interp]") {
  Run run(visits(R"(%rows = tensor {name = "rows"} : tensor i32[2, 3])",
                 R"(%three = const {value = 3} : i32
        %row = slice %rows, %three, %c0 : view global i32[1, 3]
        selected %row)"));
  run.tensor("rows", I32, {2, 3}, {0, 1, 2, 0, 1, 2});
  CHECK(visited(run).empty());
}

TEST_CASE("launches: order, block indices, empty and negative grids", "[interp]") {
  Run run(R"(kernel @test {
    %x = dim {name = "x"} : i32
    %y = dim {name = "y"} : i32
    %less = param {name = "less"} : i32
    %gx = sub %x, %less : i32
    %out = tensor {name = "out", role = inout} : tensor i32[16, 2]
    %n = tensor {name = "n", role = inout} : tensor i32[]
    launch %gx, %y do |%bx: i32, %by: i32| {
      %zero = const {value = 0} : i32
      %one = const {value = 1} : i32
      %i = load %n : i32
      store %bx, %out, %i, %zero
      store %by, %out, %i, %one
      %j = add %i, %one : i32
      store %j, %n
    }
  })");
  auto blocks = [&](int64_t x, int64_t y, int64_t less, bool reverse = false) {
    run.tensor("out", I32, {16, 2}).tensor("n", I32, {}).dim("x", x).dim("y", y);
    run.param("less", Scalar::of_int(I32, less));
    run({.reverse_blocks = reverse});
    Numbers out = run.values("out");
    out.resize(2 * static_cast<size_t>(run.values("n")[0]));
    return out;
  };
  CHECK(blocks(2, 2, 0) == Numbers{0, 0, 1, 0, 0, 1, 1, 1});
  CHECK(blocks(2, 2, 0, true) == Numbers{1, 1, 0, 1, 1, 0, 0, 0});
  CHECK(blocks(0, 2, 0).empty());
  CHECK_THROWS_WITH(blocks(1, 2, 3), Contains("test.tile:8") && Contains("got -2 on axis 0"));
}

TEST_CASE("copy: edges, pad, conversion", "[interp]") {
  Run run(one_block(R"(%at = param {name = "at"} : i32
    %to = param {name = "to"} : i32
    %x = tensor {name = "x"} : tensor f32[3, 4]
    %o = tensor {name = "o", role = output} : tensor i8[2, 1, 5])",
                    R"(%t = alloc : shared f32[2, 5]
    %from = slice %x, %at, %at : view global f32[2, 5]
    copy %from, %t {pad = -7.0}
    %into = slice %o, %to, %c0, %to : view global i8[2, 1, 5]
    copy %t, %into)"));
  auto copied = [&](int at, int to) {
    run.param("at", Scalar::of_int(I32, at)).param("to", Scalar::of_int(I32, to));
    run.tensor("x", F32, {3, 4}, {1.5, -2.5, 300, 4, 5, 6, 7, 8, 9, 10, 11, 12});
    run.tensor("o", I8, {2, 1, 5}, Numbers(10, 99));
    return run().values("o");
  };
  CHECK(copied(0, 0) == Numbers{1, -2, 127, 4, -7, 5, 6, 7, 8, -7});
  CHECK(copied(2, 0) == Numbers{11, 12, -7, -7, -7, -7, -7, -7, -7, -7});
  CHECK(copied(-1, 0) == Numbers{-7, -7, -7, -7, -7, -7, 1, -2, 127, 4});
  CHECK(copied(2147483647, 0) == Numbers(10, -7));
  CHECK(copied(0, 1) == Numbers{99, 99, 99, 99, 99, 99, 1, -2, 127, 4});
  CHECK(copied(1, -1) == Numbers{11, 12, -7, -7, 99, 99, 99, 99, 99, 99});
  CHECK(copied(0, 5) == Numbers(10, 99));
}

TEST_CASE("a slice of a slice does not see past the outer one", "[interp]") {
  Run run(one_block(R"(%x = tensor {name = "x", role = inout} : tensor i32[8]
    %o = tensor {name = "o", role = output} : tensor i32[4]
    %o2 = tensor {name = "o2", role = output} : tensor i32[2])",
                    R"(%two = const {value = 2} : i32
    %outer = slice %x, %two : view global i32[3]
    %inner = slice %outer, %two : view global i32[4]
    copy %inner, %o {pad = -1.0}
    %nine = const {value = 9} : i32
    fill %nine, %inner
    %rest = slice %outer, %c1 : view global i32[?]
    %beyond = load %rest, %two : i32
    store %beyond, %x, %c0
    %back = const {value = -1} : i32
    %before = slice %outer, %back : view global i32[2]
    copy %before, %o2 {pad = -1.0})"));
  run.tensor("x", I32, {8}, {10, 11, 12, 13, 14, 15, 16, 17}).tensor("o", I32, {4});
  run.tensor("o2", I32, {2})();
  CHECK(run.values("o") == Numbers{14, -1, -1, -1});
  CHECK(run.values("o2") == Numbers{-1, 12});
  CHECK(run.values("x") == Numbers{0, 11, 12, 13, 9, 15, 16, 17});
}

TEST_CASE("loads and stores outside the extents", "[interp]") {
  Run run(one_block(R"(%i = param {name = "i"} : i32
    %x = tensor {name = "x", role = inout} : tensor f16[3])",
                    R"(%v = load %x, %i : f16
    %one16 = const {value = 1.0} : f16
    %w = add %v, %one16 : f16
    store %w, %x, %i
    %t = alloc : shared f16[3]
    %u = load %t, %i : f16
    store %u, %t, %i)"));
  for (int i : {-1, 3, 1000000}) {
    run.tensor("x", F16, {3}, {1, 2, 3}).param("i", Scalar::of_int(I32, i));
    CHECK(run().values("x") == Numbers{1, 2, 3});
  }
  run.param("i", Scalar::of_int(I32, 1));
  CHECK_THAT(run.error(), Contains("load reads element [1] of shared f16[3]"));
}

TEST_CASE("tensors of any strides, of rank 0, empty, and bool bytes", "[interp]") {
  Run run(one_block(R"(%n = dim {name = "n"} : i32
    %x = tensor %n {name = "x"} : tensor i32[?, 2]
    %b = tensor {name = "b"} : tensor bool[2]
    %s = tensor {name = "s"} : tensor i32[]
    %o = tensor {name = "o", role = output} : tensor i32[2, 2]
    %e = tensor %n {name = "e", role = output} : tensor i32[0, ?])",
                    R"(%part = slice %x, %c0, %c0 : view global i32[2, 2]
    copy %part, %o
    %flag = load %b, %c1 : bool
    %yes = load %s : i32
    %chosen = select %flag, %yes, %c0 : i32
    store %chosen, %o, %c0, %c0
    %view = slice %e, %c0, %c0 : view global i32[2, 2]
    fill %yes, %view)"));
  int32_t x[] = {1, 2, 3, 4, 5, 6};
  uint8_t b[] = {0, 0x80};
  run.tensor("s", I32, {}, {42}).tensor("o", I32, {2, 2}).dim("n", 2);
  run.bindings.tensors["b"] = Memory::contiguous(b, Bool, {2});
  run.bindings.tensors["e"] = Memory::contiguous(nullptr, I32, {0, 2});
  run.bindings.tensors["x"] = {x + 4, I32, {2, 2}, {-4, 1}};
  CHECK(run().values("o") == Numbers{42, 6, 1, 2});
  run.bindings.tensors["x"] = {x + 2, I32, {2, 2}, {0, 1}};
  CHECK(run().values("o") == Numbers{42, 4, 3, 4});
}

TEST_CASE("elements that were never written", "[interp]") {
  auto failure = [](const std::string& body) {
    Run run(one_block(R"(%x = tensor {name = "x"} : tensor f32[4]
      %o = tensor {name = "o", role = output} : tensor f32[4])",
                      body));
    return run.tensor("x", F32, {4}).tensor("o", F32, {4}).error();
  };
  CHECK_THAT(failure("%t = alloc : fragment f32[4]\ncopy %t, %o"),
             Contains("9: copy reads element [0] of fragment f32[4], which was never written"));
  // A store beyond the end writes nothing; a partial copy leaves the rest undefined.
  CHECK_THAT(failure(R"(%t = alloc : shared f32[2, 4]
    %row = slice %t, %c1, %c0 : view shared f32[1, 4]
    copy %x, %row
    copy %row, %o
    %other = slice %t, %c0, %c0 : view shared f32[1, 4]
    copy %other, %o)"),
             Contains("13: copy reads element [0, 0] of shared f32[2, 4]"));
  CHECK_THAT(failure(R"(%c2 = const {value = 2} : i32
    for %c0, %c2, %c1 do |%i: i32| {
      %t = alloc : fragment f32[4]
      %first = compare %i, %c0 {kind = eq} : bool
      if %first do {
        copy %x, %t
      }
      copy %t, %o
    })"),
             Contains("copy reads element [0] of fragment f32[4]"));
  CHECK_THAT(failure(R"(%a = alloc : shared f32[2, 2]
    %c = alloc : fragment f32[2, 2]
    %z = const {value = 0.0} : f32
    fill %z, %a
    %b = alloc : shared f32[2, 2]
    fill %z, %b
    gemm %a, %b, %c)"),
             Contains("14: gemm reads element [0, 0] of fragment f32[2, 2]"));
  CHECK_THAT(failure(R"(%a = alloc : fragment f32[2, 2]
    %m = alloc : fragment f32[2]
    %z = const {value = 0.0} : f32
    fill %z, %a
    reduce %a, %m {kind = max, dim = 1, clear = false})"),
             Contains("12: reduce reads element [0] of fragment f32[2]"));
}

TEST_CASE("races between the iterations of a parallel", "[interp]") {
  auto failure = [](const std::string& body) {
    Run run(one_block(R"(%x = tensor {name = "x", role = inout} : tensor i32[8]
      %unused = const {value = 0} : i32)",
                      "%s = alloc : shared i32[8]\nfill %c0, %s\n"
                      "parallel {extents = [2, 4]} do |%i: i32, %j: i32| {\n" +
                          body + "\n}"));
    return run.tensor("x", I32, {8}).error();
  };
  CHECK_THAT(failure("store %i, %s, %j"),
             Contains("11: parallel: iteration [1, 0] writes element [0] of shared i32[8], which "
                      "iteration [0, 0] writes"));
  CHECK_THAT(failure("store %i, %x, %j"), Contains("tensor i32[8], which iteration [0, 0] writes"));
  const std::string flat =
      "%c4 = const {value = 4} : i32\n%r = mul %i, %c4 : i32\n"
      "%k = add %r, %j : i32\n";
  CHECK(failure(flat + "%v = load %s, %k : i32\n%w = add %v, %k : i32\nstore %w, %s, %k") ==
        "no error");
  CHECK_THAT(failure(flat + "%n = add %k, %c1 : i32\n%v = load %s, %n : i32\nstore %v, %s, %k"),
             Contains("iteration [0, 1] writes element [1]") && Contains("iteration [0, 0] reads"));
  CHECK_THAT(failure(flat + "%n = sub %k, %c1 : i32\n%v = load %s, %n : i32\nstore %v, %s, %k"),
             Contains("iteration [0, 1] reads element [0]") && Contains("iteration [0, 0] writes"));
  // Everybody reads element 7; its own iteration reads it last, then writes it.
  const std::string c7 = "%c7 = const {value = 7} : i32\n";
  CHECK_THAT(failure(flat + c7 + "%v = load %x, %c7 : i32\nstore %v, %x, %k"),
             Contains("iteration [1, 3] writes") && Contains("another iteration reads"));
  // Reads beyond the end touch nothing.
  CHECK(failure(flat + "%n = add %k, %c4 : i32\n%n2 = add %n, %c4 : i32\n"
                       "%v = load %s, %n2 : i32\nstore %v, %s, %k") == "no error");
}

TEST_CASE("workspaces are made by the launch, poisoned, and shared by launches", "[interp]") {
  Run run(R"(kernel @test {
    %n = dim {name = "n"} : i32
    %w = tensor %n {name = "w", role = workspace} : tensor i32[?]
    %o = tensor %n {name = "o", role = output} : tensor i32[?]
    %one = const {value = 1} : i32
    launch %one do |%b: i32| {
      %v = const {value = 5} : i32
      store %v, %w, %b
    }
    launch %n do |%b: i32| {
      %v = load %w, %b : i32
      store %v, %o, %b
    }
  })");
  run.dim("n", 3).tensor("o", I32, {3});
  CHECK(run().values("o") == Numbers{5, -1, -1});
}

TEST_CASE("bindings that are missing or do not fit", "[interp]") {
  auto run = [] {
    return Run(R"(kernel @test {
    %n = dim {name = "n"} : i32
    %p = param {name = "p"} : f32
    %x = tensor %n {name = "x"} : tensor f32[?, 2]
  })");
  };
  auto fit = [](Run one) {
    one.tensor("x", F32, {3, 2}).dim("n", 3).param("p", Scalar::of_float(F32, 1));
    return one;
  };
  CHECK(fit(run()).error() == "no error");
  CHECK(run().error() == "2: dim 'n' is not bound");
  CHECK(run().dim("n", -1).error() == "2: dim 'n': expected 0 … 2147483647, got -1");
  CHECK(run().dim("n", 3).error() == "3: param 'p' is not bound: expected f32");
  CHECK(fit(run()).param("p", Scalar::of_int(I32, 1)).error() ==
        "3: param 'p': expected f32, got i32");
  CHECK(run().dim("n", 3).param("p", Scalar::of_float(F32, 1)).error() ==
        "4: tensor 'x' is not bound: expected f32 of shape [3, 2]");
  CHECK(fit(run()).tensor("x", F16, {3, 2}).error() == "4: tensor 'x': expected f32, got f16");
  CHECK(fit(run()).tensor("x", F32, {2, 2}).error() ==
        "4: tensor 'x': expected shape [3, 2], got [2, 2]");
}

TEST_CASE("sizes that no machine has", "[interp]") {
  Run run(R"(kernel @test {
    %n = dim {name = "n"} : i32
    %w = tensor %n, %n {name = "w", role = workspace} : tensor f64[?, ?, 4]
    launch %n, %n do |%x: i32, %y: i32| {}
  })");
  CHECK_THAT(run.dim("n", 1000000000).error(), Contains("3: tensor 'w': expected at most"));
  CHECK(run.dim("n", 0).error() == "no error");
  Run grid(
      "kernel @test {\n%n = dim {name = \"n\"} : i32\n"
      "launch %n, %n do |%x: i32, %y: i32| {}\n}");
  CHECK(grid.dim("n", 100000).error() ==
        "3: launch: expected at most 2147483647 blocks, got 100000 x 100000 x 1");
}

TEST_CASE("the top level computes shapes and grids", "[interp]") {
  Kernel kernel = parse(R"(kernel @test {
    %n = dim {name = "n"} : i32
    %c = const {value = 64} : i32
    %up = const {value = 63} : i32
    %m = add %n, %up : i32
    %blocks = floordiv %m, %c : i32
    %w = tensor %blocks, %n {name = "w", role = workspace} : tensor f32[?, 3, ?]
    launch %blocks do |%b: i32| {}
  })");
  verify(kernel);
  TopLevel top(kernel, {{"n", 100}}, {});
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::FloorDiv) CHECK(top.scalar(op.result).i == 2);
    if (op.code == OpCode::Tensor) CHECK(top.shape(op) == Shape{2, 3, 100});
    if (op.code == OpCode::Launch) CHECK(top.grid(op) == std::vector<int64_t>{2, 1, 1});
  }
}
