// Every sentence that a wrong call can give, and the calls that are right.
#include <catch2/catch.hpp>
#include <limits>

#include "ir/parse.h"
#include "runtime/launch.h"
#include "tests/runtime/support.h"

using namespace kiln;
using kiln::test::error_of;

namespace {

Signature signature_of(const Kernel& kernel) {
  return Signature(std::make_shared<Kernel>(kernel));
}

// A right call of attention_like_kernel, to be made wrong.
struct Call {
  Array q{F16, {2, 100, 64}}, k{F16, {2, 100, 64}}, mask{Bool, {2, 2}}, o{F16, {2, 100, 64}};
  Signature signature = signature_of(test::attention_like_kernel());
  Arguments arguments;

  Call() {
    arguments.tensor("q", q).tensor("k", k).tensor("mask", mask).tensor("o", o);
    arguments.dim("limit", 5).param("scale", 0.125).param("first", 3);
  }
  Bindings bind() { return kiln::bind(signature, arguments); }
  std::string error() {
    return error_of([&] { bind(); });
  }
  std::string error_with(const std::string& name, const Memory& memory) {
    arguments.tensor(name, memory);
    return error();
  }
};

Memory moved(Memory memory, int64_t bytes) {
  memory.data = static_cast<char*>(memory.data) + bytes;
  return memory;
}

}  // namespace

TEST_CASE("a right call binds dims, params and tensors") {
  Call call;
  Bindings bound = call.bind();
  CHECK(bound.dims == std::map<std::string, int64_t>{{"heads", 2}, {"limit", 5}, {"seq", 100}});
  CHECK(bound.params.at("scale").dtype == F32);
  CHECK(bound.params.at("scale").f == 0.125);
  CHECK(bound.params.at("first").dtype == I32);
  CHECK(bound.params.at("first").i == 3);
  CHECK(bound.tensors.at("q").data == call.q.data());
  call.arguments.dim("seq", 100);
  CHECK(call.error() == "no error");
}

TEST_CASE("the interface as text") {
  Call call;
  CHECK(call.signature.text() ==
        "input q f16 [heads, seq, 64]; input k f16 [heads, seq, 64]; "
        "input mask bool [heads, ceildiv(seq, 64)]; output o f16 [heads, seq, 64]; "
        "dim heads; dim seq; dim limit; param scale f32; param first i32");
}

TEST_CASE("names") {
  Call call;
  std::string takes = " | it takes " + call.signature.text();
  Arguments right = call.arguments;
  call.arguments.tensor("qq", call.q);
  CHECK(call.error() == "attend: there is no tensor 'qq'" + takes);
  call.arguments = right;
  call.arguments.dim("batch", 3);
  CHECK(call.error() == "attend: there is no dim 'batch'" + takes);
  call.arguments = right;
  call.arguments.param("temperature", 3);
  CHECK(call.error() == "attend: there is no param 'temperature'" + takes);
  call.arguments = Arguments().tensor("k", call.k).tensor("o", call.o).dim("limit", 1);
  CHECK(call.error() == "attend: missing q, mask, scale, first" + takes);
}

TEST_CASE("dtype, rank and static extents") {
  Call call;
  Array wrong(F32, {1, 2, 3}), flat(F16, {200, 64}), narrow(F16, {2, 100, 32});
  CHECK(
      call.error_with("q", wrong.view()) ==
      "attend: q: expected f16 [heads, seq, 64], got f32 [1, 2, 3] | pass a copy converted to f16");
  CHECK(call.error_with("q", flat.view()) ==
        "attend: q: expected f16 [heads, seq, 64], got f16 [200, 64] | a view of it with 3 axes");
  CHECK(call.error_with("q", narrow.view()) ==
        "attend: q: expected f16 [heads, seq, 64], got f16 [2, 100, 32]: axis 2 must be 64 | the "
        "kernel is built for that extent: build it for another, or pad");
  Array bytes(I8, {2, 2});
  call = Call();
  CHECK(call.error_with("mask", bytes.view()) ==
        "attend: mask: expected bool [heads, ceildiv(seq, 64)], got i8 [2, 2] | pass a copy "
        "converted to bool");
}

