// Does the door to the CUDA driver work on this machine? Loads hand-written PTX, runs it, provokes
// each kind of error, and measures what a launch through it costs beside the driver alone. Exit
// status 0 if every check passed. With --ptx it prints the PTX and does nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

#include "ir/error.h"
#include "runtime/cuda_error.h"
#include "runtime/cuda_event.h"
#include "runtime/cuda_launch.h"
#include "runtime/cuda_memory.h"

namespace kiln::cuda {
namespace {

constexpr int kManyParams = 80;         // 640 bytes
constexpr int kSharedBytes = 96 << 10;  // above what a block gets without asking

constexpr const char* kHeader = ".version 7.0\n.target sm_80\n.address_size 64\n";

// y[i] += a · x[i] for i < n.
constexpr const char* kSaxpy = R"(
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %d<6>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.u32 %p, %r4, %r5;
  @%p ret;
  ld.param.u64 %d1, [x];
  ld.param.u64 %d2, [y];
  ld.param.f32 %f1, [a];
  cvta.to.global.u64 %d1, %d1;
  cvta.to.global.u64 %d2, %d2;
  mul.wide.u32 %d3, %r4, 4;
  add.s64 %d4, %d1, %d3;
  add.s64 %d5, %d2, %d3;
  ld.global.f32 %f2, [%d4];
  ld.global.f32 %f3, [%d5];
  fma.rn.f32 %f3, %f1, %f2, %f3;
  st.global.f32 [%d5], %f3;
  ret;
}
)";

// out[i] = i through the last words of the dynamic shared memory, whose size is `bytes`.
constexpr const char* kShared = R"(
.extern .shared .align 16 .b8 memory[];
.visible .entry through_shared(.param .u64 out, .param .u32 bytes)
{
  .reg .b32 %r<6>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
  ld.param.u32 %r3, [bytes];
  mov.u32 %r4, memory;
  add.s32 %r4, %r4, %r3;
  sub.s32 %r4, %r4, %r2;
  sub.s32 %r4, %r4, 4;
  st.shared.u32 [%r4], %r1;
  bar.sync 0;
  ld.shared.u32 %r5, [%r4];
  ld.param.u64 %d1, [out];
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r1, 4;
  add.s64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r5;
  ret;
}
)";

std::string ptx() {
  std::string many;
  for (int i = 0; i < kManyParams; ++i)
    many += fmt::format("{}.param .u64 p{}", i == 0 ? "" : ", ", i);
  return kHeader + std::string(kSaxpy) + kShared +
         fmt::format("\n.visible .entry many({})\n{{\n  ret;\n}}\n", many);
}

int failures = 0;

void expect(bool good, const std::string& what) {
  fmt::print("{}  {}\n", good ? "ok    " : "FAILED", what);
  failures += !good;
}

// The action must throw an error whose text contains all of `parts`.
template <class Action>
void expect_error(const char* what, std::initializer_list<std::string_view> parts, Action action) {
  std::string text = "no error";
  try {
    action();
  } catch (const Error& error) {
    text = error.what();
  }
  const bool good = std::all_of(parts.begin(), parts.end(),
                                [&](auto part) { return text.find(part) != text.npos; });
  expect(good, fmt::format("{}:\n{}", what, text));
}

template <class Params>
std::span<const std::byte> bytes_of(const Params& params) {
  return std::as_bytes(std::span(&params, 1));
}

struct SaxpyParams {
  const void* x;
  void* y;
  float a;
  uint32_t n;
};

void print_properties(const DeviceProperties& device) {
  fmt::print("driver: CUDA {} ({}), PTX up to {:.1f}\n", version_text(api().driver_version),
             api().library, newest_ptx(api().driver_version) / 10.0);
  fmt::print("device {}: {}\n", device.ordinal, device.text());
  fmt::print("  threads: {} a block, {} and {} blocks a multiprocessor\n",
             device.max_threads_per_block, device.max_threads_per_multiprocessor,
             device.max_blocks_per_multiprocessor);
  fmt::print("  registers: {} a block, {} a multiprocessor\n", device.registers_per_block,
             device.registers_per_multiprocessor);
  fmt::print("  shared: {} a block, {} opted in, {} a multiprocessor, {} reserved a block\n",
             device.shared_per_block, device.shared_per_block_optin,
             device.shared_per_multiprocessor, device.shared_reserved_per_block);
  fmt::print("  L2 {}, clock {} MHz, memory {} MHz × {} bits\n", size_text(device.l2_bytes),
             device.clock_kilohertz / 1000, device.memory_clock_kilohertz / 1000,
             device.memory_bus_bits);
}

