#include "runtime/cuda_workspace.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/cuda_memory.h"

namespace kiln::cuda {
namespace {

const CUstream kPerThreadStream = reinterpret_cast<CUstream>(uintptr_t{2});

}  // namespace

bool is_captured(const Context& context, CUstream stream) {
  Current current(context);
  CaptureStatus status = CaptureStatus::None;
  context.check(api().stream_is_capturing(stream, &status), "asking whether a stream is captured");
  return status != CaptureStatus::None;
}

WorkspacePool::Block& WorkspacePool::block_of(CUstream stream) {
  const Key key = {stream,
                   stream == kPerThreadStream ? std::this_thread::get_id() : std::thread::id()};
  std::lock_guard lock(mutex_);
  return blocks_[key];
}

WorkspacePool::Lease WorkspacePool::lease(CUstream stream, size_t bytes, const char* kernel) {
  Current current(context_);
  Lease lease;
  if (is_captured(context_, stream)) {
    allocate_in_graph(lease, stream, bytes, kernel);
    return lease;
  }
  Block& block = block_of(stream);
  lease.lock_ = std::unique_lock(block.mutex);
  if (block.bytes < bytes) {
    context_.synchronize(stream);
    release(context_, std::exchange(block.memory, nullptr));
    block.bytes = 0;
    block.memory = allocate(context_, bytes);
    block.bytes = bytes;
  }
  lease.memory_ = block.memory;
  return lease;
}

// Captured, the two calls become nodes of the graph, which owns the memory between them.
void WorkspacePool::allocate_in_graph(Lease& lease, CUstream stream, size_t bytes,
                                      const char* kernel) {
  CUdeviceptr memory = 0;
  const Result result = api().memory_allocate_queued(&memory, bytes, stream);
  if (result != Result::Success)
    context_.fail(result, fmt::format("{}: allocating a workspace in the graph", kernel),
                  fmt::format("allocate workspace_bytes ({} here) beforehand and give them to the "
                              "call",
                              bytes));
  lease.memory_ = reinterpret_cast<void*>(memory);
  lease.capturing_ = stream;
}

}  // namespace kiln::cuda
