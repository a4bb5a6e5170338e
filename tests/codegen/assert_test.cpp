// device_assert: an error at the end of the run, with the results all the same.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "dsl/dsl.h"
#include "ir/canon.h"
#include "runtime/device.h"
#include "tests/codegen/harness.h"
#include "tests/support/on_device.h"
#include "tests/support/written_by.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

struct Outcome {
  std::string error;
  int line = 0;
  std::vector<int32_t> y;
};

Outcome run_on_device(const std::string& name, const Kernel& kernel, std::vector<int32_t> x) {
  Outcome outcome;
  outcome.y.assign(x.size(), -1);
  const Shape shape = {static_cast<int64_t>(x.size())};
  Bindings bindings;
  bindings.tensors["x"] = Memory::contiguous(x.data(), I32, shape);
  bindings.tensors["y"] = Memory::contiguous(outcome.y.data(), I32, shape);
  Device& target = device(name);
  try {
    run_on(target, *target.compile(canonical(kernel)), bindings);
  } catch (const UserError& error) {
    outcome.error = error.message();
    outcome.line = error.loc().line;
  }
  return outcome;
}

std::vector<std::string> devices() {
  if (!on_host()) return {std::getenv("KILN_TEST_DEVICE")};
  return {"interpreter", "host", "emulator"};
}

}  // namespace

TEST_CASE("device_assert", "[assert]") {
  int in_parallel = 0, outside = 0;
  const Kernel kernel = trace("checked", [&] {
    Tensor x = input("x", I32, {40}), y = output("y", I32, {40});
    auto [block, b, c] = launch({4});
    Tile tile = alloc_fragment({10}, I32), sum = alloc_shared({1}, I32);
    copy(x(span(block * 10, 10)), tile);
    for (auto i : parallel(10)) {
      in_parallel = Loc::here().line + 1;
      device_assert(tile(i) >= 0, "negative");
    }
    reduce_sum(tile, sum, 0);
    outside = Loc::here().line + 1;
    device_assert(sum(0) < 1000);
    copy(tile, y(span(block * 10, 10)));
  });
  for (const std::string& name : devices()) {
    INFO(name);
    std::vector<int32_t> x(40, 3);
    Outcome good = run_on_device(name, kernel, x);
    CHECK(good.error == "");
    CHECK(good.y == x);
    x[17] = -1;
    Outcome bad = run_on_device(name, kernel, x);
    CHECK_THAT(bad.error, Catch::Matchers::StartsWith("device_assert: negative"));
    CHECK(bad.line == in_parallel);
    CHECK(run_on_device(name, kernel, std::vector<int32_t>(40, 3)).error == "");
    x[17] = 5000;
    bad = run_on_device(name, kernel, x);
    CHECK_THAT(bad.error,
               Catch::Matchers::StartsWith("device_assert: the condition does not hold"));
    CHECK(bad.line == outside);
    CHECK(bad.y == x);  // what was computed is there
  }
}

namespace {

size_t occurrences(const std::string& text, const std::string& of) {
  size_t n = 0;
  for (size_t at = text.find(of); at != std::string::npos; at = text.find(of, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("watch", "[assert]") {
  const Kernel kernel = trace("watched", [&] {
    Tensor x = input("x", I32, {6}), y = output("y", I32, {6});
    launch({1});
    Tile tile = alloc_shared({2, 3}, F16);
    for (auto [i, j] : parallel(2, 3)) tile(i, j) = cast(x(i * 3 + j), F16) * 0.5;
    watch(tile, "half");
    for (auto i : parallel(6)) y(i) = cast(tile(i / 3, i % 3) * 2, I32);
  });
  for (const std::string& name : devices()) {
    Outcome outcome;
    const std::string text = written_by([&] {
      outcome = run_on_device(name, kernel, {1, 2, 3, 4, 5, 6});
    });
    INFO(name << ":\n" << text);
    CHECK(outcome.error == "");
    CHECK(outcome.y == std::vector<int32_t>{1, 2, 3, 4, 5, 6});
    CHECK(text.find("assert_test.cpp:") != std::string::npos);
    CHECK(text.find("watch half, block 0, 0, 0: shared f16[2, 3]\n 0.5 1 1.5\n 2 2.5 3\n") !=
          std::string::npos);
  }
}

TEST_CASE("watches in loops, of several blocks, beside a device_assert", "[assert]") {
  const Kernel kernel = trace("watched", [&] {
    Tensor x = input("x", I32, {6}), y = output("y", I32, {6});
    auto [block, b, c] = launch({3});
    Tile sum = alloc_fragment({2}, I32);
    fill(sum, 0);
    for (auto round : serial(4)) {
      for (auto i : parallel(2)) sum(i) = sum(i) + x(block * 2 + i);
      when(round == 2, [&] { watch(sum, "third"); });
      watch(sum);
    }
    copy(sum, y(span(block * 2, 2)));
    for (auto i : parallel(2)) device_assert(sum(i) < 20, "large");
  });
  for (const std::string& name : devices()) {
    Outcome outcome;
    const std::string text = written_by([&] {
      outcome = run_on_device(name, kernel, {1, 2, 3, 4, 5, 6});
    });
    INFO(name << ":\n" << text);
    CHECK_THAT(outcome.error, Catch::Matchers::StartsWith("device_assert: large"));
    if (name != "interpreter") CHECK(outcome.y == std::vector<int32_t>{4, 8, 12, 16, 20, 24});
    CHECK(text.find("watch third, block 0, 0, 0: fragment i32[2]\n 3 6\n") != std::string::npos);
    if (name == "interpreter") continue;  // ends at the first block that fails
    CHECK(occurrences(text, "watch third") == 3);
    CHECK(occurrences(text, "watch, block 2, 0, 0: fragment i32[2]") == 4);
    const std::string last = text.substr(text.rfind("watch, block 1"));
    CHECK(last.find("\n 12 16\n") < last.find("watch", 1));  // in the order of rounds
  }
}

TEST_CASE("more watches than there is room for", "[assert]") {
  const Kernel kernel = trace("often", [&] {
    Tensor x = input("x", I32, {1}), y = output("y", I32, {1});
    launch({1});
    Tile tile = alloc_fragment({256, 128}, I32);  // 32 of them are 4 MiB
    for (auto round : serial(40)) {
      fill(tile, x(0) + round);
      watch(tile, "often");
    }
    for (auto i : parallel(1)) y(i) = x(i) + 39;
  });
  const std::string device = on_host() ? "emulator" : std::getenv("KILN_TEST_DEVICE");
  Outcome outcome;
  const std::string text = written_by([&] { outcome = run_on_device(device, kernel, {7}); });
  CHECK(outcome.y == std::vector<int32_t>{46});
  CHECK(occurrences(text, "watch often, block") == 32);
  CHECK(text.find("watch often: 8 more, for which there was no room") != std::string::npos);
}
