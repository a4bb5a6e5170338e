// Block-sparse attention of head dim 128 by the kernel in tests/files/late, beside the CUDA
// prototype of the same schedule (a PTX file with the parameters below): the same masks, in turn.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "ir/error.h"
#include "kernels/kernels.h"
#include "runtime/cuda_error.h"
#include "runtime/runtime.h"
#include "tests/gpu/race.h"
#include "tests/support/late_file.h"

namespace kiln {
namespace {

constexpr int64_t kHeads = 32, kDim = 128, kBlock = 128;
constexpr int kMultiprocessors = 132;
constexpr double kFlopsPerClock = 4096;  // of a multiprocessor, f16 and bf16 by wgmma

// What the prototype's entry takes.
struct alignas(128) PrototypeParams {
  cuda::EncodedMap q, k, v, o;
  const void *indices, *counts, *mask, *order;
  int* counter;
  void* output;
  int tiles_q, tiles_k, tiles, seq;
  float scale_log2;
  int causal;
  uint64_t* clock;
};
static_assert(sizeof(PrototypeParams) == 640);
constexpr int kPrototypeShared = 230592, kPrototypeThreads = 384;

class OnGpu {
 public:
  OnGpu(CudaDevice& gpu, const Array& array) : gpu_(gpu), memory_(array.view()) {
    memory_.data = gpu.allocate(array.bytes());
    gpu.upload(memory_.data, array.data(), array.bytes());
  }
  OnGpu(const OnGpu&) = delete;
  ~OnGpu() { gpu_.release(memory_.data); }
  const Memory& memory() const { return memory_; }
  void fetch(Array& array) const { gpu_.download(array.data(), memory_.data, array.bytes()); }

 private:
  CudaDevice& gpu_;
  Memory memory_;
};

// Each block of the causal triangle with the probability, the diagonal and the first one always.
Array random_blocks(int64_t tiles, double density, uint64_t seed) {
  Array mask(Bool, {1, kHeads, tiles, tiles});
  std::mt19937_64 random(seed);
  std::bernoulli_distribution coin(density);
  for (int64_t i = 0; i < mask.size(); ++i) {
    const int64_t row = i / tiles % tiles, column = i % tiles;
    const bool chosen = coin(random) || column == row || column == 0;
    mask.set(i, chosen && column <= row);
  }
  return mask;
}

// The prototype expects rows of `tiles` entries.
Array wide_indices(const BlockLists& lists, int64_t tiles) {
  Array wide(I32, {1, kHeads, tiles, tiles});
  const int64_t longest = lists.indices.shape()[3];
  for (int64_t i = 0; i < kHeads * tiles * longest; ++i)
    wide.set(i / longest * tiles + i % longest, lists.indices.get(i));
  return wide;
}

cuda::EncodedMap prototype_map(const Memory& memory, unsigned rows, unsigned halves) {
  cuda::EncodedMap map;
  const auto all = static_cast<uint64_t>(count(memory.shape)) / kDim;
  const uint64_t extents[] = {64, all, kDim / 64}, strides[] = {kDim * 2, 128};
  const unsigned box[] = {64, rows, halves}, steps[] = {1, 1, 1};
  cuda::check(cuda::api().tensor_map_encode(&map, cuda::MapDType::F16, 3, memory.data, extents,
                                            strides, box, steps, cuda::MapInterleave::None,
                                            cuda::MapSwizzle::Bytes128,
                                            cuda::MapPromotion::Bytes256, cuda::MapFill::Zeros),
              "encoding the prototype's maps");
  return map;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw UserError(fmt::format("cannot read '{}'", path));
  return text.str();
}

std::string entry_of(const std::string& ptx) {
  const std::string word = ".entry ";
  const size_t at = ptx.find(word) + word.size();
  return ptx.substr(at, ptx.find('(', at) - at);
}

struct Problem {
  int64_t seq;
  double density;
};

class Race {
 public:
  Race(CudaDevice& gpu, const Problem& problem)
      : gpu_(gpu),
        problem_(problem),
        tiles_((problem.seq + kBlock - 1) / kBlock),
        shape_({1, kHeads, problem.seq, kDim}) {
    for (Array* array : {&q_, &k_, &v_, &o_}) *array = Array(F16, shape_);
    for (Array* array : {&q_, &k_, &v_}) fill_normal(*array, ++seed_);
    mask_ = random_blocks(tiles_, problem.density, ++seed_);
    lists_ = to_lists(mask_);
  }

