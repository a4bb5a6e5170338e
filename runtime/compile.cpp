#include "runtime/compile.h"

#include <fmt/format.h>

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>

#include "ir/canon.h"
#include "ir/verify.h"
#include "runtime/lowering.h"

namespace kiln {
namespace {

using Code = std::shared_ptr<const Executable>;

class MemoryCache {
 public:
  // Never destroyed: at exit other threads may still run compiled code.
  static MemoryCache& instance() {
    static MemoryCache& cache = *new MemoryCache;
    return cache;
  }

  Code get(const std::string& key, const std::function<Code()>& make) {
    std::unique_lock lock(mutex_);
    if (auto it = entries_.find(key); it != entries_.end()) {
      std::shared_future<Code> entry = it->second;
      lock.unlock();
      count_memory_hit();
      return entry.get();
    }
    std::promise<Code> promise;
    insert(key, promise.get_future().share());
    lock.unlock();
    try {
      Code code = make();
      promise.set_value(code);
      return code;
    } catch (...) {
      promise.set_exception(std::current_exception());
      forget(key);  // who asks later tries again
      throw;
    }
  }

  void clear() {
    std::lock_guard lock(mutex_);
    entries_.clear();
    order_.clear();
  }

 private:
  static constexpr size_t kCapacity = 1024;

  void insert(const std::string& key, std::shared_future<Code> entry) {
    entries_[key] = std::move(entry);
    order_.push_back(key);
    if (order_.size() <= kCapacity) return;
    entries_.erase(order_.front());
    order_.pop_front();
  }
  void forget(const std::string& key) {
    std::lock_guard lock(mutex_);
    entries_.erase(key);
    std::erase(order_, key);
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_future<Code>> entries_;
  std::deque<std::string> order_;  // oldest first
};

}  // namespace

Function compile(Device& device, const Kernel& kernel) {
  Stopwatch watch;
  verify(kernel);
  auto own = std::make_shared<Kernel>(canonical(kernel));
  leave_out_passes(*own);
  auto signature = std::make_shared<Signature>(std::move(own));
  std::string key =
      fmt::format("{} {} {}", device.name(), device.target(), hash(signature->kernel()));
  double canonical_ms = watch.lap_ms();
  Code code = MemoryCache::instance().get(key, [&]() -> Code {
    note_canonical(canonical_ms);
    return device.compile(signature->kernel());
  });
  return {device, std::move(signature), std::move(code)};
}

void forget_compiled() {
  MemoryCache::instance().clear();
}

void run(Device& device, const Kernel& kernel, const Arguments& arguments) {
  compile(device, kernel)(arguments);
}

}  // namespace kiln
