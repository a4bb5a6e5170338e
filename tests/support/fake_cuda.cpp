#include "tests/support/fake_cuda.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "tests/support/fake_kernels.h"
#include "tests/support/fake_state.h"

using namespace kiln::cuda;
using kiln::test::capture;
using kiln::test::fake;
using kiln::test::FakeCuda;

namespace {

CUctx_st contexts[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
thread_local std::vector<CUcontext> stack;

// What every entry point does first.
template <size_t kIndex>
Result enter() {
  return fake.enter(kIndex);
}

bool is_device(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < fake.devices.size();
}

void write_log(void* buffer, void* size, const std::string& text) {
  const size_t room = reinterpret_cast<size_t>(size);
  const size_t length = std::min(text.size(), room - 1);
  std::memcpy(buffer, text.data(), length);
  static_cast<char*>(buffer)[length] = '\0';
}

int newest_minor_of(int driver) {
  return driver / 10 % 100;
}  // CUDA 12.x takes PTX 8.x at most

}  // namespace

extern "C" {

FakeCuda* kiln_fake_cuda() {
  fake.stack = []() -> std::vector<CUcontext>& { return stack; };
  fake.context_of = [](int device) -> CUcontext { return &contexts[device]; };
  fake.reset = [](FakeCuda& self) {
    const FakeCuda* fresh = new FakeCuda;
    self.driver_version = fresh->driver_version;
    self.devices = fresh->devices;
    self.free_memory = fresh->free_memory;
    self.registers = fresh->registers;
    self.local_bytes = fresh->local_bytes;
    self.static_shared = fresh->static_shared;
    self.max_threads = fresh->max_threads;
    self.jit_log = fresh->jit_log;
    self.captured = nullptr;
    self.launches_left = -1;
    self.execute = nullptr;
    capture = {};
    self.history.reset();
    self.maps.clear();
    self.last_launch = self.launch_before = {};
    self.pending = Result::Success;
    self.forget();
    delete fresh;
  };
  return &fake;
}

Result cuDriverGetVersion(int* version) {
  *version = fake.driver_version;
  return Result::Success;
}

Result cuInit(unsigned) {
  Result answer = enter<FakeCuda::entry("cuInit")>();
  return answer == Result::Success && fake.devices.empty() ? Result::NoDevice : answer;
}

Result cuGetErrorName(Result result, const char** text) {
  *text = static_cast<int>(result) == 777 ? "CUDA_ERROR_FAKE" : nullptr;
  return *text ? Result::Success : Result::InvalidValue;
}

Result cuGetErrorString(Result result, const char** text) {
  *text = static_cast<int>(result) == 777 ? "the fake driver's own error" : nullptr;
  return *text ? Result::Success : Result::InvalidValue;
}

Result cuDeviceGetCount(int* count) {
  *count = static_cast<int>(fake.devices.size());
  return enter<FakeCuda::entry("cuDeviceGetCount")>();
}

Result cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return is_device(ordinal) ? enter<FakeCuda::entry("cuDeviceGet")>() : Result::InvalidDevice;
}

Result cuDeviceGetName(char* name, int size, CUdevice device) {
  std::strncpy(name, fake.devices.at(static_cast<size_t>(device)).name.c_str(),
               static_cast<size_t>(size));
  return enter<FakeCuda::entry("cuDeviceGetName")>();
}

Result cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  *bytes = fake.devices.at(static_cast<size_t>(device)).memory;
  return enter<FakeCuda::entry("cuDeviceTotalMem_v2")>();
}

Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, CUdevice device) {
  const kiln::test::FakeDevice& self = fake.devices.at(static_cast<size_t>(device));
  switch (attribute) {
    case DeviceAttribute::CapabilityMajor: *value = self.major; break;
    case DeviceAttribute::CapabilityMinor: *value = self.minor; break;
    case DeviceAttribute::MultiprocessorCount: *value = 132; break;
    case DeviceAttribute::MaxThreadsPerBlock: *value = 1024; break;
    case DeviceAttribute::MaxThreadsPerMultiprocessor: *value = 2048; break;
    case DeviceAttribute::SharedPerBlock: *value = 48 << 10; break;
    case DeviceAttribute::SharedPerBlockOptin: *value = 227 << 10; break;
    case DeviceAttribute::SharedPerMultiprocessor: *value = 228 << 10; break;
    case DeviceAttribute::WarpSize: *value = 32; break;
    default: *value = 1000 + static_cast<int>(attribute);
  }
  return enter<FakeCuda::entry("cuDeviceGetAttribute")>();
}