  // The problem in the GPU's memory, and a call of our kernel.
  struct Loaded {
    Loaded(CudaDevice& gpu, const Race& race)
        : q(gpu, race.q_),
          k(gpu, race.k_),
          v(gpu, race.v_),
          o(gpu, race.o_),
          counts(gpu, race.lists_.counts),
          indices(gpu, race.lists_.indices),
          kernel(cuda_executable(
              compile(gpu, kiln::testing::late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile")))) {
      Arguments named;
      named.tensor("q", q.memory()).tensor("k", k.memory()).tensor("v", v.memory());
      named.tensor("o", o.memory()).tensor("counts", counts.memory());
      named.tensor("indices", indices.memory()).dim("ctas", kMultiprocessors);
      named.param("scale", 1 / std::sqrt(static_cast<double>(kDim)));
      bindings = bind(kernel->plan().signature(), named);
      call = kernel->plan().positional(bindings);
    }
    void launch() const { kernel->launch(call.view(), nullptr); }

    const OnGpu q, k, v, o, counts, indices;
    std::shared_ptr<const CudaExecutable> kernel;
    Bindings bindings;
    CallPlan::Positional call;
  };

  // In turn with the same problem cut to a length that is no multiple of the tile.
  void run_ragged(Race& ragged) {
    const Loaded whole(gpu_, *this), cut(gpu_, ragged);
    const auto results =
        race(gpu_, {{"ragged", [&] { cut.launch(); }}, {"whole", [&] { whole.launch(); }}});
    fmt::print("S{} beside S{}: ", ragged.problem_.seq, problem_.seq);
    fmt::print("{:.3f} and {:.3f} ms, {:.2f} and {:.2f} us a thousand blocks\n",
               results[0].median_ms(), results[1].median_ms(),
               1e6 * results[0].median_ms() / ragged.blocks(),
               1e6 * results[1].median_ms() / blocks());
    ragged.check(cut.o);
  }

  void run(const std::string& prototype) {
    const Loaded loaded(gpu_, *this);
    const OnGpu o2(gpu_, o_), wide(gpu_, wide_indices(lists_, tiles_));
    const Array zeros(I64, {8});
    const OnGpu scratch(gpu_, zeros), clocks(gpu_, zeros);
    std::vector<Contender> contenders = {{"kiln", [&] { loaded.launch(); }}};

    std::optional<cuda::Function> function;
    PrototypeParams params = {};
    if (!prototype.empty()) {
      const std::string ptx = file_text(prototype);
      function.emplace(cuda::load_module(gpu_.context(), ptx, prototype), entry_of(ptx),
                       kPrototypeShared);
      cuda::Current current(gpu_.context());
      params.q = prototype_map(loaded.q.memory(), 128, 2),
      params.k = prototype_map(loaded.k.memory(), 128, 2);
      params.v = prototype_map(loaded.v.memory(), 128, 2),
      params.o = prototype_map(o2.memory(), 16, 1);
      params.indices = wide.memory().data, params.counts = loaded.counts.memory().data;
      params.counter = static_cast<int*>(scratch.memory().data);
      params.output = o2.memory().data;
      params.tiles_q = params.tiles_k = static_cast<int>(tiles_);
      params.tiles = static_cast<int>(kHeads * tiles_), params.seq = static_cast<int>(problem_.seq);
      params.scale_log2 =
          static_cast<float>(1 / std::sqrt(static_cast<double>(kDim)) / std::log(2.0));
      params.causal = 1;
      params.clock = static_cast<uint64_t*>(clocks.memory().data);
      contenders.push_back({"prototype", [&] {
                              cuda::launch(*function,
                                           {{kMultiprocessors, 1, 1}, {kPrototypeThreads, 1, 1}},
                                           nullptr, std::as_bytes(std::span(&params, 1)), 5);
                            }});
    }
    const std::vector<RaceResult> results = race(gpu_, contenders);
    gpu_.synchronize();
    double gigahertz = 0;
    if (!prototype.empty()) {
      Array read(I64, {8});
      clocks.fetch(read);
      gigahertz = read.get(0) / read.get(1);
    }
    report(results, gigahertz);
    check(loaded.o);
  }

 private:
  double blocks() const {
    double sum = 0;
    for (int64_t i = 0; i < lists_.counts.size(); ++i) sum += lists_.counts.get(i);
    return sum;
  }

  void report(const std::vector<RaceResult>& results, double gigahertz) const {
    const double flops = 4.0 * kBlock * kBlock * kDim * blocks();
    fmt::print(
        "B1 H{} S{} D{} f16, 128-blocks, causal, density {}: {:.0f} blocks, clock {:.3f} GHz\n",
        kHeads, problem_.seq, kDim, problem_.density, blocks(), gigahertz);
    for (const RaceResult& result : results) {
      const double seconds = result.median_ms() * 1e-3;
      fmt::print("  {:10} {:9.3f} ms {:7.1f} TFLOP/s", result.name, result.median_ms(),
                 flops / seconds * 1e-12);
      if (gigahertz > 0)
        fmt::print("  utilisation {:.3f}",
                   flops / (seconds * gigahertz * 1e9 * kMultiprocessors * kFlopsPerClock));
      fmt::print("  speed of the last, by rounds: x{:.3f}\n",
                 1 / time_ratio(result, results.back()));
    }
  }

  void check(const OnGpu& o) {
    o.fetch(o_);
    AttentionConfig config{.dtype = F16, .block = kBlock, .causal = true};
    config = validated(config);
    AttentionArgs args{q_.view(), k_.view(), v_.view(), o_.view(), mask_.view(), {}, {}, {}, {}};
    std::vector<int64_t> rows;
    std::mt19937_64 random(++seed_);
    for (int i = 0; i < 128; ++i)
      rows.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(kHeads * problem_.seq)));
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
    const AttentionReference reference = attention_reference(config, args, rows);
    std::vector<double> got;
    for (const int64_t row : rows)
      for (int64_t i = 0; i < kDim; ++i) got.push_back(o_.get(row * kDim + i));
    const Comparison result = compare(got, reference.o, kDim, accuracy_rule(F16));
    fmt::print("  check of {} rows: {} {}\n", rows.size(), result.ok() ? "ok" : "FAIL",
               result.str());
    failed_ = failed_ || !result.ok();
  }

