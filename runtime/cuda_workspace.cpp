#include "runtime/cuda_workspace.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/cuda_memory.h"

namespace kiln::cuda {
namespace {

const CUstream kPerThreadStream = reinterpret_cast<CUstream>(uintptr_t{2});

bool is_captured(const Context& context, CUstream stream) {
  CaptureStatus status = CaptureStatus::None;
  context.check(api().stream_is_capturing(stream, &status), "asking whether a stream is captured");
  return status != CaptureStatus::None;
}

}  // namespace

WorkspacePool::Block& WorkspacePool::block_of(CUstream stream) {
  const Key key = {stream,
                   stream == kPerThreadStream ? std::this_thread::get_id() : std::thread::id()};
  std::lock_guard lock(mutex_);
  return blocks_[key];
}

WorkspacePool::Lease WorkspacePool::lease(CUstream stream, size_t bytes, const char* kernel) {
  Current current(context_);
  if (is_captured(context_, stream))
    throw UserError(
        fmt::format("{}: a graph that is captured cannot use the stream's own workspace", kernel),
        fmt::format("allocate workspace_bytes ({} here) and give them to the launch", bytes));
  Block& block = block_of(stream);
  Lease lease{nullptr, std::unique_lock(block.mutex)};
  if (block.bytes < bytes) {
    context_.synchronize(stream);
    release(context_, std::exchange(block.memory, nullptr));
    block.bytes = 0;
    block.memory = allocate(context_, bytes);
    block.bytes = bytes;
  }
  lease.memory = block.memory;
  return lease;
}

}  // namespace kiln::cuda