void print_function(const Function& function, int threads) {
  const FunctionAttributes& a = function.attributes();
  fmt::print(
      "  {}: {} registers, {} local, {} static shared, {} dynamic, at most {} threads, "
      "{} blocks of {} a multiprocessor, made from {} for {}\n",
      function.name(), a.registers, a.local_bytes, a.static_shared, function.dynamic_shared(),
      a.max_threads, function.blocks_per_multiprocessor(threads), threads, a.ptx_version,
      a.binary_version);
  expect(function.local_memory_complaint().empty(), "no local memory");
}

void run_saxpy(const Function& saxpy) {
  constexpr uint32_t kCount = (1 << 24) + 3;
  constexpr size_t kBytes = kCount * sizeof(float);
  const Context& context = saxpy.context();
  print_function(saxpy, 256);
  std::vector<float> x(kCount), y(kCount), result(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    x[i] = static_cast<float>(i % 1000);
    y[i] = static_cast<float>(i % 77);
  }
  SaxpyParams params{allocate(context, kBytes), allocate(context, kBytes), 2, kCount};
  upload(context, const_cast<void*>(params.x), x.data(), kBytes);
  upload(context, params.y, y.data(), kBytes);
  Event start(context), stop(context);
  start.record(nullptr);
  launch(saxpy, {.grid = {(kCount + 255) / 256, 1, 1}, .block = {256, 1, 1}}, nullptr,
         bytes_of(params));
  stop.record(nullptr);
  const float milliseconds = elapsed_ms(start, stop);
  download(context, result.data(), params.y, kBytes);
  bool good = true;
  for (uint32_t i = 0; i < kCount; ++i) good &= result[i] == 2 * x[i] + y[i];
  expect(good, fmt::format("saxpy of {} elements is exact ({:.3f} ms, {:.0f} GB/s)", kCount,
                           milliseconds, 3e-6 * kBytes / milliseconds));
  copy(context, params.y, params.x, kBytes, nullptr);
  fill(context, params.y, std::byte{0}, kBytes / 2 / 4 * 4, nullptr);
  download(context, result.data(), params.y, kBytes);
  expect(result[0] == 0 && result[kCount / 2 - 2] == 0 && result[kCount - 1] == x[kCount - 1],
         "copy and fill on the device");
  release(context, const_cast<void*>(params.x));
  release(context, params.y);
}

void run_shared(const Function& function) {
  constexpr int kThreads = 1024;
  const Context& context = function.context();
  print_function(function, kThreads);
  std::vector<int> result(kThreads, -1);
  struct Params {
    void* out;
    uint32_t bytes;
  } params{allocate(context, kThreads * sizeof(int)), kSharedBytes};
  launch(function, {.block = {kThreads, 1, 1}}, nullptr,
         bytes_of(params).first(offsetof(Params, bytes) + sizeof params.bytes));
  download(context, result.data(), params.out, kThreads * sizeof(int));
  bool good = true;
  for (int i = 0; i < kThreads; ++i) good &= result[static_cast<size_t>(i)] == i;
  expect(good, fmt::format("a block with {} of dynamic shared memory", size_text(kSharedBytes)));
  release(context, params.out);
}

void check_pointers(const Context& context) {
  using Kind = PointerInfo::Kind;
  char* memory = static_cast<char*>(allocate(context, 1000));
  std::vector<char> host(1000);
  const PointerInfo info = pointer_info(context, memory + 999);
  expect(info.kind == Kind::Device && info.ordinal == context.ordinal(), "a device pointer");
  expect(pointer_info(context, host.data()).kind == Kind::Host, "a host pointer of the heap");
  expect(pointer_info(context, &memory).kind == Kind::Host, "a host pointer of the stack");
  expect(pointer_info(context, nullptr).kind == Kind::Host, "a null pointer");
  PointerCheck check(context);
  check(memory, "x");
  expect_error("host memory given", {"x: expected memory of device", "got host memory"},
               [&] { check(host.data(), "x"); });
  release(context, memory);
}

void check_errors(const Context& context, const std::shared_ptr<const Module>& module) {
  std::string wrong = ptx();
  wrong.replace(wrong.find("fma.rn.f32"), 10, "fma.rn.f31");
  expect_error("PTX with a mistake", {"refuses the PTX of 'wrong'", "fma.rn.f31"},
               [&] { load_module(context, wrong, "wrong"); });
  std::string newer = ptx();
  newer.replace(newer.find("7.0"), 3, "99.0");
  expect_error("PTX that is too new", {"it is PTX 99.0, the driver", "takes PTX up to"},
               [&] { load_module(context, newer, "newer"); });
  expect_error("code that is none", {"'none'"}, [&] { load_module(context, "none", "none"); });
  expect_error("an unknown function", {"'absent'"}, [&] { Function(module, "absent"); });
  expect_error("too much shared memory", {"bytes of shared memory a block"},
               [&] { Function(module, "through_shared", 1 << 20); });
  expect_error("too much memory", {"out of device memory", "asked for", "free"},
               [&] { allocate(context, size_t{1} << 45); });
  const Function saxpy(module, "saxpy");
  SaxpyParams params{};
  expect_error("too many threads", {"launching kernel 'saxpy'", "block 2048×1×1"}, [&] {
    launch(saxpy, {.block = {2048, 1, 1}}, nullptr, bytes_of(params));
  });
  MemoryInfo memory = memory_info(context);
  expect(memory.free > 0 && memory.free <= memory.total,
         fmt::format("free {} of {}", size_text(memory.free), size_text(memory.total)));
}