Result cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = &contexts[device];
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // slow, as the real one
  ++fake.retained[device];
  return enter<FakeCuda::entry("cuDevicePrimaryCtxRetain")>();
}

Result cuCtxGetCurrent(CUcontext* context) {
  *context = stack.empty() ? nullptr : stack.back();
  return enter<FakeCuda::entry("cuCtxGetCurrent")>();
}

Result cuCtxPushCurrent_v2(CUcontext context) {
  Result answer = enter<FakeCuda::entry("cuCtxPushCurrent_v2")>();
  if (answer == Result::Success) stack.push_back(context);
  return answer;
}

Result cuCtxPopCurrent_v2(CUcontext* context) {
  enter<FakeCuda::entry("cuCtxPopCurrent_v2")>();
  if (stack.empty()) return Result::InvalidContext;
  *context = stack.back();
  stack.pop_back();
  return Result::Success;
}

Result cuCtxSynchronize() {
  return enter<FakeCuda::entry("cuCtxSynchronize")>();
}
Result cuStreamSynchronize(CUstream) {
  return enter<FakeCuda::entry("cuStreamSynchronize")>();
}

Result cuStreamIsCapturing(CUstream stream, CaptureStatus* status) {
  *status = stream && stream == fake.captured ? CaptureStatus::Active : CaptureStatus::None;
  return enter<FakeCuda::entry("cuStreamIsCapturing")>();
}

Result cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, JitOption* options,
                          void** values) {
  Result answer = enter<FakeCuda::entry("cuModuleLoadDataEx")>();
  if (answer != Result::Success) return answer;
  if (stack.empty()) return Result::InvalidContext;
  auto value = [&](JitOption wanted) {
    return values[std::find(options, options + count, wanted) - options];
  };
  const std::string code = static_cast<const char*>(image);
  const bool cubin = code.starts_with(
      "\x7f"
      "ELF");
  const size_t version = code.find(".version ");
  if (version == code.npos || (cubin && code.find("corrupt") != code.npos))
    return Result::InvalidImage;
  const int major = code[version + 9] - '0', minor = std::atoi(&code[version + 11]);
  if (!cubin && (major > 8 || (major == 8 && minor > newest_minor_of(fake.driver_version))))
    return Result::UnsupportedPtxVersion;
  if (const size_t at = code.find("bogus"); at != code.npos) {
    const auto line = 1 + std::count(code.begin(), code.begin() + static_cast<ptrdiff_t>(at), '\n');
    write_log(value(JitOption::ErrorLog), value(JitOption::ErrorLogSize),
              "ptxas application ptx input, line " + std::to_string(line) +
                  "; fatal   : Parsing error near 'bogus': syntax error\n");
    return Result::InvalidPtx;
  }
  if (!cubin)
    write_log(value(JitOption::InfoLog), value(JitOption::InfoLogSize), fake.jit_log + "\n");
  fake.loaded = code;
  *module = new CUmod_st{code, stack.back()->device};
  ++fake.modules;
  return Result::Success;
}

Result cuModuleUnload(CUmodule module) {
  delete module;
  --fake.modules;
  return enter<FakeCuda::entry("cuModuleUnload")>();
}

// What the PTX declares: arrays of bytes, and words of 8.
static std::vector<size_t> declared_parameters(const std::string& code, size_t begin) {
  std::vector<size_t> bytes;
  const size_t end = code.find(')', begin);
  for (size_t at = begin; (at = code.find(".param", at + 1)) < end;) {
    const std::string declaration = code.substr(at, code.find_first_of(",)", at) - at);
    const size_t array = declaration.find('[');
    bytes.push_back(array == std::string::npos ? 8 : std::stoul(declaration.substr(array + 1)));
  }
  return bytes;
}

Result cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  const size_t entry = module->code.find(".entry " + std::string(name) + "(");
  if (entry == std::string::npos) return Result::NotFound;
  // As long as the library: tests do not outlive it.
  static auto& functions = *new std::map<std::string, CUfunc_st>;
  const std::string key = name + std::string("@") + std::to_string(module->device) + module->code;
  *function =
      &functions.try_emplace(key, CUfunc_st{name, module->code, module->device, 48 << 10, {}})
           .first->second;
  (*function)->param_bytes = declared_parameters(module->code, entry);
  return enter<FakeCuda::entry("cuModuleGetFunction")>();
}