  CudaDevice& gpu_;
  const Problem problem_;
  const int64_t tiles_;
  const Shape shape_;
  Array q_, k_, v_, o_, mask_;
  BlockLists lists_;
  uint64_t seed_ = 11;

 public:
  bool failed_ = false;
};

}  // namespace

int race_attention(const std::string& prototype) {
  CudaDevice& gpu = cuda_device(0, "sm_90a");
  setenv("KILN_CACHE", "off", 1);
  Stopwatch watch;
  compile(gpu, kiln::testing::late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile"));
  const double all = watch.lap_ms(), driver = compile_stats().load_ms;
  fmt::print(
      "block_sparse_d128, first in the process: our part {:.0f} ms, the driver's {:.0f} ms\n",
      all - driver, driver);
  bool failed = false;
  for (const Problem& problem : {Problem{32768, 0.1}, {32768, 0.3}, {8192, 0.25}}) {
    Race one(gpu, problem);
    one.run(prototype);
    if (problem.density == 0.1) {
      Race ragged(gpu,
                  {problem.seq - 68, problem.density});  // the prototype takes whole tiles only
      one.run_ragged(ragged);
      failed = failed || ragged.failed_;
    }
    failed = failed || one.failed_;
  }
  return failed;
}

}  // namespace kiln
