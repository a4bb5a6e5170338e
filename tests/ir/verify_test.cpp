// One small program a rule: each breaks it and expects the sentence at the line of the op.
// Interface, structure, fragments, scalars and form; verify_tile_test.cpp has storage and tile ops.
#include <tuple>

#include "ir/builder.h"
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;

static const std::string kOwned =
    "a fragment is owned by the loop's threads: index it by the loop's own indices; go through a "
    "shared tile for anything else";

TEST_CASE("interface", "[verify]") {
  check_all({
      {"tensor: the name is empty", "a name to bind it by",
       "kernel @k {\n%x = tensor {name = \"\"} : tensor f32[2]  // here\n}"},
      {"param: the name 'n' is taken", "dims, params and tensors of a kernel need different names",
       "kernel @k {\n%n = dim {name = \"n\"} : i32\n%p = param {name = \"n\"} : f32  // here\n}"},
      {"dim: expected i32, got i64", "dims are i32; a param may be of any dtype",
       "kernel @k {\n%n = dim {name = \"n\"} : i64  // here\n}"},
      {"tensor: expected 2 extents, one for each ? of tensor f32[?, 2, ?], got 1",
       "dims or arithmetic on them, in the order of the ?",
       "kernel @k {\n%n = dim {name = \"n\"} : i32\n"
       "%x = tensor %n {name = \"x\"} : tensor f32[?, 2, ?]  // here\n}"},
      {"tensor: 'extent' 0: expected i32, got f32", "cast it to i32",
       "kernel @k {\n%n = param {name = \"n\"} : f32\n"
       "%x = tensor %n {name = \"x\"} : tensor f32[?]  // here\n}"},
      {"launch: expected 1 to 3 extents, got 0",
       "make one extent of several, and take its index apart with / and %",
       "kernel @k {\nlaunch do {}  // here\n}"},
      {"launch: region arguments: expected 2, got 1", "one index an axis, an axis a loop",
       "kernel @k {\n%n = dim {name = \"n\"} : i32\nlaunch %n, %n do |%b: i32| {}  // here\n}"},
      {"launch: region argument: expected i32, got i64", "indices are i32",
       "kernel @k {\n%n = dim {name = \"n\"} : i32\nlaunch %n do |%b: i64| {}  // here\n}"},
  });
}

TEST_CASE("places", "[verify]") {
  check_all({
      {"launch: stands inside a launch; expected the top level of the kernel",
       "launches of a kernel follow each other", inside("launch %n do |%b: i32| {}  // here")},
      {"dim: stands inside a launch; expected the top level of the kernel", "",
       inside("%d = dim {name = \"d\"} : i32  // here")},
      {"alloc: stands outside a launch", "move it into the launch",
       "kernel @k {\n%t = alloc : shared f32[2]  // here\n}"},
      {"for: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
       "move it out of the parallel, or repeat what is inside with a C++ loop over C++ numbers",
       in_parallel("for %c0, %c1, %c1 do |%k: i32| {}  // here")},
      {"if: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
       "use select for a condition",
       in_parallel("%q = compare %i, %j {kind = lt} : bool\nif %q do {}  // here")},
      {"parallel: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
       "move it out of the parallel",
       in_parallel("parallel {extents = [2]} do |%k: i32| {}  // here")},
      {"fill: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
       "move it out of the parallel", in_parallel("fill %z, %s  // here")},
  });
}

TEST_CASE("roles of tensors", "[verify]") {
  check_all({
      {"store: writes 'x', which is an input", "declare it output, inout or workspace",
       inside("%h = const {value = 1.0} : f16\nstore %h, %x, %c0, %c0  // here")},
      {"copy: writes 'x', which is an input", "declare it output, inout or workspace",
       tiles("%to = slice %x, %c0, %c0 : view global f16[64, 64]\n"
             "%to2 = slice %to, %c0, %c0 : view global f16[64, 64]\ncopy %p, %to2  // here")},
      {"fill: writes 'mask', which is an input", "declare it output, inout or workspace",
       inside("%t = const {value = 1} : bool\nfill %t, %mask  // here")},
      {"load: reads 'o', which is an output", "declare it inout or workspace",
       inside("%v = load %o, %c0, %c0 : f32  // here")},
      {"copy: reads 'o', which is an output", "declare it inout or workspace",
       tiles("%from = slice %o, %c0, %c0 : view global f32[64, 64]\ncopy %from, %c  // here")},
  });
}

