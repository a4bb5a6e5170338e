#include "ir/log.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

namespace kiln {
namespace {

void to_standard_error(LogLevel level, std::string_view text) {
  if (level == LogLevel::Info) return;
  std::string line;  // written at once, so that those of threads do not mix
  if (level == LogLevel::Warning) line = "kiln: ";
  line += text;
  if (level == LogLevel::Warning) line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// Never destroyed: at exit other threads may still have something to say.
struct State {
  std::mutex mutex;
  std::shared_ptr<const Log> log = std::make_shared<const Log>(to_standard_error);
};
State& state() {
  static State& state = *new State;
  return state;
}

}  // namespace

void set_log(Log log) {
  auto next = std::make_shared<const Log>(log ? std::move(log) : Log(to_standard_error));
  std::lock_guard lock(state().mutex);
  state().log.swap(next);
}

void log_message(LogLevel level, std::string_view text) noexcept {
  try {
    std::shared_ptr<const Log> log;
    {
      std::lock_guard lock(state().mutex);
      log = state().log;
    }
    (*log)(level, text);  // without the lock: it may log, or set another
  } catch (...) {         // compiled code calls this, which no exception may pass
  }
}

}  // namespace kiln
