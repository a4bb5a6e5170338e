// Memory for the workspaces of kernels: one block a stream. What is queued on one stream runs one
// after the other, so all kernels there may share it.
#pragma once

#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/cuda_context.h"

namespace kiln::cuda {

class WorkspacePool {
 public:
  explicit WorkspacePool(const Context& context) : context_(context) {}
  WorkspacePool(const WorkspacePool&) = delete;  // lives as long as the process, as its context

  struct Lease {
    void* memory;
    std::unique_lock<std::mutex> lock;
  };
  // The stream's block, of at least `bytes`. While the lease lives no other thread gets the block,
  // so that what is queued for one call stays together. Allocates when the stream needs more than
  // ever before, and then first waits for the stream. UserError naming `kernel` while the stream is
  // captured: the graph would outlive the lease.
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

  const Context& context_;
  std::mutex mutex_;
  std::map<Key, Block> blocks_;
};

}  // namespace kiln::cuda
