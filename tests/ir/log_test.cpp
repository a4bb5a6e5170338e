// The log: replaced, shared by threads, never in the way.
#include "ir/log.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace kiln;

namespace {

struct DefaultAfterwards {
  ~DefaultAfterwards() { set_log({}); }
};

}  // namespace

TEST_CASE("log: the one that was set gets level and text", "[log]") {
  DefaultAfterwards guard;
  std::vector<std::pair<LogLevel, std::string>> said;
  set_log([&](LogLevel level, std::string_view text) { said.emplace_back(level, text); });
  log_message(LogLevel::Info, "one");
  log_message(LogLevel::Warning, "");
  log_message(LogLevel::Output, "two\nlines\n");
  CHECK(said == std::vector<std::pair<LogLevel, std::string>>{{LogLevel::Info, "one"},
                                                              {LogLevel::Warning, ""},
                                                              {LogLevel::Output, "two\nlines\n"}});
}

TEST_CASE("log: what it throws is lost; it may log and replace itself", "[log]") {
  DefaultAfterwards guard;
  set_log([](LogLevel, std::string_view) { throw std::runtime_error("from the log"); });
  CHECK_NOTHROW(log_message(LogLevel::Info, "x"));
  int first = 0, second = 0;
  set_log([&](LogLevel, std::string_view text) {
    ++first;
    if (text == "again") return;
    log_message(LogLevel::Info, "again");
    set_log([&](LogLevel, std::string_view) { ++second; });
  });
  log_message(LogLevel::Info, "x");
  log_message(LogLevel::Info, "y");
  CHECK(first == 2);
  CHECK(second == 1);
}

TEST_CASE("log: said and replaced by threads at once", "[log]") {
  DefaultAfterwards guard;
  std::atomic<int> heard = 0;
  const Log count = [&](LogLevel, std::string_view text) { heard += text == "message"; };
  set_log(count);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        log_message(LogLevel::Info, "message");
        if (t < 2) set_log(count);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(heard == 4000);
}
