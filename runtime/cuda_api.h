// The CUDA driver's interface, declared here: the build needs no toolkit, the program no driver.
// Only the values that Kiln uses are listed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace kiln::cuda {

using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUevent = struct CUevent_st*;
// Any cudaStream_t or CUstream of the caller converts to it. Null: the legacy default stream.
using CUstream = void*;

enum class Result : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  Deinitialized = 4,
  StubLibrary = 34,
  DeviceUnavailable = 46,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidImage = 200,
  InvalidContext = 201,
  NoBinaryForGpu = 209,
  EccUncorrectable = 214,
  InvalidPtx = 218,
  NvlinkUncorrectable = 220,
  JitCompilerNotFound = 221,
  UnsupportedPtxVersion = 222,
  JitCompilationDisabled = 223,
  Contained = 226,
  OperatingSystem = 304,
  InvalidHandle = 400,
  NotFound = 500,
  IllegalAddress = 700,
  LaunchOutOfResources = 701,
  LaunchTimeout = 702,
  ContextIsDestroyed = 709,
  Assert = 710,
  HardwareStackError = 714,
  IllegalInstruction = 715,
  MisalignedAddress = 716,
  InvalidAddressSpace = 717,
  InvalidPc = 718,
  LaunchFailed = 719,
  NotPermitted = 800,
  NotSupported = 801,
  SystemNotReady = 802,
  SystemDriverMismatch = 803,
  CompatNotSupported = 804,
  StreamCaptureUnsupported = 900,
  StreamCaptureInvalidated = 901,
  StreamCaptureImplicit = 906,
  InvalidClusterSize = 912,
  Unknown = 999,
};

enum class DeviceAttribute : int {
  MaxThreadsPerBlock = 1,
  SharedPerBlock = 8,
  WarpSize = 10,
  RegistersPerBlock = 12,
  ClockKilohertz = 13,
  MultiprocessorCount = 16,
  MemoryClockKilohertz = 36,
  MemoryBusBits = 37,
  L2Bytes = 38,
  MaxThreadsPerMultiprocessor = 39,
  CapabilityMajor = 75,
  CapabilityMinor = 76,
  SharedPerMultiprocessor = 81,
  RegistersPerMultiprocessor = 82,
  SharedPerBlockOptin = 97,
  MaxBlocksPerMultiprocessor = 106,
  SharedReservedPerBlock = 111,
};

enum class FunctionAttribute : int {
  MaxThreadsPerBlock = 0,
  StaticShared = 1,
  ConstantBytes = 2,
  LocalBytes = 3,
  Registers = 4,
  PtxVersion = 5,
  BinaryVersion = 6,
  MaxDynamicShared = 8,
};

enum class PointerAttribute : int { MemoryType = 2, IsManaged = 8, DeviceOrdinal = 9 };

enum class MemoryType : unsigned { None = 0, Host = 1, Device = 2 };  // None: unknown to CUDA

enum class CaptureStatus : int { None = 0, Active = 1, Invalidated = 2 };

enum class JitOption : int {
  InfoLog = 3,
  InfoLogSize = 4,
  ErrorLog = 5,
  ErrorLogSize = 6,
  LogVerbose = 12,
};

// A tensor map: how the GPU's copy engine (TMA) goes through a tensor, for the driver to fill in.
struct alignas(64) EncodedMap {
  uint64_t words[16];
};

enum class MapDType : int {
  U8 = 0,
  U16 = 1,
  U32 = 2,
  I32 = 3,
  U64 = 4,
  I64 = 5,
  F16 = 6,
  F32 = 7,
  F64 = 8,
  BF16 = 9,
};

enum class MapInterleave : int { None = 0 };

enum class MapSwizzle : int { None = 0, Bytes32 = 1, Bytes64 = 2, Bytes128 = 3 };

enum class MapPromotion : int { None = 0, Bytes64 = 1, Bytes128 = 2, Bytes256 = 3 };

enum class MapFill : int { Zeros = 0 };

// One of the driver's launch attributes: that a launch may begin before its stream is idle.
struct LaunchAttribute {
  static constexpr unsigned kEarly = 6;  // programmatic stream serialization
  unsigned id = kEarly, unused = 0;
  alignas(8) int allowed = 1;  // of 64 bytes that differ by attribute
  int others[15] = {};
};
struct LaunchConfig {
  unsigned grid[3], block[3], dynamic_shared;
  CUstream stream;
  const LaunchAttribute* attributes;
  unsigned count;
};

// Keys of the `extra` list of a launch, which the end marker closes.
inline void* const kParamBufferPointer = reinterpret_cast<void*>(uintptr_t{1});
inline void* const kParamBufferSize = reinterpret_cast<void*>(uintptr_t{2});
inline void* const kParamEnd = nullptr;

// The driver's functions. All are there: an Api exists only of a driver that can be used.
struct Api {
#define KILN_CUDA(member, symbol, ...) Result (*member)(__VA_ARGS__);
#include "runtime/cuda_api.def"
#undef KILN_CUDA
  int driver_version;   // of CUDA, as 12040 for 12.4
  std::string library;  // the path or name it was opened by
};

constexpr int kMinimumDriver = 12000;  // the first that knows sm_90a

// Opens a driver library, checks its version and initialises it; the library stays loaded.
// DeviceError if there is none, it is no CUDA driver, it is too old or sees no device.
Api load_api(const std::string& library);

// The process's driver, loaded when first asked for: $KILN_LIBCUDA, else libcuda.so.1. A failure is
// tried again by the next call.
const Api& api();

std::string version_text(int version);  // "12.4" for 12040

}  // namespace kiln::cuda