Result cuFuncGetAttribute(int* value, FunctionAttribute attribute, CUfunction function) {
  switch (attribute) {
    case FunctionAttribute::MaxThreadsPerBlock: *value = fake.max_threads; break;
    case FunctionAttribute::StaticShared: *value = fake.static_shared; break;
    case FunctionAttribute::ConstantBytes: *value = 0; break;
    case FunctionAttribute::LocalBytes: *value = fake.local_bytes; break;
    case FunctionAttribute::Registers: *value = fake.registers; break;
    case FunctionAttribute::PtxVersion: *value = 80; break;
    case FunctionAttribute::BinaryVersion: *value = 90; break;
    case FunctionAttribute::MaxDynamicShared: *value = function->max_dynamic_shared; break;
  }
  return enter<FakeCuda::entry("cuFuncGetAttribute")>();
}

Result cuFuncSetAttribute(CUfunction function, FunctionAttribute attribute, int value) {
  if (attribute != FunctionAttribute::MaxDynamicShared) return Result::InvalidValue;
  function->max_dynamic_shared = value;
  return enter<FakeCuda::entry("cuFuncSetAttribute")>();
}

Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads,
                                                   size_t dynamic_shared) {
  const size_t shared = dynamic_shared + static_cast<size_t>(fake.static_shared);
  *blocks = std::min(2048 / threads, static_cast<int>((size_t{228} << 10) / shared));
  return enter<FakeCuda::entry("cuOccupancyMaxActiveBlocksPerMultiprocessor")>();
}

Result cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  Result answer = enter<FakeCuda::entry("cuMemAlloc_v2")>();
  if (answer != Result::Success) return answer;
  if (stack.empty()) return Result::InvalidContext;
  if (bytes == 0) return Result::InvalidValue;
  if (bytes > fake.free_memory) return Result::OutOfMemory;
  // Pages of the device's own, as on a GPU.
  constexpr size_t kPage = size_t{2} << 20;
  void* block = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  *memory = reinterpret_cast<CUdeviceptr>(block);
  fake.blocks[*memory] = {bytes, stack.back()->device, false};
  return Result::Success;
}

Result cuMemFree_v2(CUdeviceptr memory) {
  if (fake.blocks.erase(memory) == 0) return Result::InvalidValue;
  std::free(reinterpret_cast<void*>(memory));
  return enter<FakeCuda::entry("cuMemFree_v2")>();
}

Result cuMemAllocAsync(CUdeviceptr* memory, size_t bytes, CUstream stream) {
  Result answer = enter<FakeCuda::entry("cuMemAllocAsync")>();
  if (answer == Result::Success) answer = cuMemAlloc_v2(memory, bytes);
  if (answer == Result::Success && stream && stream == fake.captured)
    capture.memory.emplace_back(reinterpret_cast<void*>(*memory), [](void* block) {
      cuMemFree_v2(reinterpret_cast<CUdeviceptr>(block));
    });
  return answer;
}

Result cuMemFreeAsync(CUdeviceptr memory, CUstream stream) {
  if (stream && stream == fake.captured) return enter<FakeCuda::entry("cuMemFreeAsync")>();
  return cuMemFree_v2(memory);
}

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  if (stack.empty()) return Result::InvalidContext;
  *free = fake.free_memory;
  *total = fake.devices.at(static_cast<size_t>(stack.back()->device)).memory;
  return enter<FakeCuda::entry("cuMemGetInfo_v2")>();
}

Result cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream) {
  if (!kiln::test::block_of(fake, to, bytes)) return Result::InvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return enter<FakeCuda::entry("cuMemcpyHtoDAsync_v2")>();
}

Result cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream) {
  if (!kiln::test::block_of(fake, from, bytes)) return Result::InvalidValue;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return enter<FakeCuda::entry("cuMemcpyDtoHAsync_v2")>();
}

Result cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream) {
  if (!kiln::test::block_of(fake, to, bytes) || !kiln::test::block_of(fake, from, bytes))
    return Result::InvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return enter<FakeCuda::entry("cuMemcpyDtoDAsync_v2")>();
}

Result cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream) {
  if (!kiln::test::block_of(fake, to, bytes)) return Result::InvalidValue;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return enter<FakeCuda::entry("cuMemsetD8Async")>();
}

Result cuPointerGetAttributes(unsigned count, PointerAttribute* attributes, void** values,
                              CUdeviceptr pointer) {
  const FakeCuda::Block* block = kiln::test::block_of(fake, pointer);
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case PointerAttribute::MemoryType:
        *static_cast<MemoryType*>(values[i]) = !block          ? MemoryType::None
                                               : block->pinned ? MemoryType::Host
                                                               : MemoryType::Device;
        break;
      case PointerAttribute::IsManaged: *static_cast<int*>(values[i]) = 0; break;
      case PointerAttribute::DeviceOrdinal:
        *static_cast<int*>(values[i]) = block ? block->device : -2;
        break;
    }
  return enter<FakeCuda::entry("cuPointerGetAttributes")>();
}

