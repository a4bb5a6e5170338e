#include "runtime/cuda_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>

#include "ir/error.h"

namespace kiln::cuda {
namespace {

struct Row {
  Result result;
  const char* name;
  const char* meaning;
  const char* hint;
};

constexpr const char* kSanitizer =
    "compute-sanitizer finds the access (its tools: memcheck, racecheck, synccheck); this process "
    "can use the device no more, start it again";
constexpr const char* kVisible =
    "nvidia-smi shows the devices; CUDA_VISIBLE_DEVICES may hide them; a container must be started "
    "with them";
constexpr const char* kReinstall =
    "restart the machine, or reinstall the driver: its kernel module and its library must be of "
    "one version";
constexpr const char* kCapture =
    "upload, download, allocate and synchronise before or after the capture; launches alone may be "
    "captured";
constexpr const char* kReset = "start this process again; if it happens again, look at dmesg";

constexpr Row kTable[] = {
    {Result::InvalidValue, "CUDA_ERROR_INVALID_VALUE", "a value that the driver does not take", ""},
    {Result::OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of device memory",
     "free memory on the device (nvidia-smi shows who has it; torch.cuda.empty_cache() returns "
     "PyTorch's), or run a smaller problem"},
    {Result::NotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised",
     "a forked process cannot use its parent's CUDA: start it by exec (Python: the 'spawn' "
     "method)"},
    {Result::Deinitialized, "CUDA_ERROR_DEINITIALIZED", "the driver has shut down",
     "use the device before the program's end: not from destructors of static objects"},
    {Result::StubLibrary, "CUDA_ERROR_STUB_LIBRARY",
     "this libcuda is the toolkit's stub, for linking only",
     "remove the toolkit's lib64/stubs from LD_LIBRARY_PATH, or unset KILN_LIBCUDA"},
    {Result::DeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE",
     "the device is busy or in an exclusive mode", "nvidia-smi shows who uses it, and its mode"},
    {Result::NoDevice, "CUDA_ERROR_NO_DEVICE", "there is no CUDA device", kVisible},
    {Result::InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "there is no such device", kVisible},
    {Result::InvalidImage, "CUDA_ERROR_INVALID_IMAGE", "the code is neither PTX nor a sound cubin",
     "compile it again; kiln cache clear, if it came from the disk cache"},
    {Result::InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "the context does not fit",
     "give a stream of the same device"},
    {Result::NoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the code is for another GPU",
     "compile for this device's architecture (kiln devices prints it)"},
    {Result::EccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory is defective",
     "reset the device; if it happens again, have it repaired"},
    {Result::InvalidPtx, "CUDA_ERROR_INVALID_PTX", "the driver's compiler refuses the PTX", ""},
    {Result::NvlinkUncorrectable, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "an NVLink failed", kReset},
    {Result::JitCompilerNotFound, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
     "the driver has no PTX compiler",
     "install the driver's libnvidia-ptxjitcompiler.so.1 beside its libcuda.so.1"},
    {Result::UnsupportedPtxVersion, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the PTX is newer than the driver", "update the NVIDIA driver"},
    {Result::JitCompilationDisabled, "CUDA_ERROR_JIT_COMPILATION_DISABLED",
     "the driver may not compile PTX", "unset CUDA_DISABLE_PTX_JIT"},
    {Result::Contained, "CUDA_ERROR_CONTAINED", "a memory error was contained", kReset},
    {Result::OperatingSystem, "CUDA_ERROR_OPERATING_SYSTEM", "the operating system refused",
     "look at the rights of /dev/nvidia*, and at dmesg"},
    {Result::InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "a handle that is not valid",
     "give a stream that exists, of the same device"},
    {Result::NotFound, "CUDA_ERROR_NOT_FOUND", "there is no such name", ""},
    {Result::IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "a kernel read or wrote memory that is not there", kSanitizer},
    {Result::LaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "a block needs more registers or shared memory than there is",
     "use fewer threads a block or smaller tiles"},
    {Result::LaunchTimeout, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran too long",
     "use a device without a display, or a smaller problem; a kernel that never ends is stopped so "
     "too"},
    {Result::ContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "the device was reset by this process", "do not call cudaDeviceReset beside Kiln"},
    {Result::Assert, "CUDA_ERROR_ASSERT", "a kernel's assertion failed", kReset},
    {Result::HardwareStackError, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel broke its stack",
     kSanitizer},
    {Result::IllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION",
     "a kernel ran an illegal instruction", kSanitizer},
    {Result::MisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS",
     "a kernel used an address that is not aligned", kSanitizer},
    {Result::InvalidAddressSpace, "CUDA_ERROR_INVALID_ADDRESS_SPACE",
     "a kernel used an address of another memory", kSanitizer},
    {Result::InvalidPc, "CUDA_ERROR_INVALID_PC", "a kernel jumped out of its code", kSanitizer},
    {Result::LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed on the device", kSanitizer},
    {Result::NotPermitted, "CUDA_ERROR_NOT_PERMITTED", "not permitted", ""},
    {Result::NotSupported, "CUDA_ERROR_NOT_SUPPORTED", "not supported on this device", ""},
    {Result::SystemNotReady, "CUDA_ERROR_SYSTEM_NOT_READY", "the machine is not ready",
     "start the services that its GPUs need (nvidia-fabricmanager on NVSwitch machines)"},
    {Result::SystemDriverMismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "the parts of the driver are of different versions", kReinstall},
    {Result::CompatNotSupported, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "the compatibility library does not work on this device",
     "remove cuda-compat from LD_LIBRARY_PATH"},
    {Result::StreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "not allowed while a stream is captured into a graph", kCapture},
    {Result::StreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "an earlier error spoilt the capture of a graph", kCapture},
    {Result::StreamCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "the default stream would wait for a stream that is captured into a graph", kCapture},
    {Result::InvalidClusterSize, "CUDA_ERROR_INVALID_CLUSTER_SIZE",
     "the device cannot run clusters of this size", ""},
    {Result::Unknown, "CUDA_ERROR_UNKNOWN", "an unknown failure of the driver", kReset},
};

std::atomic<Describe> driver_name = nullptr, driver_text = nullptr;

std::string ask(const std::atomic<Describe>& describe, Result result) {
  Describe function = describe;
  const char* text = nullptr;
  if (!function || function(result, &text) != Result::Success || !text) return "";
  return text;
}

}  // namespace

void describe_with(Describe name, Describe text) {
  driver_name = name;
  driver_text = text;
}

bool is_of_kernel(Result result) {
  switch (result) {
    case Result::Contained:
    case Result::IllegalAddress:
    case Result::LaunchTimeout:
    case Result::Assert:
    case Result::HardwareStackError:
    case Result::IllegalInstruction:
    case Result::MisalignedAddress:
    case Result::InvalidAddressSpace:
    case Result::InvalidPc:
    case Result::LaunchFailed: return true;
    default: return false;
  }
}

ResultInfo explain(Result result) {
  const Row* row = std::find_if(std::begin(kTable), std::end(kTable),
                                [&](const Row& each) { return each.result == result; });
  if (row != std::end(kTable)) return {row->name, row->meaning, row->hint};
  ResultInfo info{ask(driver_name, result), ask(driver_text, result), ""};
  if (info.name.empty()) info.name = fmt::format("CUDA error {}", static_cast<int>(result));
  if (info.meaning.empty()) info.meaning = "an error that this version does not know";
  return info;
}

void fail(Result result, const std::string& doing, const std::string& detail) {
  ResultInfo info = explain(result);
  throw DeviceError(fmt::format("{} while {} ({}){}{}", info.meaning, doing, info.name,
                                detail.empty() ? "" : ": ", detail),
                    info.hint);
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return fmt::format("{:.2f} {}", size, kUnits[unit]);
}

}  // namespace kiln::cuda