TEST_CASE("loops and branches", "[verify]") {
  check_all({
      {"for: 'end': expected i32, got f32", "cast it to i32",
       inside("for %c0, %scale, %c1 do |%k: i32| {}  // here")},
      {"for: expected a step above 0, got 0", "to count down, index with end - 1 - i",
       inside("for %c0, %c1, %c0 do |%k: i32| {}  // here")},
      {"for: unroll needs constant bounds; 'end' is known only when the kernel runs", "use serial",
       inside("for %c0, %n, %c1 {kind = unroll} do |%k: i32| {}  // here")},
      {"for: stages: expected 0 or more, got -1",
       "how many rounds ahead copies are fetched, 2 or 3; 0 and 1: not ahead",
       inside("for %c0, %n, %c1 {stages = -1} do |%k: i32| {}  // here")},
      {"for: region arguments: expected 1, got 2", "one index an axis, an axis a loop",
       inside("for %c0, %n, %c1 do |%k: i32, %j: i32| {}  // here")},
      {"if: condition: expected bool, got i32", "compare it with something",
       inside("if %n do {}  // here")},
      {"if: region arguments: expected 0, got 1", "one index an axis, an axis a loop",
       inside("%q = compare %n, %n {kind = eq} : bool\nif %q do |%k: i32| {}  // here")},
      {"parallel: expected extents of 1 or more, got [4, 0]",
       "leave the loop out where there is nothing to do",
       inside("parallel {extents = [4, 0]} do |%i: i32, %j: i32| {}  // here")},
      {"parallel: expected at most 2147483648 points, got [65536, 65536]",
       "a parallel over a tile, in a loop over tiles",
       inside("parallel {extents = [65536, 65536]} do |%i: i32, %j: i32| {}  // here")},
      {"parallel: region arguments: expected 2, got 1", "one index an axis, an axis a loop",
       inside("parallel {extents = [4, 4]} do |%i: i32| {}  // here")},
  });
}

TEST_CASE("selected", "[verify]") {
  check_all({
      {"selected: expected a row with one axis that is not 1, got tensor bool[4, 4]",
       "slice it so that the other axes have extent 1",
       inside("selected %mask do |%k: i32| {}  // here")},
      {"selected: expected a row of bool or i8 (a mask) or i32 (a list), got view global f16[1, "
       "64]",
       "copy it to a shared tile of one of these, which converts",
       inside("%row = slice %x, %c0, %c0 : view global f16[1, 64]\n"
              "selected %row do |%k: i32| {}  // here")},
      {"selected: expected a row in global or shared memory, got fragment bool[64]",
       "copy it to a shared tile first", tiles("selected %flags do |%k: i32| {}  // here")},
      {"selected: 'count' goes with a list of i32; the row is view global bool[1, 4]",
       "use 'limit' for a mask",
       inside("%row = slice %mask, %c0, %c0 : view global bool[1, 4]\n"
              "selected %row, %n, %n do |%k: i32| {}  // here")},
      {"selected: 'limit': expected i32, got f32", "cast it to i32",
       inside("%row = slice %mask, %c0, %c0 : view global bool[1, 4]\n"
              "selected %row, %scale do |%k: i32| {}  // here")},
      {"store: writes the row that the selected loop around it reads", "copy the row first",
       inside("%row = slice %list, %c0, %c0 : view global i32[1, 4]\n"
              "selected %row do |%k: i32| {\nstore %k, %list, %c1, %c1  // here\n}")},
  });
  accept(
      inside("%row = slice %list, %c0, %c0 : view global i32[1, 4]\n"
             "selected %row, %n, %n do |%k: i32| {}\n"
             "%one2 = slice %list, %c0, %c0 : view global i32[1, 1]\n"
             "selected %one2, _, %n do |%k: i32| {}"));
}

