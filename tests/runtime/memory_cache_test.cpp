// Values by key in memory: made once, the least recently used forgotten, failures not remembered.
#include "runtime/memory_cache.h"

#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;

namespace {

using Number = std::shared_ptr<const int>;

MemoryCache<Number>::Found get(MemoryCache<Number>& cache, int key) {
  return cache.get(fmt::format("{}", key), [key] { return std::make_shared<const int>(key); });
}

}  // namespace

TEST_CASE("memory cache: the least recently used value goes") {
  MemoryCache<Number> cache(3);
  for (int key : {1, 2, 3}) CHECK_FALSE(get(cache, key).hit);
  CHECK(get(cache, 1).hit);
  CHECK_FALSE(get(cache, 4).hit);  // in the place of 2
  CHECK(cache.size() == 3);
  for (int key : {1, 3, 4}) CHECK(get(cache, key).hit);
  const Number two = get(cache, 2).value;  // in the place of 1
  CHECK_FALSE(get(cache, 1).hit);
  for (int key = 10; key < 20; ++key) get(cache, key);
  CHECK(*two == 2);  // who holds it keeps it
  CHECK(cache.size() == 3);
  cache.clear();
  CHECK(cache.size() == 0);
  CHECK_FALSE(get(cache, 19).hit);
}

TEST_CASE("memory cache: a failure is told to all who wait, and tried again") {
  MemoryCache<Number> cache(3);
  const auto fail = []() -> Number { throw std::runtime_error("no"); };
  for (int i = 0; i < 2; ++i) CHECK_THROWS_AS(cache.get("1", fail), std::runtime_error);
  CHECK(cache.size() == 0);
  CHECK_FALSE(get(cache, 1).hit);

  std::atomic<int> failures = 0, begun = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      try {
        cache.get("2", [&]() -> Number {
          ++begun;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          throw std::runtime_error("no");
        });
      } catch (const std::runtime_error&) {
        ++failures;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 4);
  CHECK(begun >= 1);
  CHECK(cache.size() == 1);
}

TEST_CASE("memory cache: what is being made is waited for, not made again or dropped") {
  MemoryCache<Number> cache(1);
  std::atomic<bool> go = false, begun = false;
  std::thread maker([&] {
    cache.get("slow", [&] {
      begun = true;
      while (!go) std::this_thread::yield();
      return std::make_shared<const int>(7);
    });
  });
  while (!begun) std::this_thread::yield();
  for (int key = 0; key < 5; ++key) get(cache, key);
  cache.clear();
  std::thread waiter([&] {
    const auto found = cache.get("slow", [] { return std::make_shared<const int>(8); });
    if (!found.hit || *found.value != 7) std::abort();
  });
  go = true;
  maker.join();
  waiter.join();
  CHECK(cache.size() <= 1);
}

TEST_CASE("memory cache: many threads, more keys than room") {
  MemoryCache<Number> cache(8);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, random = std::mt19937(random_seed() + t)]() mutable {
      for (int i = 0; i < 3000; ++i) {
        const int key = static_cast<int>(random() % 24);
        try {
          const auto found = cache.get(fmt::format("{}", key), [&] {
            if (random() % 8 == 0) throw std::runtime_error("no");
            return std::make_shared<const int>(key);
          });
          wrong += *found.value != key;
        } catch (const std::runtime_error&) {
        }
        if (random() % 500 == 0) cache.clear();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(cache.size() <= 8);
}
