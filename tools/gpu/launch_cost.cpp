// What compiling, loading and launching a kernel cost on this machine's GPU, against the bars of
// the design: a table, and exit status 0 if all are met. KILN_CACHE_DIR must name a directory that
// may be filled; set CUDA_CACHE_DISABLE=1 to see what the driver's compiler takes without its own
// cache.
#include "tools/gpu/launch_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/sparse_decode/sparse_decode.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_error.h"

namespace kiln {
namespace {

int failures = 0;

void row(const std::string& what, double value, const char* unit, std::optional<double> bar = {}) {
  const bool good = !bar || value <= *bar;
  failures += !good;
  fmt::print("  {:58} {:9.3f} {:2} {}\n", what, value, unit,
             bar ? fmt::format("{:4} (at most {:g})", good ? "pass" : "FAIL", *bar) : "");
}

double median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

AttentionConfig config_of(DType dtype, int64_t dim, bool causal) {
  return validated({.dtype = dtype, .head_dim = dim, .causal = causal, .lse = true});
}

// Ours: from the C++ program to PTX. The driver's: from PTX to code on the device.
void measure_compiling(Device& gpu) {
  ::setenv("KILN_CACHE", "off", 1);
  fmt::print("compiling block_sparse_attention, no disk cache\n");
  const std::pair<AttentionConfig, const char*> cases[] = {
      {config_of(F16, 128, true), "f16 D 128 causal, first in the process"},
      {config_of(BF16, 128, false), "bf16 D 128"},
      {config_of(F16, 64, true), "f16 D 64 causal"},
      {config_of(F16, 256, false), "f16 D 256"}};
  double bar = 250;
  for (const auto& [config, text] : cases) {
    Stopwatch watch;
    const Kernel kernel = block_sparse_attention_kernel(config);
    const double trace_ms = watch.lap_ms();
    compile(gpu, kernel);
    const double all_ms = trace_ms + watch.lap_ms();
    const CompileStats stats = compile_stats();
    row(fmt::format("{}: our part", text), all_ms - stats.load_ms, "ms", bar);
    row("  trace and canonical form", trace_ms + stats.canonical_ms, "ms");
    row("  passes", stats.passes_ms, "ms");
    row("  code generation", stats.codegen_ms, "ms");
    row("  the driver's part", stats.load_ms, "ms");
    bar = 150;
  }
  ::unsetenv("KILN_CACHE");
}

void measure_loading(Device& gpu) {
  const Kernel kernel = block_sparse_attention_kernel(config_of(F16, 128, true));
  forget_compiled();
  compile(gpu, kernel);
  std::vector<double> times;
  const int64_t before = compile_stats().disk_loads;
  for (int i = 0; i < 21; ++i) {
    forget_compiled();
    Stopwatch watch;
    compile(gpu, kernel);
    times.push_back(watch.lap_ms());
  }
  fmt::print("loading what the disk cache has\n");
  row("median of 21", median(times), "ms", 10);
  row("slowest", *std::max_element(times.begin(), times.end()), "ms");
  if (compile_stats().disk_loads - before != 21) {
    fmt::print("  the disk cache was not used: is KILN_CACHE_DIR writable?\n");
    ++failures;
  }
}

// The tensors of a small call, and variants of them with other addresses and another length; as the
// kernel's own arguments and by position.
class SmallCall {
 public:
  static constexpr int kVariants = 4;

  SmallCall(Device& gpu, const Signature& signature, const AttentionConfig& config)
      : gpu_(gpu), memory_(static_cast<char*>(gpu.allocate(kTensors * kBytes))) {
    const std::vector<char> zeros(kTensors * kBytes);
    gpu.upload(memory_, zeros.data(), zeros.size());
    const auto tensor = [](DType dtype, Shape shape) {
      return Memory::contiguous(nullptr, dtype, std::move(shape));
    };
    const Shape keys = {1, 1, 64, config.head_dim}, values = {1, 1, 64, config.dim_v()};
    args_.q = args_.k = tensor(config.dtype, keys);
    args_.v = args_.o = tensor(config.dtype, values);
    args_.lse = tensor(F32, {1, 1, 64});
    args_.mask = tensor(Bool, {1, 1, 1, 1});
    args_.scale = 0.125f;
    scale_ = Scalar::of_float(F32, 0.125);
    const std::map<std::string, const Memory*> named = {
        {"q", &args_.q}, {"k", &args_.k},      {"v", &args_.v},
        {"o", &args_.o}, {"lse", &*args_.lse}, {"mask", &*args_.mask}};
    for (const TensorInfo& info : signature.tensors()) pointers_.push_back(named.at(info.name));
  }

