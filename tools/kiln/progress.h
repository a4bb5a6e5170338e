// Says on stderr what takes so long.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace kiln::cli {

// From two seconds after its construction on, "label: 34 %, 6 s" every two seconds.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;

  void set(double fraction) { fraction_ = fraction; }  // 0 to 1; not set: only the time is shown
  std::function<void(double)> setter() {
    return [this](double fraction) { set(fraction); };
  }

 private:
  void watch();

  std::string label_;
  std::atomic<double> fraction_{-1};
  bool done_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace kiln::cli
