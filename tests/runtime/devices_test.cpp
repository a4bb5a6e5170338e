// Both devices run the same programs with the same results.
#include <catch2/catch.hpp>
#include <random>

#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "runtime/compile.h"
#include "runtime/thread_pool.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
namespace fs = std::filesystem;

TEST_CASE("blocks come with their indices, x fastest, for any number of threads") {
  FreshCache cache;
  for (std::string_view name : cpu_devices()) {
    Function grid = compile(device(name), grid_kernel());
    for (int threads : {1, 2, 7}) {
      set_host_threads(threads);
      for (const Shape& box : std::vector<Shape>{{1, 1, 1}, {5, 7, 9}, {1, 9, 1}, {3, 1, 2}}) {
        Array out(I32, box);
        grid(Arguments().tensor("out", out));
        std::vector<double> expected;
        for (int64_t z = 0; z < box[0]; ++z)
          for (int64_t y = 0; y < box[1]; ++y)
            for (int64_t x = 0; x < box[2]; ++x)
              expected.push_back(static_cast<double>(x + 10 * y + 100 * z));
        REQUIRE(out.values() == expected);
      }
    }
    set_host_threads(0);
  }
}

TEST_CASE("a grid with an extent of 0 runs nothing") {
  FreshCache cache;
  for (std::string_view name : cpu_devices()) {
    Function grid = compile(device(name), grid_kernel());
    for (const Shape& box : std::vector<Shape>{{0, 1, 1}, {4, 0, 4}, {4, 4, 0}, {0, 0, 0}}) {
      Memory nothing = Memory::contiguous(nullptr, I32, box);
      grid(Arguments().tensor("out", nothing));
      grid(Arguments().tensor("out", nothing).dim("nx", box[2]));
    }
  }
}

TEST_CASE("launches run in order and share a workspace") {
  FreshCache cache;
  for (std::string_view name : cpu_devices()) {
    Function two = compile(device(name), two_launch_kernel());
    for (int64_t n : {0, 1, 100, 1000}) {
      Array x(F32, {2 * n}), y(F32, {n});
      for (int64_t i = 0; i < 2 * n; ++i) x.set(i, static_cast<double>(i));
      two(Arguments().tensor("x", x).tensor("y", y));
      for (int64_t i = 0; i < n; ++i) REQUIRE(y.get(i) == static_cast<double>(8 * i + 2));
    }
  }
}

TEST_CASE("tensors may be strided, reversed and broadcast") {
  FreshCache cache;
  Kernel add = parse(R"(
kernel @add {
  %rows = dim {name = "rows"} : i32
  %a = tensor %rows {name = "a"} : tensor f32[?, 4]
  %b = tensor %rows {name = "b"} : tensor f32[?, 4]
  %y = tensor %rows {name = "y", role = output} : tensor f32[?, 4]
  launch %rows do |%r: i32| {
    %zero = const {value = 0} : i32
    %fa = alloc : fragment f32[1, 4]
    %fb = alloc : fragment f32[1, 4]
    %va = slice %a, %r, %zero : view global f32[1, 4]
    %vb = slice %b, %r, %zero : view global f32[1, 4]
    copy %va, %fa
    copy %vb, %fb
    parallel {extents = [1, 4]} do |%i: i32, %j: i32| {
      %p = load %fa, %i, %j : f32
      %q = load %fb, %i, %j : f32
      %s = add %p, %q : f32
      store %s, %fa, %i, %j
    }
    %vy = slice %y, %r, %zero : view global f32[1, 4]
    copy %fa, %vy
  }
})");
  const int64_t rows = 6;
  Array a(F32, {rows, 9}), b(F32, {4}), y(F32, {rows, 7});
  for (int64_t i = 0; i < a.size(); ++i) a.set(i, static_cast<double>(i));
  for (int64_t i = 0; i < 4; ++i) b.set(i, static_cast<double>(1000 * i));
  Memory a_view{static_cast<float*>(a.data()) + (rows - 1) * 9 + 2, F32, {rows, 4}, {-9, 1}};
  Memory b_view{b.data(), F32, {rows, 4}, {0, 1}};
  Memory y_view{static_cast<float*>(y.data()) + 1, F32, {rows, 4}, {7, 1}};
  for (std::string_view name : cpu_devices()) {
    for (int64_t i = 0; i < y.size(); ++i) y.set(i, -1);
    run(device(name), add, Arguments().tensor("a", a_view).tensor("b", b_view).tensor("y", y_view));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < 7; ++c) {
        bool inside = c >= 1 && c < 5;
        double expected = inside ? a.get((rows - 1 - r) * 9 + c + 1) + b.get(c - 1) : -1;
        REQUIRE(y.get(r * 7 + c) == expected);
      }
  }
}

TEST_CASE("params of every dtype reach the code") {
  FreshCache cache;
  for (std::string_view name : cpu_devices())
    for (DType dtype : kAllDTypes) {
      std::string type(kiln::name(dtype));
      Kernel put = parse("kernel @put {\n  %v = param {name = \"v\"} : " + type +
                         "\n  %one = const {value = 1} : i32" +
                         "\n  %y = tensor {name = \"y\", role = output} : tensor " + type +
                         "[1]\n  launch %one do |%x: i32| {\n    store %v, %y, %x\n  }\n}\n");
      double value = dtype == Bool ? 1 : is_unsigned_int(dtype) ? 100 : -3;
      Array y(dtype, {1});
      run(device(name), put, Arguments().tensor("y", y).param("v", value));
      INFO(name << " " << type);
      CHECK(y.get(0) == value);
    }
}

TEST_CASE("KILN_DUMP writes every stage, even of code that is in the disk cache") {
  FreshCache cache;
  compile(device("host"), scale_kernel());
  forget_compiled();
  TemporaryDirectory directory;
  {
    EnvironmentGuard guard("KILN_DUMP", directory.path() / "new" / "dump");
    compile(device("host"), scale_kernel());
  }
  std::vector<fs::path> found;
  for (const auto& one : fs::directory_iterator(directory.path() / "new" / "dump"))
    found.push_back(one.path());
  REQUIRE(found.size() == 1);
  CHECK(found[0].filename().string().starts_with("scale-"));
  CHECK(found[0].filename().string().size() == 6 + 8);
  std::vector<std::string> stages;
  for (const auto& one : fs::directory_iterator(found[0])) stages.push_back(one.path().filename());
  std::sort(stages.begin(), stages.end());
  REQUIRE(stages.size() > 4);
  CHECK(stages.front() == "00_traced.tile");
  for (const std::string& stage : stages)
    if (stage.ends_with(".tile"))
      CHECK(print(parse(read_file(found[0] / stage))) == read_file(found[0] / stage));
  CHECK(read_file(found[0] / "host.ll").find("define") != std::string::npos);
  CHECK(read_file(found[0] / "host.s").find("ret") != std::string::npos);
}

TEST_CASE("a dump that cannot be written is no error") {
  FreshCache cache;
  EnvironmentGuard guard("KILN_DUMP", "/proc/self/nowhere");
  for (std::string_view name : cpu_devices()) CHECK_NOTHROW(compile(device(name), scale_kernel()));
}