  ~SmallCall() { gpu_.release(memory_); }
  SmallCall(const SmallCall&) = delete;

  // Changes every address and the length; allocates nothing.
  void change(int variant) {
    const int64_t length = 60 + variant % kVariants;
    char* next = memory_ + static_cast<size_t>(variant % kVariants) * 512;
    for (Memory* tensor : {&args_.q, &args_.k, &args_.v, &args_.o, &*args_.lse}) {
      tensor->data = std::exchange(next, next + kBytes);
      tensor->shape[2] = length;
      tensor->strides[0] = tensor->strides[1] =
          tensor->shape.size() == 4 ? length * tensor->strides[2] : length;
    }
    args_.mask->data = next;
  }
  CallArguments by_position() const { return {pointers_, {&scale_, 1}}; }
  const AttentionArgs& args() const { return args_; }

 private:
  static constexpr size_t kTensors = 8, kBytes = 256 << 10;

  Device& gpu_;
  char* memory_;
  AttentionArgs args_;
  std::vector<const Memory*> pointers_;
  Scalar scale_;
};

using Bytes = std::vector<uint64_t>;

// One of a kernel's launches, by the driver alone.
void launch_bare(const CudaExecutable& kernel, size_t launch, const std::array<int64_t, 3>& grid,
                 const Bytes& bytes) {
  const cuda::Function& function = kernel.functions()[launch];
  size_t size = bytes.size() * sizeof(uint64_t);
  void* extra[] = {cuda::kParamBufferPointer, const_cast<uint64_t*>(bytes.data()),
                   cuda::kParamBufferSize, &size, cuda::kParamEnd};
  cuda::check(cuda::api().launch_kernel(
                  function.handle(), static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]),
                  static_cast<unsigned>(grid[2]),
                  static_cast<unsigned>(kernel.code().launches[launch].threads), 1, 1,
                  static_cast<unsigned>(function.dynamic_shared()), nullptr, nullptr, extra),
              "launching");
}

// The host's time of each of many launches, in microseconds, with an empty queue at the start.
template <class Launch>
void time_launches(CudaDevice& gpu, std::vector<double>& into, const Launch& launch) {
  constexpr int kLaunches = 200;
  for (int i = 0; i < kLaunches; ++i) {
    const auto start = std::chrono::steady_clock::now();
    launch(i);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    into.push_back(time.count());
  }
  gpu.synchronize();
}
constexpr int kRuns = 50;

// Medians over 10,000 calls each, in microseconds of the host's time. The ways alternate in short
// runs with an empty queue, so that no launch waits for the device.
void measure_launching(CudaDevice& gpu) {
  const AttentionConfig config = config_of(F16, 64, true);
  const BlockSparseAttention attend = block_sparse_attention(gpu, config);
  const Function& positional = attend;
  const auto kernel = cuda_executable(attend);
  const CallPlan& plan = kernel->plan();
  SmallCall call(gpu, plan.signature(), config);
  CallPlan::Frame frame;
  std::vector<Bytes> params;
  for (int i = 0; i < SmallCall::kVariants; ++i) {
    call.change(i);
    plan.enter(call.by_position(), frame);
    params.emplace_back(plan.parameter_words(0));
    plan.fill_slots(0, call.by_position(), frame, params.back().data());
  }
  const std::array<int64_t, 3> grid = plan.grid(0, frame);
  // Every way writes new addresses and lengths first, as a caller would: that is the caller's work,
  // so the bare launch, whose parameters are ready, does it too and only the call itself differs.
  const auto bare = [&](int i) {
    call.change(i);
    launch_bare(*kernel, 0, grid, params[static_cast<size_t>(i % SmallCall::kVariants)]);
  };
  const auto by_position = [&](int i) {
    call.change(i);
    positional(call.by_position(), nullptr);
  };
  const auto ours = [&](int i) {  // with the kernel's own arguments
    call.change(i);
    attend(call.args(), nullptr);
  };
  std::vector<double> times[4];
  const auto run = [&](std::vector<double>& into, const auto& launch) {
    time_launches(gpu, into, launch);
  };
  for (int round = 0; round < kRuns; ++round) {
    {
      cuda::Current current(gpu.context());
      run(times[0], bare);
      run(times[1], ours);
      run(times[3], by_position);
    }
    run(times[2], ours);
  }
  const double driver = median(times[0]), current = median(times[1]), pushed = median(times[2]),
               position = median(times[3]);
  fmt::print("launching it, {} bytes of parameters, addresses and length changed each time\n",
             params[0].size() * sizeof(uint64_t));
  row("bare cuLaunchKernel, median of 10,000", driver, "µs");
  row("by position, context current", position, "µs");
  row("  more than bare", position - driver, "µs", 0.7);
  row("ours, context current", current, "µs");
  row("  more than bare", current - driver, "µs", 0.7);
  row("ours, context pushed and popped", pushed, "µs");
  row("  more than bare", pushed - driver, "µs", 0.7);
}