TEST_CASE("the law of fragments in a parallel", "[verify]") {
  check_all({
      {"load: axis 1 of fragment f32[8, 4] is not indexed by an index of the parallel",
       kOwned.c_str(), in_parallel("%e = load %f, %i, %c0 : f32  // here")},
      {"load: axis 0 of fragment f32[8] is not indexed by an index of the parallel", kOwned.c_str(),
       in_parallel("%k = add %i, %c1 : i32\n%e = load %r, %k : f32  // here")},
      {"load: axis 0 of fragment f32[8] is not indexed by an index of the parallel", kOwned.c_str(),
       in_parallel("%e = load %r, %bx : f32  // here")},
      {"load: fragment f32[8, 4] is indexed twice by the same index of the parallel",
       kOwned.c_str(), in_parallel("%e = load %f, %j, %j : f32  // here")},
      {"load: axis 1 of fragment f32[8, 1] is not indexed by an index of the parallel",
       kOwned.c_str(), in_parallel("%e = load %u, %i, %c1 : f32  // here")},
      {"store: axis 0 of fragment f32[8, 4] is indexed by an index of extent 4",
       "a fragment that is stored to has the loop's extents",
       in_parallel("store %z, %f, %j, %i  // here")},
      {"store: index 1 of the parallel does not index fragment f32[8], so its iterations would all "
       "write one element",
       "use reduce to combine elements", in_parallel("store %z, %r, %i  // here")},
      {"store: index 0 of the parallel does not index fragment f32[], so its iterations would all "
       "write one element",
       "use reduce to combine elements", in_parallel("store %z, %v  // here")},
      {"load: an element of fragment f32[64] outside a parallel", "use parallel, or a shared tile",
       tiles("%e = load %m, %c0 : f32  // here")},
      {"store: an element of fragment f32[64] outside a parallel", "use parallel, or a shared tile",
       tiles("store %scale, %m, %c0  // here")},
      {"load: an element of a slice of a fragment (view fragment f32[8])",
       "index the fragment itself",
       tiles("%part = slice %m, %c0 : view fragment f32[8]\n%e = load %part, %c0 : f32  // here")},
  });
  accept(in_parallel(R"(%a = load %f, %i, %j : f32
    %b = load %r, %i : f32
    %c = load %u, %i, %c0 : f32
    %d = load %v : f32
    %k = add %i, %j : i32
    %e = load %s, %k, %bx : f32
    store %a, %f, %i, %j
    store %e, %s, %i, %j
    %t = load %f, %j, %i : f32)"));
  // Indices of extent 1 may be left out of what is stored to.
  accept(
      inside("%f = alloc : fragment f32[8]\n%z = const {value = 0.0} : f32\n"
             "parallel {extents = [8, 1]} do |%i: i32, %j: i32| {\nstore %z, %f, %i\n}"));
}

TEST_CASE("scalars", "[verify]") {
  const std::string values =
      "%f = const {value = 1.0} : f32\n%h = const {value = 1.0} : f16\n%e = const {value = 1.0} : "
      "e4m3\n%t = const {value = 1} : bool\n%w = const {value = 1} : i64\n";
  auto scalar = [&](const std::string& op) { return inside(values + op + "  // here"); };
  check_all({
      {"add: operands differ: 'a' is f32, 'b' is f16", "cast one of them",
       scalar("%r = add %f, %h : f32")},
      {"add: the result: expected f32, got f16", "cast the result",
       scalar("%r = add %f, %f : f16")},
      {"add: expected numbers, got bool", "cast it", scalar("%r = add %t, %t : bool")},
      {"div: expected floats, got i32", "use floordiv, or cast to a float",
       scalar("%r = div %n, %n : i32")},
      {"floordiv: expected integers, got f32", "use div, or cast to an integer",
       scalar("%r = floordiv %f, %f : f32")},
      {"shl: expected integers, got bool", "cast it", scalar("%r = shl %t, %t : bool")},
      {"and: expected integers or bool, got f32", "cast it", scalar("%r = and %f, %f : f32")},
      {"fma: expected f32 or f64, got f16", "cast it", scalar("%r = fma %h, %h, %h : f16")},
      {"exp: expected f16, bf16, f32 or f64, got e4m3", "cast it", scalar("%r = exp %e : e4m3")},
      {"exp2: expected f16, bf16, f32 or f64, got i32", "cast it", scalar("%r = exp2 %n : i32")},
      {"compare: operands differ: 'a' is i32, 'b' is i64", "cast one of them",
       scalar("%r = compare %n, %w {kind = lt} : bool")},
      {"compare: the result: expected bool, got i32", "cast the result",
       scalar("%r = compare %n, %n {kind = lt} : i32")},
      {"select: condition: expected bool, got i32", "compare it with something",
       scalar("%r = select %n, %f, %f : f32")},
      {"select: operands differ: 'a' is f32, 'b' is f16", "cast one of them",
       scalar("%r = select %t, %f, %h : f32")},
      {"neg: 'a': expected a scalar, got tensor bool[4, 4]", "load an element of it",
       scalar("%r = neg %mask : bool")},
  });
  accept(inside(values + "%r = add %e, %e : e4m3\n%q = const {value = -inf} : f16\n"
                         "%s = const {value = nan} : e4m3\n%b = xor %t, %t : bool\n"
                         "%k = cast %t : f32\n%big = const {value = -1} : i64"));
}

// What the parser cannot express.
TEST_CASE("form", "[verify]") {
  Kernel kernel("form");
  Builder builder(kernel);
  builder.loc = {"form.cpp", 7};
  auto message = [&] {
    try {
      verify(kernel);
    } catch (const UserError& error) {
      CHECK(str(error.loc()) == "form.cpp:7");
      return error.message();
    }
    return std::string("verified");
  };
  Attrs attrs;
  SECTION("operands") {
    Value one = builder.constant(I32, 1);
    builder.emit(OpCode::Add, {one}, {}, Type::scalar(I32));
    CHECK(message() == "add: expected 2 operands, got 1");
  }
  SECTION("a required operand after an optional one") {
    OpId launch = builder.emit(OpCode::Launch, {builder.constant(I32, 1)});
    RegionId region = builder.add_region(launch);
    kernel.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(builder, region);
    Value acc = builder.alloc(Space::Fragment, F32, {2, 2});
    Value m = builder.alloc(Space::Fragment, F32, {2}),
          l = builder.alloc(Space::Fragment, F32, {2});
    builder.emit(OpCode::SoftmaxFinish, {acc, m, l, builder.alloc(Space::Fragment, F32, {2})});
    CHECK(message() == "softmax_finish: expected 5 operands, got 4");
  }
  SECTION("a missing operand") {
    Value one = builder.constant(I32, 1);
    builder.emit(OpCode::Add, {Value{}, one}, {}, Type::scalar(I32));
    CHECK(message() == "add: 'a' is missing");
  }
  SECTION("use before definition") {
    Value one = builder.constant(I32, 1);
    builder.binary(OpCode::Add, one, one);
    auto& ops = kernel.region(kernel.body).ops;
    std::swap(ops[0], ops[1]);
    CHECK(message() == "add: 'a' is used where it is not defined");
  }
  SECTION("use outside the defining region") {
    OpId launch = builder.emit(OpCode::Launch, {builder.constant(I32, 1)});
    RegionId region = builder.add_region(launch);
    Value block = kernel.add_argument(region, Type::scalar(I32));
    builder.unary(OpCode::Neg, block);
    CHECK(message() == "neg: 'a' is used where it is not defined");
  }
  SECTION("use after the defining region") {
    OpId launch = builder.emit(OpCode::Launch, {builder.constant(I32, 1)});
    RegionId region = builder.add_region(launch);
    kernel.add_argument(region, Type::scalar(I32));
    Value inner = Builder(kernel, region).constant(I32, 2);
    builder.unary(OpCode::Neg, inner);
    CHECK(message() == "neg: 'a' is used where it is not defined");
  }
  SECTION("unknown attribute") {
    attrs.set("colour", std::string("red"));
    builder.emit(OpCode::Add, {builder.constant(I32, 1), builder.constant(I32, 1)}, attrs,
                 Type::scalar(I32));
    CHECK(message() == "add: has no attribute 'colour'");
  }
  SECTION("missing attribute") {
    Value one = builder.constant(I32, 1);
    builder.emit(OpCode::Compare, {one, one}, {}, Type::scalar(Bool));
    CHECK(message() == "compare: attribute 'kind' is missing");
  }
  SECTION("wrong word") {
    Value one = builder.constant(I32, 1);
    builder.compare("above", one, one);
    CHECK(message() ==
          "compare: attribute 'kind': expected one of eq, ne, lt, le, gt, ge, got "
          "'above'");
  }
  SECTION("wrong type of attribute") {
    attrs.set("kind", int64_t{3});
    Value one = builder.constant(I32, 1);
    builder.emit(OpCode::Compare, {one, one}, attrs, Type::scalar(Bool));
    CHECK(message() == "compare: attribute 'kind' has a value of the wrong type");
  }
  SECTION("missing result") {
    Value one = builder.constant(I32, 1);
    builder.emit(OpCode::Add, {one, one});
    CHECK(message() == "add: expected a result, got none");
  }
  SECTION("kind of result") {
    attrs.set("name", std::string("p"));
    builder.emit(OpCode::Param, {}, attrs, Type::tile(Space::Shared, F32, {2}));
    CHECK(message() == "param: the result: expected a scalar, got shared f32[2]");
  }
  SECTION("constants that their type does not hold") {
    for (auto [dtype, number, text] :
         {std::tuple{F16, AttrValue(0.1), "0.1 is not a value of f16"},
          std::tuple{E4M3, AttrValue(449.0), "449 is not a value of e4m3"},
          std::tuple{F32, AttrValue(int64_t{16777217}), "16777217 is not a value of f32"},
          std::tuple{U8, AttrValue(int64_t{300}), "300 is not a value of u8"},
          std::tuple{U32, AttrValue(int64_t{-1}), "-1 is not a value of u32"},
          std::tuple{Bool, AttrValue(int64_t{2}), "2 is not a value of bool"},
          std::tuple{I32, AttrValue(1.0), "expected an integer for i32, got 1"}}) {
      kernel.region(kernel.body).ops.clear();
      attrs.set("value", number);
      builder.emit(OpCode::Const, {}, attrs, Type::scalar(dtype));
      CHECK(message() == std::string("const: ") + text);
    }
  }
  SECTION("missing region") {
    builder.emit(OpCode::Launch, {builder.constant(I32, 1)});
    CHECK(message() == "launch: regions: expected 1, got 0");
  }
}