// Medians of 10,000 launches each, in microseconds of the host's time. The ways alternate in short
// runs with an empty queue, so that no launch waits for the device.
void measure_launches(const Function& function, std::span<const std::byte> params) {
  constexpr int kRuns = 50, kLaunches = 200;
  const Context& context = function.context();
  const Api& cuda = api();
  std::vector<void*> pointers;
  for (size_t i = 0; i + 8 <= params.size(); i += 8)
    pointers.push_back(const_cast<std::byte*>(&params[i]));
  const auto packed = [&] {
    size_t bytes = params.size();
    void* extra[] = {kParamBufferPointer, const_cast<std::byte*>(params.data()), kParamBufferSize,
                     &bytes, kParamEnd};
    check(cuda.launch_kernel(function.handle(), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra),
          "launching");
  };
  const auto listed = [&] {
    check(cuda.launch_kernel(function.handle(), 1, 1, 1, 32, 1, 1, 0, nullptr, pointers.data(),
                             nullptr),
          "launching");
  };
  const auto ours = [&] { launch(function, {.block = {32, 1, 1}}, nullptr, params); };
  std::vector<float> times[4];
  const auto run = [&](std::vector<float>& into, auto&& body) {
    for (int i = 0; i < kLaunches; ++i) {
      const auto start = std::chrono::steady_clock::now();
      body();
      const std::chrono::duration<float, std::micro> time =
          std::chrono::steady_clock::now() - start;
      into.push_back(time.count());
    }
    context.synchronize();
  };
  for (int round = 0; round < kRuns; ++round) {
    {
      Current current(context);
      run(times[0], packed);
      run(times[1], listed);
      run(times[2], ours);
    }
    run(times[3], ours);
  }
  double median[4];
  for (size_t way = 0; way < 4; ++way) {
    std::nth_element(times[way].begin(), times[way].begin() + kRuns * kLaunches / 2,
                     times[way].end());
    median[way] = times[way][kRuns * kLaunches / 2];
  }
  fmt::print(
      "launch of {}, {} parameter bytes, medians of {}:\n"
      "  bare cuLaunchKernel, packed buffer    {:6.3f} µs\n"
      "  bare cuLaunchKernel, list of pointers {:6.3f} µs\n"
      "  ours, context current                 {:6.3f} µs ({:+.3f})\n"
      "  ours, context pushed and popped       {:6.3f} µs ({:+.3f})\n",
      function.name(), params.size(), kRuns * kLaunches, median[0], median[1], median[2],
      median[2] - median[0], median[3], median[3] - median[0]);
  expect(median[2] - median[0] <= 0.7, "at most 0.7 µs more than a bare launch");
}

// Last: it ends what this process can do with the device.
void check_fault(const Function& saxpy) {
  SaxpyParams params{nullptr, nullptr, 1, 32};
  expect_error("a kernel that faults", {"last kernel launched: 'saxpy'", "ILLEGAL_ADDRESS"}, [&] {
    launch(saxpy, {.block = {32, 1, 1}}, nullptr, bytes_of(params));
    saxpy.context().synchronize(nullptr);
  });
}

void probe() {
  const Context& context = cuda::context(default_ordinal());
  print_properties(context.properties());
  const auto start = std::chrono::steady_clock::now();
  auto module = load_module(context, ptx(), "probe");
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  fmt::print("loading the PTX took {:.1f} ms; the compiler said:\n{}\n", time.count(),
             module->log().empty() ? "(nothing)" : module->log());
  const Function saxpy(module, "saxpy"), many(module, "many");
  run_saxpy(saxpy);
  run_shared(Function(module, "through_shared", kSharedBytes));
  check_pointers(context);
  check_errors(context, module);
  measure_launches(many, bytes_of(std::array<uint64_t, kManyParams>{}));
  check_fault(saxpy);
}

}  // namespace
}  // namespace kiln::cuda

int main(int count, char** arguments) {
  using namespace kiln::cuda;
  if (count > 1 && std::strcmp(arguments[1], "--ptx") == 0) {
    fmt::print("{}", ptx());
    return 0;
  }
  try {
    probe();
  } catch (const std::exception& error) {
    expect(false, error.what());
  }
  fmt::print("{} checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
