#include "tools/kiln/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace kiln::cli {

Progress::Progress(std::string label) : label_(std::move(label)), thread_([this] { watch(); }) {}

Progress::~Progress() {
  {
    std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Progress::watch() {
  const bool terminal = isatty(STDERR_FILENO);
  bool shown = false;
  std::unique_lock lock(mutex_);
  for (int seconds = 2;; seconds += 2) {
    if (changed_.wait_for(lock, std::chrono::seconds(2), [this] { return done_; })) break;
    double fraction = fraction_;
    fmt::print(stderr, "{}{}: {}{} s{}", terminal ? "\r" : "", label_,
               fraction < 0 ? "" : fmt::format("{:.0f} %, ", 100 * fraction), seconds,
               terminal ? "\x1b[K" : "\n");
    std::fflush(stderr);
    shown = true;
  }
  if (shown && terminal) fmt::print(stderr, "\n");
}

}  // namespace kiln::cli
