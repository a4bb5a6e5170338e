// What programs are recorded as.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "dsl/dsl.h"
#include "ir/canon.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "tests/dsl/programs.h"

namespace kiln {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}
bool has(const std::string& text, const std::string& part) {
  return count(text, part) > 0;
}

// The text of a kernel with one launch over {4}.
std::string traced(const std::function<void(const Expr& block)>& body) {
  return print(trace("kernel", [&] {
    auto [x, y, z] = launch({4});
    body(x);
  }));
}

// Lines of the user's file that ops carry; ops from anywhere else fail the test.
std::set<int> lines_of(const Kernel& kernel, std::string_view file) {
  std::set<int> lines;
  walk(kernel, kernel.body, [&](OpId id) {
    const Loc& loc = kernel.op(id).loc;
    CHECK(std::string_view(loc.file).ends_with(file));
    lines.insert(loc.line);
  });
  return lines;
}

TEST_CASE("the programs of the tests are traced, lines and all", "[trace]") {
  for (bool causal : {false, true}) {
    Kernel kernel = block_sparse_forward({.causal = causal});
    CHECK_NOTHROW(verify(kernel));
    lines_of(kernel, "programs.h");
    std::string text = print(kernel);
    CHECK(has(text, "selected "));
    CHECK(has(text, "softmax_step "));
    CHECK(has(text, "transpose_b = true"));
    CHECK(text.find("softmax_step ") < text.find("scale_rows "));
    CHECK(print(canonical(kernel)) == text);
  }
  lines_of(row_softmax(8, 32), "programs.h");
}

TEST_CASE("two traces of one program are one text", "[trace]") {
  CHECK(print(block_sparse_forward({})) == print(block_sparse_forward({})));
  CHECK(hash(row_softmax(8, 32)) == hash(row_softmax(8, 32)));
  CHECK(hash(row_softmax(8, 32)) != hash(row_softmax(16, 32)));
}

TEST_CASE("the order in which C++ evaluates operands does not show", "[trace]") {
  auto kernel = [](bool left_first) {
    return traced([&](const Expr& block) {
      Tile s = alloc_shared({4}, F32), t = alloc_shared({4}, F32);
      auto left = [&] { return s(block) * 2; };
      auto right = [&] { return exp(t(block)); };
      if (left_first) {
        auto a = left();
        auto b = right();
        s(block) = a + b;
      } else {
        auto b = right();
        auto a = left();
        s(block) = a + b;
      }
    });
  };
  CHECK(kernel(true) == kernel(false));
}

TEST_CASE("the text of a small kernel is the same with every compiler", "[trace]") {
  Kernel kernel = trace("axpy", {.fast_math = true}, [] {
    Dim n = dim("n");
    Expr a = param("a", F32);
    Tensor x = input("x", F16, {n}), y = inout("y", F32, {n});
    auto [bx, by, bz] = launch({ceildiv(n, 64)});
    for (auto i : parallel(64)) {
      auto at = bx * 64 + i;
      y(at) = a * x(at) + y(at);
    }
  });
  CHECK(print(kernel) == R"(kernel @axpy {fast_math = true} {
  %n = dim {name = "n"} : i32
  %a = param {name = "a"} : f32
  %x = tensor %n {name = "x"} : tensor f16[?]
  %y = tensor %n {name = "y", role = inout} : tensor f32[?]
  %const.0 = const {value = 63} : i32
  %add.0 = add %n, %const.0 : i32
  %const.1 = const {value = 64} : i32
  %floordiv.0 = floordiv %add.0, %const.1 : i32
  launch %floordiv.0 do |%bx: i32| {
    parallel {extents = [64]} do |%i: i32| {
      %const.2 = const {value = 64} : i32
      %mul.0 = mul %bx, %const.2 : i32
      %add.1 = add %mul.0, %i : i32
      %load.0 = load %x, %add.1 : f16
      %cast.0 = cast %load.0 : f32
      %mul.1 = mul %a, %cast.0 : f32
      %load.1 = load %y, %add.1 : f32
      %add.2 = add %mul.1, %load.1 : f32
      store %add.2, %y, %add.1
    }
  }
}
)");
}

TEST_CASE("every op carries the line it was written on", "[trace]") {
  int first = 0;
  Kernel kernel = trace("lines", [&] {
    first = Loc::here().line;
    launch({4});
    Tile t = alloc_shared({4}, F32);
    Var v = 1.5;
    for (auto i : serial(4)) {
      v += 2;
      v = max(v, 1) - t(i);
      t(i) *= v;
    }
    when(v > 3 && !(v > 4), [&] {
      clear(t);
      t(1) = -v;
    });
  });
  std::set<int> expected;
  for (int after : {1, 2, 3, 4, 5, 6, 7, 9, 10, 11}) expected.insert(first + after);
  CHECK(lines_of(kernel, "trace_test.cpp") == expected);
}