TEST_CASE("dims agree wherever they appear") {
  Call call;
  Array other(F16, {2, 99, 64});
  CHECK(call.error_with("k", other.view()) ==
        "attend: k: expected f16 [heads, seq, 64], got f16 [2, 99, 64]: "
        "seq is 100 in q (axis 1) but 99 in k (axis 1) | tensors that agree in seq");
  call = Call();
  call.arguments.dim("heads", 3);
  CHECK(call.error() ==
        "attend: heads is given as 3 but 2 in q (axis 0) | leave it out: the tensors tell it");
  call = Call();
  call.arguments = Arguments().param("scale", 1.0).param("first", 1);
  call.arguments.tensor("q", call.q).tensor("k", call.k).tensor("o", call.o);
  call.arguments.tensor("mask", call.mask);
  CHECK(call.error() == "attend: missing dim limit | give it: no given tensor has it as an extent");
}

TEST_CASE("extents and dims out of range") {
  Call call;
  Memory negative = call.q.view();
  negative.shape[1] = -1;
  CHECK(call.error_with("q", negative) ==
        "attend: q: expected f16 [heads, seq, 64], got f16 [2, -1, 64]: axis 1 is negative | "
        "extents are 0 or more");
  Memory huge = call.q.view();
  huge.shape[1] = int64_t{1} << 31;
  CHECK(call.error_with("q", huge) ==
        "attend: q: expected f16 [heads, seq, 64], got f16 [2, 2147483648, 64]: "
        "axis 1 is longer than 2147483647 | several calls, each with a part of it");
  call = Call();
  call.arguments.dim("limit", -4);
  CHECK(call.error() ==
        "attend: limit: expected a dim from 0 to 2147483647, got -4 | sizes are i32");
  call.arguments.dim("limit", int64_t{1} << 31);
  CHECK(call.error() ==
        "attend: limit: expected a dim from 0 to 2147483647, got 2147483648 | sizes are i32");
}

TEST_CASE("computed extents") {
  Call call;
  Array wide(Bool, {2, 3});
  CHECK(call.error_with("mask", wide.view()) ==
        "attend: mask: expected bool [heads, ceildiv(seq, 64)], got bool [2, 3]: "
        "axis 1 must be ceildiv(seq, 64) = 2 | the extent that the other arguments give it");
}

TEST_CASE("strides, alignment and null") {
  Call call;
  Memory q = call.q.view();
  q.strides = {6400, 64};
  CHECK(call.error_with("q", q) ==
        "attend: q: expected 3 strides, got [6400, 64] | one stride an axis, in elements");
  q.strides = {64, 128, 2};
  CHECK(call.error_with("q", q) ==
        "attend: q: expected stride 1 on the last axis, got strides [64, 128, 2] | "
        "pass a copy whose last axis is contiguous");
  q = call.q.view();
  q.data = nullptr;
  CHECK(call.error_with("q", q) ==
        "attend: q: expected f16 [heads, seq, 64], got a null address | memory of the device; only "
        "a tensor without elements may have none");
  q.data = reinterpret_cast<void*>(0x1001);
  CHECK(call.error_with("q", q) ==
        "attend: q: expected an address that is a multiple of 2, the size of f16, got 0x1001 | "
        "pass a copy that "
        "begins at such a multiple, as any allocation does");
  q = call.q.view();
  q.strides[0] = std::numeric_limits<int64_t>::max() / 2;
  CHECK(call.error_with("q", q) ==
        "attend: q: expected strides within the address space, got [4611686018427387903, 64, 1] of "
        "[2, 100, 64] | strides count elements, not bytes");
  call = Call();
  q = call.q.view();
  q.strides = {0, 64, 1};
  CHECK(call.error_with("q", q) == "no error");  // an input may be broadcast
  q = moved(call.q.view(), 99 * 64 * 2);
  q.strides = {6400, -64, 1};
  CHECK(call.error_with("q", q) == "no error");  // and run backwards
  Memory o = call.o.view();
  o.strides[1] = 0;
  CHECK(call.error_with("o", o) ==
        "attend: o: expected strides other than 0, as it is written, got 0 on axis 1: its elements "
        "would overwrite each other | "
        "only inputs may be broadcast");
}

TEST_CASE("an axis of extent 1 or 0 may have any stride, an empty tensor may be null") {
  Signature signature = signature_of(test::scale_kernel());
  Array x(F32, {1}), y(F32, {1});
  Memory odd = x.view();
  odd.strides = {7};
  CHECK_NOTHROW(bind(signature, Arguments().tensor("x", odd).tensor("y", y).param("factor", 1)));
  Memory none{nullptr, F32, {0}, {-5}};
  CHECK_NOTHROW(
      bind(signature, Arguments().tensor("x", none).tensor("y", none).param("factor", 1)));
}