// A decode call whose splits are merged: two launches and a workspace of the stream's.
void measure_decode(CudaDevice& gpu) {
  const SparseDecode decode = sparse_decode(gpu, {.dtype = F16, .head_dim = 128, .block = 64});
  const auto kernel = cuda_executable(decode);
  constexpr int64_t kRoom = 512, kEntries = 8, kSplits = 2;
  std::vector<void*> memory;
  const auto tensor = [&](DType dtype, Shape shape) {
    Memory made = Memory::contiguous(nullptr, dtype, std::move(shape));
    const std::vector<char> zeros(bytes_of(dtype, made.shape));
    memory.push_back(made.data = gpu.allocate(zeros.size()));
    gpu.upload(made.data, zeros.data(), zeros.size());
    return made;
  };
  DecodeArgs args;
  args.q = tensor(F16, {1, 1, 4, 128});
  args.k = tensor(F16, {1, kRoom, 1, 128});
  args.v = tensor(F16, {1, kRoom, 1, 128});
  args.o = tensor(F16, {1, 1, 4, 128});
  args.lengths = tensor(I32, {1});
  args.chosen = tensor(I32, {1, 1, 1, kEntries});
  args.splits = kSplits;
  const Memory workspace = tensor(U8, {1 << 16});

  const std::map<std::string, const Memory*> named = {{"q", &args.q},
                                                      {"k", &args.k},
                                                      {"v", &args.v},
                                                      {"o", &args.o},
                                                      {"lengths", &args.lengths},
                                                      {"chosen", &*args.chosen}};
  std::vector<const Memory*> ordered;
  const CallPlan& plan = kernel->plan();
  for (const TensorInfo& info : plan.signature().tensors()) ordered.push_back(named.at(info.name));
  const auto scalars = DecodeInterface::scalars(decode.config(), args);
  const CallArguments arguments{ordered, scalars.params, scalars.dims};
  CallPlan::Frame frame;
  plan.enter(arguments, frame);
  plan.place_workspaces(workspace.data, frame);
  std::vector<Bytes> params;
  for (size_t i = 0; i < kernel->functions().size(); ++i) {
    params.emplace_back(plan.parameter_words(i));
    plan.fill_slots(i, arguments, frame, params.back().data());
  }

  std::vector<double> times[2];
  cuda::Current current(gpu.context());
  for (int round = 0; round < kRuns; ++round) {
    time_launches(gpu, times[0], [&](int) {
      for (size_t i = 0; i < params.size(); ++i)
        launch_bare(*kernel, i, plan.grid(i, frame), params[i]);
    });
    time_launches(gpu, times[1], [&](int) { decode(args, nullptr); });
  }
  for (void* each : memory) gpu.release(each);
  const double bare = median(times[0]), ours = median(times[1]);
  fmt::print("launching sparse_decode, {} launches\n", params.size());
  row("bare cuLaunchKernel for each, median of 10,000", bare, "µs");
  row("the whole call", ours, "µs");
  row("  more than bare", ours - bare, "µs", 1.5);
}

void measure() {
  CudaDevice& gpu = cuda_device();
  fmt::print("{}\n{}", gpu.description(), cuda_limits(gpu.context().properties()));
  measure_compiling(gpu);
  measure_loading(gpu);
  measure_launching(gpu);
  measure_decode(gpu);
}

}  // namespace

int measure_launch_cost() {
  try {
    measure();
  } catch (const std::exception& error) {
    fmt::print("{}\n", error.what());
    return 1;
  }
  fmt::print("{} bars missed\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace kiln