// Refuses what the real one does, as far as Kiln can get it wrong.
Result cuTensorMapEncodeTiled(EncodedMap* map, MapDType dtype, unsigned rank, void* memory,
                              const uint64_t* extents, const uint64_t* strides, const unsigned* box,
                              const unsigned* steps, MapInterleave interleave, MapSwizzle swizzle,
                              MapPromotion promotion, MapFill fill) {
  Result answer = enter<FakeCuda::entry("cuTensorMapEncodeTiled")>();
  if (answer != Result::Success) return answer;
  const uint64_t misaligned = reinterpret_cast<uint64_t>(map) % 64;
  if (misaligned || reinterpret_cast<uint64_t>(memory) % 16 || rank < 1 || rank > 5)
    return Result::InvalidValue;
  for (unsigned i = 0; i < rank; ++i)
    if (extents[i] == 0 || extents[i] > uint64_t{1} << 32 || box[i] == 0 || box[i] > 256)
      return Result::InvalidValue;
  for (unsigned i = 0; i + 1 < rank; ++i)
    if (strides[i] % 16 || strides[i] >= uint64_t{1} << 40) return Result::InvalidValue;
  std::lock_guard lock(fake.launching);
  fake.maps.push_back({static_cast<int>(dtype),
                       memory,
                       {extents, extents + rank},
                       {strides, strides + rank - 1},
                       {box, box + rank},
                       {steps, steps + rank},
                       static_cast<int>(interleave),
                       static_cast<int>(swizzle),
                       static_cast<int>(promotion),
                       static_cast<int>(fill)});
  std::fill_n(map->words, 16, fake.maps.size());
  return Result::Success;
}

Result cuEventCreate(CUevent* event, unsigned) {
  Result answer = enter<FakeCuda::entry("cuEventCreate")>();
  if (answer != Result::Success) return answer;
  *event = new CUevent_st{};
  ++fake.events;
  return Result::Success;
}

Result cuEventDestroy_v2(CUevent event) {
  delete event;
  --fake.events;
  return enter<FakeCuda::entry("cuEventDestroy_v2")>();
}

Result cuEventRecord(CUevent event, CUstream) {
  event->time = std::chrono::steady_clock::now();
  return enter<FakeCuda::entry("cuEventRecord")>();
}

Result cuEventSynchronize(CUevent) {
  return enter<FakeCuda::entry("cuEventSynchronize")>();
}

Result cuEventElapsedTime(float* milliseconds, CUevent start, CUevent stop) {
  *milliseconds = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  return enter<FakeCuda::entry("cuEventElapsedTime")>();
}

}  // extern "C"

// Fails to compile unless each of them has the type that the code under test calls it by.
[[maybe_unused]] static const Api kTyped = {cuInit,
                                            cuGetErrorName,
                                            cuGetErrorString,
                                            cuDeviceGetCount,
                                            cuDeviceGet,
                                            cuDeviceGetName,
                                            cuDeviceTotalMem_v2,
                                            cuDeviceGetAttribute,
                                            cuDevicePrimaryCtxRetain,
                                            cuCtxGetCurrent,
                                            cuCtxPushCurrent_v2,
                                            cuCtxPopCurrent_v2,
                                            cuCtxSynchronize,
                                            cuStreamSynchronize,
                                            cuStreamIsCapturing,
                                            cuModuleLoadDataEx,
                                            cuModuleUnload,
                                            cuModuleGetFunction,
                                            cuFuncGetAttribute,
                                            cuFuncSetAttribute,
                                            cuOccupancyMaxActiveBlocksPerMultiprocessor,
                                            cuLaunchKernel,
                                            cuLaunchKernelEx,
                                            cuMemAlloc_v2,
                                            cuMemFree_v2,
                                            cuMemAllocAsync,
                                            cuMemFreeAsync,
                                            cuMemGetInfo_v2,
                                            cuMemcpyHtoDAsync_v2,
                                            cuMemcpyDtoHAsync_v2,
                                            cuMemcpyDtoDAsync_v2,
                                            cuMemsetD8Async,
                                            cuPointerGetAttributes,
                                            cuTensorMapEncodeTiled,
                                            cuEventCreate,
                                            cuEventDestroy_v2,
                                            cuEventRecord,
                                            cuEventSynchronize,
                                            cuEventElapsedTime,
                                            0,
                                            ""};
