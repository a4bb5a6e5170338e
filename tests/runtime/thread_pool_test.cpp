#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cfenv>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "ir/error.h"
#include "runtime/thread_pool.h"
#include "tests/runtime/support.h"

using namespace kiln;
using kiln::test::EnvironmentGuard;
using kiln::test::error_of;

namespace {

struct Threads {
  explicit Threads(int count) { set_host_threads(count); }
  ~Threads() { set_host_threads(0); }
};

// How often each index came.
std::vector<int> visits(int64_t count) {
  std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
  parallel_for(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  return {seen.begin(), seen.end()};
}

}  // namespace

TEST_CASE("every index once, whatever the number of threads") {
  for (int threads : {1, 2, 7, 16}) {
    Threads guard(threads);
    for (int64_t count : {0, 1, 2, 3, 7, 8, 64, 1000, 100003})
      REQUIRE(visits(count) == std::vector<int>(static_cast<size_t>(count), 1));
  }
  parallel_for(-5, [](int64_t, int64_t) { FAIL("no body to run"); });
}

TEST_CASE("a forked process has threads of its own") {
  Threads guard(2);
  // True if each of two chunks meets the other: two threads take part.
  auto two_meet = [] {
    std::atomic<int> arrived{0};
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    parallel_for(2, [&](int64_t, int64_t) {
      ++arrived;
      while (arrived < 2 && std::chrono::steady_clock::now() < late) std::this_thread::yield();
    });
    return arrived == 2 && std::chrono::steady_clock::now() < late;
  };
  REQUIRE(two_meet());
  const pid_t child = fork();
  if (child == 0) _exit(two_meet() ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(two_meet());
}

TEST_CASE("several threads work, no more than asked for") {
  Threads guard(4);
  std::set<std::thread::id> ids;
  std::mutex mutex;
  std::atomic<int> arrived{0}, wide{0};
  // Each of four chunks waits for the others: it ends only if four threads take part.
  parallel_for(4, [&](int64_t begin, int64_t end) {
    if (end != begin + 1) ++wide;
    ++arrived;
    while (arrived < 4) std::this_thread::yield();
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  CHECK(wide == 0);
  CHECK(ids.size() == 4);
  set_host_threads(2);  // the two that are too many now stay out
  ids.clear();
  parallel_for(100, [&](int64_t, int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // time enough for all to come
    std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  CHECK(ids.size() <= 2);
}

TEST_CASE("the first exception comes out and ends the work") {
  for (int threads : {1, 4}) {
    Threads guard(threads);
    std::atomic<int> done{0};
    CHECK(error_of([&] {
            parallel_for(1000000, [&](int64_t begin, int64_t) {
              ++done;
              if (begin > 1000) throw UserError("block failed");
            });
          }) == "block failed");
    CHECK(done < 100000);
    CHECK(visits(100) == std::vector<int>(100, 1));  // and the pool goes on
  }
}

TEST_CASE("launches from many threads, nested, with exceptions") {
  Threads guard(3);
  std::atomic<int64_t> total{0}, thrown{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 8; ++user)
    users.emplace_back([&, user] {
      for (int round = 0; round < 100; ++round) try {
          parallel_for(20, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
              parallel_for(10, [&](int64_t b, int64_t e) { total += e - b; });
            if (user == 0 && begin >= 10) throw UserError("stop");
          });
        } catch (const UserError&) {
          ++thrown;
        }
    });
  for (std::thread& user : users) user.join();
  CHECK(thrown == 100);
  CHECK(total >= 7 * 100 * 20 * 10 + 100 * 10);
  CHECK(total <= 8 * 100 * 20 * 10);
}

TEST_CASE("scratch is private, aligned, nests, and is kept") {
  Threads guard(4);
  std::atomic<int> wrong{0};
  parallel_for(2000, [&](int64_t begin, int64_t) {
    Scratch outer(1000 + static_cast<size_t>(begin));
    if (reinterpret_cast<uintptr_t>(outer.data()) % 64 != 0) ++wrong;
    std::memset(outer.data(), static_cast<int>(begin), 1000);
    parallel_for(3, [&](int64_t inner, int64_t) {
      Scratch scratch(500);
      std::memset(scratch.data(), static_cast<int>(inner), 500);
    });
    for (int i = 0; i < 1000; ++i)
      if (static_cast<char*>(outer.data())[i] != static_cast<char>(begin)) ++wrong;
  });
  CHECK(wrong == 0);
  void* first = nullptr;
  {
    Scratch scratch(100);
    first = scratch.data();
  }
  Scratch again(100);
  CHECK(again.data() == first);
  CHECK(Scratch(0).data() != nullptr);
}

TEST_CASE("bodies run in the default floating-point environment") {
  for (int threads : {1, 3}) {
    Threads guard(threads);
    std::fesetround(FE_UPWARD);
    std::atomic<int> wrong{0};
    parallel_for(100, [&](int64_t, int64_t) {
      if (std::fegetround() != FE_TONEAREST) ++wrong;
    });
    int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(wrong == 0);
    CHECK(after == FE_UPWARD);
  }
}

TEST_CASE("the number of threads") {
  {
    EnvironmentGuard guard("KILN_THREADS", "5");
    CHECK(host_threads() == 5);
    set_host_threads(3);
    CHECK(host_threads() == 3);
    set_host_threads(0);
    CHECK(host_threads() == 5);
  }
  for (const char* text : {"0", "-2", "1025", "two", "3K"}) {
    EnvironmentGuard guard("KILN_THREADS", text);
    CHECK(error_of([] { host_threads(); }) ==
          std::string("KILN_THREADS: expected a whole number from 1 to 1024, got '") + text + "'");
  }
  EnvironmentGuard guard("KILN_THREADS", "");
  CHECK(host_threads() >= 1);
  CHECK(error_of([] { set_host_threads(-1); }) == "host threads: expected 1 to 1024, got -1");
}