TEST_CASE("elements are read where they are named, and only if that is used", "[trace]") {
  std::string text = traced([](const Expr&) {
    Tile s = alloc_shared({4}, F32);
    s(0) = 1;
    auto unused = s(1) * 2;
    auto old = s(0);
    s(0) = 2;
    s(1) = old;
    s(2) += 3;
  });
  CHECK(count(text, "load ") == 2);
  CHECK(count(text, "store ") == 4);
  size_t load = text.find("load ");
  CHECK(count(text.substr(0, load), "store ") == 1);
}

TEST_CASE("variables", "[trace]") {
  std::string text = traced([](const Expr&) {
    Tile t = alloc_shared({4}, F32);
    Var x = 0;
    Var y(F32, 1);
    Var copied = x;
    x = x + 1;
    y = 0.5;
    t(x) = y;
    t(copied) = 0;
  });
  CHECK(count(text, "fragment i32[]") == 2);
  CHECK(count(text, "fragment f32[]") == 1);
}

TEST_CASE("numbers take the dtype of what they meet", "[trace]") {
  std::string text = traced([](const Expr& block) {
    Tile h = alloc_shared({4}, F16), w = alloc_shared({4}, I64);
    h(block) = h(block) * 0.1 + 1;
    w(block) = w(block) / 3 + block;
    w(0) = select(block < 3, 7, w(1));
  });
  CHECK(has(text, "const {value = 0.0999755859375} : f16"));
  CHECK(has(text, "const {value = 1.0} : f16"));
  CHECK(has(text, "const {value = 3} : i64"));
  CHECK(has(text, "cast %bx : i64"));
  CHECK(has(text, "const {value = 7} : i64"));
}

TEST_CASE("C++ conditions specialise, C++ numbers stay C++", "[trace]") {
  std::string text = traced([](const Expr& block) {
    Tile t = alloc_shared({4}, F32);
    when(
        true, [&] { t(0) = 1; }, [&] { t(1) = 1; });
    when(false, [&] { t(2) = 1; });
    t(3) = select(false, t(0), 4);
    when(true || block < 1, [&] { t(3) = 2; });
  });
  CHECK(count(text, "if ") == 1);  // of a constant: simplify decides it
  CHECK(!has(text, "select"));
  CHECK(!has(text, "or "));
  CHECK(count(text, "store ") == 3);
  static_assert(ceildiv(7, 2) == 4 && floordiv(-7, 2) == -4 && floormod(-7, 2) == 1);
  static_assert(ceildiv(-7, 2) == -3 && max(1, 2.5) == 2.5 && min(3, 2) == 2);
  CHECK(exp2(3.0) == 8.0);
}

TEST_CASE("branches and loops", "[trace]") {
  std::string text = traced([](const Expr& block) {
    Tile box = alloc_shared({2, 3, 4}, I32);
    Var n = 0;
    when(
        block == 0, [&] { n = 1; }, [&] { n = 2; });
    for (auto i : serial(1, n, 2)) n += i;
    for (auto i : unroll(4)) n += i;
    for (auto i : pipelined(2, 8, {.stages = 3})) n += i;
    for (auto i : pipelined(8, {.schedule = Schedule::Overlap})) n += i;
    Tile row = alloc_shared({5}, Bool);
    for (auto i : selected(row, {.schedule = Schedule::Serial})) n += i;
    for (auto [i, j, k] : parallel(2, 3, 4)) {
      box(i, j, k) = i + j + k;
    }
  });
  CHECK(has(text, "} do {"));
  CHECK(has(text, "{kind = unroll}"));
  CHECK(has(text, "{kind = pipelined, stages = 3}"));
  CHECK(has(text, "{kind = pipelined, stages = 2, schedule = overlap}"));
  CHECK(has(text, "{stages = 2, schedule = serial}"));
  CHECK(has(text, "parallel {extents = [2, 3, 4]}"));
  CHECK(count(text, "for ") == 4);
}

TEST_CASE("launches follow one another", "[trace]") {
  std::string text = print(trace("two", [] {
    Dim n = dim("n");
    Tensor w = workspace("w", F32, {n, ceildiv(n, 2)});
    auto [x, y, z] = launch({n, 3});
    w(x, y) = 1;
    auto [i, j, k] = launch({ceildiv(n, 32) * 2, 1, n + 1});
    w(i, j) = w(k, 0) + 1;
  }));
  CHECK(count(text, "launch ") == 2);
  CHECK(has(text, "role = workspace"));
}

TEST_CASE("a trace inside a trace", "[trace]") {
  Kernel inner;
  Kernel outer = trace("outer", [&] {
    auto [x, y, z] = launch({2});
    Tile t = alloc_shared({4}, F32);
    inner = trace("inner", [] { launch({3}); });
    t(x) = 1;
  });
  CHECK(has(print(outer), "store "));
  CHECK(!has(print(inner), "store "));
}

}  // namespace
}  // namespace kiln
