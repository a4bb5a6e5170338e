// What a process has made, by key: made once however many threads ask, forgotten when others were
// used later.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <future>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace kiln {

// Holds at most `capacity` values that are ready; `Value` is cheap to copy.
template <class Value>
class MemoryCache {
 public:
  explicit MemoryCache(size_t capacity) : capacity_(capacity) {}

  struct Found {
    Value value;
    bool hit;  // somebody else made it, or is about to have made it
  };
  // The value of the key; made by `make`, without a lock, if it is not there. An exception goes to
  // all who wait for it; who asks later tries again.
  template <class Make>
  Found get(const std::string& key, Make&& make) {
    std::unique_lock lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) {
      entries_.splice(entries_.begin(), entries_, it->second);
      std::shared_future<Value> future = it->second->second;
      lock.unlock();
      return {future.get(), true};
    }
    std::promise<Value> promise;
    entries_.emplace_front(key, promise.get_future().share());
    const auto own = entries_.begin();
    index_[key] = own;
    lock.unlock();
    try {
      Value value = make();
      promise.set_value(value);
      evict();
      return {std::move(value), false};
    } catch (...) {
      forget(own);
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return entries_.size();
  }

  void clear() {
    std::lock_guard lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) it = is_ready(*it) ? erase(it) : ++it;
  }

 private:
  using Entry = std::pair<std::string, std::shared_future<Value>>;
  using Entries = std::list<Entry>;

  static bool is_ready(const Entry& entry) {
    return entry.second.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  typename Entries::iterator erase(typename Entries::iterator it) {
    index_.erase(it->first);
    return entries_.erase(it);
  }
  void forget(typename Entries::iterator own) {
    std::lock_guard lock(mutex_);
    erase(own);
  }
  // Those that are being made stay: their makers hold iterators to them.
  void evict() {
    std::lock_guard lock(mutex_);
    for (auto it = entries_.end(); entries_.size() > capacity_ && it != entries_.begin();)
      if (is_ready(*--it)) it = erase(it);
  }

  mutable std::mutex mutex_;
  Entries entries_;  // the one used last first
  std::unordered_map<std::string, typename Entries::iterator> index_;
  size_t capacity_;
};

}  // namespace kiln
