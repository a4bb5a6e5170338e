// parallel, loads and stores at any index, control flow.
#include <catch2/catch.hpp>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded() {
  Check check;
  check.options.seed = random_seed();
  check.options.odd_strides = true;
  return check;
}

}  // namespace

TEST_CASE("boxes of every shape", "[parallel]") {
  for (Shape shape : {Shape{1}, {3}, {16}, {37}, {1, 1}, {5, 1}, {1, 9}, {7, 33}, {3, 1, 18, 1}}) {
    Program p("box");
    Value x = p.tensor("x", F16, shape), y = p.tensor("y", F32, shape, "output");
    p.launch([&] {
      Value tile = p.b.alloc(Space::Fragment, F16, shape);
      p.copy(x, tile);
      p.b.parallel(shape, [&](std::span<const Value> index) {
        std::vector<Value> at(index.begin(), index.end());
        Value sum = p.b.cast(p.b.load(tile, at), F32);
        for (size_t axis = 0; axis < at.size(); ++axis)
          sum = p.b.binary(OpCode::Add, p.b.binary(OpCode::Mul, sum, p.b.constant(F32, 3.0)),
                           p.b.cast(at[axis], F32));
        p.b.store(sum, y, at);
      });
    });
    INFO(str(shape));
    CHECK(check_program(p.kernel, seeded()) == "");
  }
}

TEST_CASE("broadcast, transposed, shifted and gathered elements", "[parallel]") {
  for (DType dtype : {F16, F32, F64, I8, I32, Bool}) {
    Program p("access");
    Value x = p.tensor("x", dtype, {20, 37}), list = p.tensor("list", I32, {37});
    Value y = p.tensor("y", dtype, {20, 37}, "output"),
          t = p.tensor("t", dtype, {37, 20}, "output");
    Value w = p.tensor("w", dtype, {20, 37}, "inout");
    p.launch([&] {
      Value rows = p.b.alloc(Space::Fragment, dtype, {20}),
            shared = p.b.alloc(Space::Shared, dtype, {20, 37});
      p.copy(x, shared);
      p.copy(p.b.slice(x, {p.index(0), p.index(5)}, {20, 1}), rows);
      p.b.parallel({20, 37}, [&](std::span<const Value> at) {
        Value i = at[0], j = at[1];
        auto pick = [&](Value condition, Value a, Value b) { return p.b.select(condition, a, b); };
        Value row = p.b.load(rows, {i});
        // To the left and right of the row's ends: 0.
        Value left = p.b.load(shared, {i, p.b.binary(OpCode::Sub, j, p.index(3))});
        Value right = p.b.load(
            x, {p.b.binary(OpCode::Add, i, p.index(1)), p.b.binary(OpCode::Add, p.index(2), j)});
        // Any order, partly outside.
        Value any = p.b.load(shared, {i, p.b.load(list, {j})});
        Value odd = p.b.compare("eq", p.b.binary(OpCode::FloorMod, j, p.index(2)), p.index(1));
        Value low = p.b.compare("lt", i, p.index(9));
        p.b.store(pick(odd, pick(low, row, left), pick(low, right, any)), y, {i, j});
        p.b.store(p.b.load(shared, {i, j}), t, {j, i});
        p.b.store(any, w, {i, p.b.binary(OpCode::Sub, j, p.index(4))});
      });
    });
    Check check = seeded();
    check.options.low = -6;
    check.options.high = 50;
    INFO(name(dtype));
    CHECK(check_program(p.kernel, check) == "");
  }
}

TEST_CASE("index arithmetic that is not linear", "[parallel]") {
  Program p("index");
  Value x = p.tensor("x", F32, {100}), y = p.tensor("y", F32, {3, 50}, "output");
  p.launch([&] {
    p.b.parallel({50}, [&](std::span<const Value> at) {
      Value i = at[0];
      p.b.store(p.b.load(x, {p.b.binary(OpCode::Mul, i, p.index(2))}), y, {p.index(0), i});
      p.b.store(p.b.load(x, {p.b.binary(OpCode::Sub, p.index(60), i)}), y, {p.index(1), i});
      p.b.store(p.b.load(x, {p.b.binary(OpCode::FloorDiv, i, p.index(3))}), y, {p.index(2), i});
    });
  });
  CHECK(check_program(p.kernel, seeded()) == "");
}

TEST_CASE("scalar variables, branches and loops", "[parallel]") {
  const char* text = R"(kernel @control {
  %n = dim {name = "n"} : i32
  %scale = param {name = "scale"} : f16
  %on = param {name = "on"} : bool
  %x = tensor %n {name = "x"} : tensor i32[?]
  %y = tensor %n {name = "y", role = output} : tensor f64[?, 2]
  %two = const {value = 2} : i32
  %half = floordiv %n, %two : i32
  launch %n, %two do |%b: i32, %c: i32| {
    %zero = const {value = 0} : i32
    %step = load %x, %b : i32
    %sum = alloc : fragment f32[]
    %seen = alloc : fragment bool[]
    %f0 = const {value = 0.0} : f32
    %no = const {value = false} : bool
    store %f0, %sum
    store %no, %seen
    for %zero, %half, %step do |%i: i32| {
      %e = load %x, %i : i32
      %old = load %sum : f32
      %big = compare %e, %two {kind = gt} : bool
      if %big do {
        %f = cast %e : f32
        %new = add %old, %f : f32
        store %new, %sum
      } do {
        store %on, %seen
      }
    }
    %s = load %sum : f32
    %g = load %seen : bool
    %h = cast %scale : f32
    %t = mul %s, %h : f32
    %r = select %g, %t, %s : f32
    store %r, %y, %b, %c
  }
})";
  for (int64_t n : {0, 1, 40}) {
    Check check = seeded();
    check.dims["n"] = n;
    check.options.low = 1;
    check.options.high = 5;
    CHECK(check_program(text, check) == "");
  }
}

TEST_CASE("indices that reach just beyond the end", "[parallel]") {
  for (int64_t extent : {19, 20, 21}) {
    Program p("ends");
    Value x = p.tensor("x", F32, {extent}), y = p.tensor("y", F32, {extent}, "inout");
    Value z = p.tensor("z", F32, {20}, "output");
    p.launch([&] {
      RegionId region =
          p.b.add_region(p.b.emit(OpCode::For, {p.index(0), p.index(20), p.index(1)}));
      Value i = p.kernel.add_argument(region, Type::scalar(I32));
      Builder::Scope scope(p.b, region);
      Value before = p.b.binary(OpCode::Sub, i, p.index(1));
      p.b.store(p.b.binary(OpCode::Add, p.b.load(x, {i}), p.b.load(x, {before})), z, {i});
      p.b.store(p.b.load(x, {before}), y, {i});
    });
    INFO(extent);
    CHECK(check_program(p.kernel, seeded()) == "");
  }
}

TEST_CASE("several launches share a workspace", "[parallel]") {
  const char* text = R"(kernel @two {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f32[?]
  %w = tensor %n {name = "w", role = inout} : tensor f32[?]
  %y = tensor %n {name = "y", role = output} : tensor f32[?]
  launch %n do |%b: i32| {
    %a = load %x, %b : f32
    %c = add %a, %a : f32
    store %c, %w, %b
  }
  launch %n do |%b: i32| {
    %a = load %w, %b : f32
    %c = mul %a, %a : f32
    store %c, %y, %b
  }
})";
  CHECK(check_program(text, seeded()) == "");
}
