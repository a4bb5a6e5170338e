// Memory for the workspaces of kernels: one block a stream. What is queued on one stream runs one
// after the other, so all kernels there may share it. What is captured into a graph gets memory of
// the graph's own: replays run beside the stream and beside other graphs.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/cuda_context.h"

namespace kiln::cuda {

class WorkspacePool {
 public:
  explicit WorkspacePool(const Context& context) : context_(context) {}
  WorkspacePool(const WorkspacePool&) = delete;  // lives as long as the process, as its context

  // While it lives no other thread gets a stream's block, so that what is queued for one call stays
  // together.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept { *this = std::move(other); }
    Lease& operator=(Lease&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(lock_, other.lock_);
      std::swap(capturing_, other.capturing_);
      return *this;
    }
    ~Lease() {  // the graph's memory is given back, in the graph, behind what was launched
      if (capturing_) api().memory_free_queued(reinterpret_cast<CUdeviceptr>(memory_), *capturing_);
    }
    void* memory() const { return memory_; }

   private:
    friend class WorkspacePool;
    void* memory_ = nullptr;
    std::unique_lock<std::mutex> lock_;
    std::optional<CUstream> capturing_;
  };
  // The stream's block, of at least `bytes`. Allocates when the stream needs more than ever before,
  // and then first waits for the stream. While it is captured: memory that the graph allocates when
  // it runs; DeviceError if the driver has none, with the workspace of `kernel` to give instead.
  Lease lease(CUstream stream, size_t bytes, const char* kernel);

 private:
  struct Block {
    std::mutex mutex;
    void* memory = nullptr;
    size_t bytes = 0;
  };
  // One handle means a stream of its own in every thread; only there is the thread told apart.
  using Key = std::pair<CUstream, std::thread::id>;
  Block& block_of(CUstream stream);
  void allocate_in_graph(Lease& lease, CUstream stream, size_t bytes, const char* kernel);

  const Context& context_;
  std::mutex mutex_;
  std::map<Key, Block> blocks_;
};

// Is what is queued on the stream captured into a graph?
bool is_captured(const Context& context, CUstream stream);

}  // namespace kiln::cuda
