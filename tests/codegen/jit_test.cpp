// Objects: linking, threads, text output, the launch interface.
#include <catch2/catch.hpp>
#include <thread>

#include "ir/error.h"
#include "ir/parse.h"
#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

const char* const kText = R"(kernel @scale {
  %n = dim {name = "n"} : i32
  %unused = dim {name = "unused"} : i32
  %k = param {name = "k"} : f32
  %x = tensor %n {name = "x"} : tensor f32[4, ?]
  %y = tensor %n {name = "y", role = output} : tensor f32[4, ?]
  %four = const {value = 4} : i32
  launch %n, %four do |%i: i32, %j: i32| {
    %a = load %x, %j, %i : f32
    %b = mul %a, %k : f32
    store %b, %y, %j, %i
  }
  launch %four do |%i: i32| {
    %zero = const {value = 0} : i32
    %a = load %x, %i, %zero : f32
    store %a, %y, %i, %zero
  }
})";

}  // namespace

TEST_CASE("slots name what a launch uses, in the interface's order", "[abi]") {
  Kernel kernel = parse(kText);
  std::vector<Slot> slots;
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch) {
      slots = slots_of(kernel, kernel.op(id));
      break;
    }
  using Kind = Slot::Kind;
  CHECK(slots == std::vector<Slot>{{Kind::Dim, "n"},
                                   {Kind::Param, "k"},
                                   {Kind::Pointer, "x"},
                                   {Kind::Stride, "x", 0},
                                   {Kind::Pointer, "y"},
                                   {Kind::Stride, "y", 0}});
  HostObject object = compile_host(kernel);
  REQUIRE(object.launches.size() == 2);
  CHECK(object.launches[0].slots == slots);
  CHECK(object.launches[1].slots.size() == 5);  // no %k
}

TEST_CASE("one object links many times and runs in many threads", "[jit]") {
  Kernel kernel = parse(kText);
  const HostObject object = compile_host(kernel);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      HostCode code(object);
      std::vector<float> x(40), y(40);
      for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + static_cast<size_t>(t));
      float k = 3;
      uint64_t slots[] = {
          10, std::bit_cast<uint32_t>(k),           reinterpret_cast<uint64_t>(x.data()),
          10, reinterpret_cast<uint64_t>(y.data()), 10};
      alignas(64) std::byte scratch[4096];
      for (int64_t j = 0; j < 4; ++j)
        for (int64_t i = 0; i < 10; ++i) code.entry(0)(slots, i, j, 0, scratch);
      for (size_t i = 0; i < x.size(); ++i) wrong += y[i] != 3 * x[i];
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("compilation in several threads gives the same object", "[jit]") {
  Kernel kernel = parse(kText);
  const std::string expected = compile_host(kernel).code;
  std::vector<std::string> codes(4);
  std::vector<std::thread> threads;
  for (std::string& code : codes) threads.emplace_back([&] { code = compile_host(kernel).code; });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& code : codes) CHECK(code == expected);
}

TEST_CASE("a damaged object is an error, not a crash", "[jit]") {
  HostObject object = compile_host(parse(kText));
  HostObject cut = object;
  cut.code.resize(cut.code.size() / 2);
  CHECK_THROWS_AS(HostCode(cut), InternalError);
  HostObject renamed = object;
  renamed.launches[0].entry = "nothing";
  CHECK_THROWS_AS(HostCode(renamed), InternalError);
  HostCode code(object);  // the session still works
  CHECK(code.entry(1) != nullptr);
}

TEST_CASE("text output shows both launches", "[jit]") {
  Kernel kernel = parse(kText);
  for (const std::string& text : {host_llvm_ir(kernel), host_assembly(kernel)}) {
    CHECK(text.find("kiln_launch_0") != std::string::npos);
    CHECK(text.find("kiln_launch_1") != std::string::npos);
  }
  CHECK(!host_cpu().empty());
  CHECK(llvm_version().starts_with("22."));
}

TEST_CASE("what the tier cannot emit is an internal error", "[jit]") {
  Kernel kernel = parse(R"(kernel @k {
  %x = tensor {name = "x"} : tensor i8[8]
  %y = tensor {name = "y", role = output} : tensor i32[8]
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    selected %x do |%i: i32| {
      store %i, %y, %i
    }
  }
})");
  CHECK_THROWS_AS(compile_host(kernel), InternalError);
  CHECK_THROWS_AS(host::named_cpu("no-such-cpu"), InternalError);
}