TEST_CASE("what is written shares no memory") {
  Call call;
  CHECK(call.error_with("o", call.q.view()) ==
        "attend: o overlaps q in memory | give what the kernel writes memory of its own");
  call = Call();
  call.arguments.tensor("k", call.q);  // inputs may be one
  CHECK(call.error() == "no error");
  // q, k and o as interleaved heads of one array.
  call = Call();
  Array packed(F16, {2, 100, 3, 64});
  auto part = [&](int64_t index) {
    Memory memory{packed.data(), F16, {2, 100, 64}, {19200, 192, 1}};
    return moved(memory, index * 128);
  };
  call.arguments.tensor("q", part(0)).tensor("k", part(1)).tensor("o", part(2));
  CHECK(call.error() == "no error");
  call.arguments.tensor("o", moved(part(2), -2));
  CHECK(call.error() ==
        "attend: o overlaps k in memory | give what the kernel writes memory of its own");
}

TEST_CASE("params are converted without surprise") {
  Call call;
  auto error_for = [&](const std::string& name, auto value) {
    call.arguments.param(name, value);
    std::string error = call.error();
    call.arguments.param(name, 1);
    return error;
  };
  const std::string hint = " | a value that the type can hold";
  CHECK(error_for("scale", 3) == "no error");
  CHECK(error_for("scale", std::numeric_limits<double>::infinity()) == "no error");
  CHECK(error_for("scale", std::numeric_limits<double>::quiet_NaN()) == "no error");
  CHECK(error_for("scale", 1e300) == "attend: scale: expected f32, got f64 1e+300" + hint);
  CHECK(error_for("first", 2.0) == "no error");
  CHECK(error_for("first", 2.5) == "attend: first: expected i32, got f64 2.5" + hint);
  CHECK(error_for("first", int64_t{1} << 31) ==
        "attend: first: expected i32, got i64 2147483648" + hint);
  CHECK(error_for("first", std::numeric_limits<uint64_t>::max()) ==
        "attend: first: expected i32, got u64 18446744073709551615" + hint);
  CHECK(error_for("first", -7) == "no error");
  CHECK(error_for("first", std::numeric_limits<double>::quiet_NaN()) ==
        "attend: first: expected i32, got f64 nan" + hint);
}

TEST_CASE("outputs are made from what is known") {
  Call call;
  call.arguments = Arguments().param("scale", 1).param("first", 1).dim("limit", 1);
  call.arguments.tensor("q", call.q).tensor("k", call.k).tensor("mask", call.mask);
  auto outputs = make_outputs(call.signature, call.arguments);
  REQUIRE(outputs.size() == 1);
  CHECK(outputs.at("o").dtype() == F16);
  CHECK(outputs.at("o").shape() == Shape{2, 100, 64});
  call.arguments.tensor("o", outputs.at("o"));
  CHECK(call.error() == "no error");
  CHECK(make_outputs(call.signature, call.arguments).empty());

  Signature grid = signature_of(test::grid_kernel());
  CHECK(error_of([&] { make_outputs(grid, Arguments().dim("nx", 2).dim("ny", 3)); }) ==
        "grid: missing dim nz | give it: no given tensor has it as an extent");
  auto box = make_outputs(grid, Arguments().dim("nx", 2).dim("ny", 3).dim("nz", 4));
  CHECK(box.at("out").shape() == Shape{4, 3, 2});
}

TEST_CASE("computed extents are written as a person would") {
  Signature two = signature_of(test::two_launch_kernel());
  Array x(F32, {3}), y(F32, {2});
  CHECK(error_of([&] { bind(two, Arguments().tensor("x", x).tensor("y", y)); }) ==
        "two_launches: x: expected f32 [n * 2], got f32 [3]: axis 0 must be n * 2 = 4 | the extent "
        "that the other arguments give it");
}

TEST_CASE("a grid that no machine can run") {
  Signature wide = signature_of(parse(R"(
kernel @wide {
  %a = dim {name = "a"} : i32
  %b = dim {name = "b"} : i32
  %c = dim {name = "c"} : i32
  %y = tensor {name = "y", role = output} : tensor i32[1]
  launch %a, %b, %c do |%x: i32, %by: i32, %bz: i32| {
    %zero = const {value = 0} : i32
    store %x, %y, %zero
  }
})"));
  Array y(I32, {1});
  const int64_t most = std::numeric_limits<int32_t>::max();
  Arguments arguments = Arguments().tensor("y", y).dim("a", most).dim("b", most).dim("c", most);
  CHECK_THAT(error_of([&] { bind(wide, arguments); }),
             Catch::Contains("expected at most 2147483647 blocks"));
  CHECK(error_of([&] { bind(wide, arguments.dim("b", 0)); }) == "no error");
}
