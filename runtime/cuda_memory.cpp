#include "runtime/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"
#include "runtime/cuda_error.h"

namespace kiln::cuda {
namespace {

CUdeviceptr address(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

[[noreturn]] void out_of_memory(const Context& context, size_t bytes) {
  size_t free = 0, total = 0;
  const bool known = api().memory_info(&free, &total) == Result::Success;
  const ResultInfo info = explain(Result::OutOfMemory);
  throw DeviceError(
      fmt::format("{} on {}: asked for {}, {} ({})", info.meaning, context.text(), size_text(bytes),
                  known ? fmt::format("free {} of {}", size_text(free), size_text(total))
                        : "and the driver does not say how much is free",
                  info.name),
      info.hint);
}

// A copy fails for the addresses it is given as often as for the device.
[[noreturn]] void copy_failed(const Context& context, Result result, const char* doing,
                              const void* to, const void* from, size_t bytes) {
  context.fail(result, doing, fmt::format("{} from {} to {}", size_text(bytes), from, to));
}

}  // namespace

void* allocate(const Context& context, size_t bytes) {
  Current current(context);
  CUdeviceptr memory = 0;
  const Result result = api().memory_allocate(&memory, std::max<size_t>(bytes, 1));
  if (result == Result::OutOfMemory) out_of_memory(context, bytes);
  context.check(result, "allocating device memory");
  return reinterpret_cast<void*>(memory);
}

void release(const Context& context, void* memory) {
  if (!memory) return;
  Current current(context);
  const Result result = api().memory_free(address(memory));
  if (result != Result::Success)
    context.fail(result, "releasing device memory", fmt::format("{}", memory));
}

void upload(const Context& context, void* to, const void* from, size_t bytes, CUstream stream) {
  if (bytes == 0) return;
  Current current(context);
  const Result result = api().memory_upload(address(to), from, bytes, stream);
  if (result != Result::Success)
    copy_failed(context, result, "copying to the device", to, from, bytes);
  context.check(api().stream_synchronize(stream), "waiting for a copy to the device");
}

void download(const Context& context, void* to, const void* from, size_t bytes, CUstream stream) {
  if (bytes == 0) return;
  Current current(context);
  const Result result = api().memory_download(to, address(from), bytes, stream);
  if (result != Result::Success)
    copy_failed(context, result, "copying from the device", to, from, bytes);
  context.check(api().stream_synchronize(stream), "waiting for a copy from the device");
}

void copy(const Context& context, void* to, const void* from, size_t bytes, CUstream stream) {
  if (bytes == 0) return;
  Current current(context);
  const Result result = api().memory_copy(address(to), address(from), bytes, stream);
  if (result != Result::Success)
    copy_failed(context, result, "copying on the device", to, from, bytes);
}

void fill(const Context& context, void* to, std::byte value, size_t bytes, CUstream stream) {
  if (bytes == 0) return;
  Current current(context);
  const Result result =
      api().memory_fill(address(to), static_cast<unsigned char>(value), bytes, stream);
  if (result != Result::Success)
    context.fail(result, "filling device memory", fmt::format("{} at {}", size_text(bytes), to));
}

MemoryInfo memory_info(const Context& context) {
  Current current(context);
  MemoryInfo info;
  context.check(api().memory_info(&info.free, &info.total), "asking for the free memory");
  return info;
}

PointerInfo pointer_info(const Context& context, const void* pointer) {
  using Kind = PointerInfo::Kind;
  Current current(context);
  MemoryType type = MemoryType::None;
  int managed = 0, ordinal = -1;
  PointerAttribute attributes[] = {PointerAttribute::MemoryType, PointerAttribute::IsManaged,
                                   PointerAttribute::DeviceOrdinal};
  void* values[] = {&type, &managed, &ordinal};
  const Result result =
      api().pointer_attributes(std::size(attributes), attributes, values, address(pointer));
  // Of an address that CUDA has never seen it says so in either of two ways.
  if (result == Result::InvalidValue) return {};
  context.check(result, "asking whose memory a pointer is");
  if (managed) return {Kind::Managed, -1};
  switch (type) {
    case MemoryType::Host: return {Kind::Pinned, -1};
    case MemoryType::Device: return {Kind::Device, ordinal};
    default: return {};
  }
}

void PointerCheck::look_up(const void* pointer, std::string_view what) {
  using Kind = PointerInfo::Kind;
  const PointerInfo info = pointer_info(context_, pointer);
  if (info.kind == Kind::Managed) return;
  if (info.kind == Kind::Device && info.ordinal == context_.ordinal()) {
    const uintptr_t page = page_of(pointer);
    pages_[page % kEntries].store(page, std::memory_order_relaxed);
    return;
  }
  const std::string got = info.kind == Kind::Device
                              ? fmt::format("memory of device {}", info.ordinal)
                          : info.kind == Kind::Pinned ? "pinned host memory"
                                                      : "host memory";
  throw UserError(fmt::format("{}: expected memory of {}, got {} (address {})", what,
                              context_.text(), got, pointer),
                  info.kind == Kind::Device ? "move the tensor, or run on the device where it is"
                                            : "copy the tensor to the device first");
}

}  // namespace kiln::cuda
