// Threads that share the blocks of a launch.
#pragma once

#include <cstdint>
#include <functional>

namespace kiln {

// Threads a launch may use, the caller's included: set_host_threads, else KILN_THREADS, else one a
// core. UserError for a count below 1 or above 1024.
int host_threads();
void set_host_threads(int count);  // 0: back to the default

// Calls body(begin, end) for consecutive parts of [0, count), on several threads and in any order,
// and returns when all are done. The first exception ends the rest and is thrown here. May be
// called from many threads and from inside a body. Bodies run in the default floating-point
// environment.
void parallel_for(int64_t count, const std::function<void(int64_t begin, int64_t end)>& body);

// Aligned memory of this thread, for the object's life; kept by the thread for later use. Contents
// are undefined. Objects on one thread nest.
class Scratch {
 public:
  explicit Scratch(size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace kiln
