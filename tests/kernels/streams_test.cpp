// One handle on many streams and in graphs, on a GPU; without one on the fake driver and the
// emulator, where everything is in order but the graph still keeps what it was captured with.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "runtime/compile.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/late_attention.h"
#include "tests/kernels/sparse_decode_case.h"
#include "tests/support/cuda_graph.h"
#include "tests/support/late_file.h"
#include "tests/support/on_device.h"
#include "tests/support/some_gpu.h"

namespace kiln::test {
namespace {

// KILN_TEST_ROUNDS: how often everything runs.
int rounds(int on_gpu, int on_fake) {
  const char* given = std::getenv("KILN_TEST_ROUNDS");
  return given ? std::atoi(given) : has_gpu() ? on_gpu : on_fake;
}

// A decode problem in a GPU's memory, with memory for its results; its call uses a workspace that a
// first launch fills and a second reads.
class Decode {
 public:
  Decode(CudaDevice& gpu, const DecodeConfig& config)
      : one(config, sizes()), gpu_(gpu), args_(one.args) {
    args_.splits = has_gpu() ? 4 : 2;
    for (Array* array : arrays()) memory_.push_back(gpu.allocate(array->bytes()));
    size_t next = 0;
    for (Memory* memory :
         {&args_.q, &args_.k, &args_.v, &args_.lengths, &*args_.chosen, &args_.o, &*args_.lse})
      memory->data = memory_[next++];
  }
  ~Decode() {
    for (void* memory : memory_) gpu_.release(memory);
  }
  Decode(const Decode&) = delete;

  void randomize(std::mt19937_64& random) {
    one.randomize(random);
    one.fill_cache(random, NAN);
  }
  void upload() {
    for (size_t i = 0; i < kInputs; ++i)
      gpu_.upload(memory_[i], arrays()[i]->data(), arrays()[i]->bytes());
  }
  void clear(Stream stream) {  // to NaN, so that what is left unwritten shows
    for (size_t i = kInputs; i < memory_.size(); ++i)
      cuda::fill(gpu_.context(), memory_[i], std::byte{0xff}, arrays()[i]->bytes(), stream);
  }
  void call(const SparseDecode& decode, Stream stream, const Workspace& workspace = {}) {
    decode(args_, stream, workspace);
  }
  DecodeLimits limits() const {
    return {.batch = one.sizes.batch, .heads_kv = one.sizes.heads_kv, .splits = *args_.splits};
  }
  // The bytes of o and lse; waits for the stream.
  std::vector<std::byte> results(Stream stream) {
    std::vector<std::byte> all(one.o.bytes() + one.lse.bytes());
    cuda::download(gpu_.context(), all.data(), memory_[kInputs], one.o.bytes(), stream);
    cuda::download(gpu_.context(), all.data() + one.o.bytes(), memory_[kInputs + 1],
                   one.lse.bytes(), stream);
    return all;
  }
  // What the reference makes of the same inputs, within the accuracy rule.
  void check(Stream stream) {
    const std::vector<std::byte> got = results(stream);
    std::memcpy(one.o.data(), got.data(), one.o.bytes());
    std::memcpy(one.lse.data(), got.data() + one.o.bytes(), one.lse.bytes());
    one.compare_with_reference();
  }

  SparseDecodeCase one;

 private:
  static constexpr size_t kInputs = 5;
  static DecodeProblem sizes() {
    if (has_gpu()) return {.batch = 16, .heads_kv = 4, .room = 1024, .entries = 64};
    return {.batch = 2, .heads_kv = 1, .room = 64, .entries = 4};
  }
  std::array<Array*, 7> arrays() {
    return {&one.q, &one.k_store, &one.v_store, &one.lengths, &one.chosen, &one.o, &one.lse};
  }

  CudaDevice& gpu_;
  DecodeArgs args_;
  std::vector<void*> memory_;
};

DecodeConfig decode_config(bool lists) {
  return {.dtype = F16,
          .head_dim = 16,
          .group = 4,
          .block = 16,
          .form = lists ? DecodeForm::Indices : DecodeForm::MaskBool,
          .lse = true};
}

}  // namespace

TEST_CASE("streams: one handle on 4 streams and in 2 graphs at once, equal every time",
          "[streams]") {
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  const SparseDecode decode = sparse_decode(gpu, decode_config(true));
  std::mt19937_64 random(run_seed() + 11);
  constexpr size_t kStreams = 4, kGraphs = 2;
  std::vector<std::unique_ptr<Decode>> problems;
  std::vector<std::unique_ptr<OwnStream>> streams;
  std::vector<std::unique_ptr<OwnGraph>> graphs;
  std::vector<std::vector<std::byte>> right;
  for (size_t i = 0; i < kStreams + kGraphs; ++i) {
    streams.push_back(std::make_unique<OwnStream>(gpu.context()));
    problems.push_back(std::make_unique<Decode>(gpu, decode_config(true)));
    problems[i]->randomize(random);
    problems[i]->upload();
    problems[i]->call(decode, *streams[i]);
    problems[i]->check(*streams[i]);
    right.push_back(problems[i]->results(*streams[i]));
  }
  for (size_t i = kStreams; i < kStreams + kGraphs; ++i)
    graphs.push_back(std::make_unique<OwnGraph>(
        gpu.context(), *streams[i], [&](Stream stream) { problems[i]->call(decode, stream); }));
  int64_t different = 0;
  for (int round = 0; round < rounds(1000, 3); ++round) {
    for (size_t i = 0; i < problems.size(); ++i) {
      problems[i]->clear(*streams[i]);
      if (i < kStreams)
        problems[i]->call(decode, *streams[i]);
      else
        graphs[i - kStreams]->launch(*streams[i]);
    }
    for (size_t i = 0; i < problems.size(); ++i)
      different += problems[i]->results(*streams[i]) != right[i];
  }
  CHECK(different == 0);
}

TEST_CASE("streams: a graph of the largest batch follows lengths, lists and masks", "[streams]") {
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  std::mt19937_64 random(run_seed() + 12);
  for (bool lists : {true, false}) {
    const SparseDecode decode = sparse_decode(gpu, decode_config(lists));
    OwnStream stream(gpu.context());
    Decode problem(gpu, decode_config(lists));
    problem.randomize(random);
    problem.upload();
    problem.call(decode, stream);
    const OwnGraph graph(gpu.context(), stream, [&](Stream s) { problem.call(decode, s); });
    int64_t different = 0;
    for (int replay = 0; replay < rounds(50, 3); ++replay) {
      problem.randomize(random);
      for (int64_t b = replay % 2; b < problem.one.sizes.batch; b += 2)
        problem.one.lengths.set(b, 0);
      problem.upload();
      problem.clear(stream);
      graph.launch(stream);
      const std::vector<std::byte> replayed = problem.results(stream);
      problem.clear(stream);
      problem.call(decode, stream);
      different += problem.results(stream) != replayed;
      if (replay < 3) problem.check(stream);
    }
    CHECK(different == 0);
  }
}

TEST_CASE("streams: an attention graph follows its lists, some of them empty", "[streams]") {
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  const AttentionConfig config{
      .dtype = F16, .head_dim = 32, .block = 32, .form = BlockForm::Lists, .lse = true};
  const int64_t seq = has_gpu() ? 1000 : 70;
  AttentionCase one(config, {.batch = 2, .heads = 2, .heads_kv = 1, .seq = seq, .seq_kv = seq});
  one.randomize(run_seed() + 13, 1);  // lists as long as they get
  const BlockSparseAttention attend = block_sparse_attention(gpu, config);
  Bindings host;
  host.tensors = {{"q", one.args.q},
                  {"k", one.args.k},
                  {"v", one.args.v},
                  {"o", one.args.o},
                  {"lse", *one.args.lse},
                  {"counts", *one.args.counts},
                  {"indices", *one.args.indices}};
  testing::OnDevice there(gpu, host);
  const auto& tensors = there.bindings().tensors;
  AttentionArgs args{tensors.at("q"),
                     tensors.at("k"),
                     tensors.at("v"),
                     tensors.at("o"),
                     {},
                     tensors.at("counts"),
                     tensors.at("indices"),
                     tensors.at("lse"),
                     {}};
  OwnStream stream(gpu.context());
  attend(args, stream);
  const OwnGraph graph(gpu.context(), stream, [&](Stream s) { attend(args, s); });
  std::mt19937_64 random(run_seed() + 14);
  std::vector<std::byte> replayed(one.o.bytes()), eager(one.o.bytes());
  int64_t different = 0;
  for (int replay = 0; replay < rounds(50, 3); ++replay) {
    Array& counts = one.lists.counts;
    for (int64_t i = 0; i < counts.size(); ++i)
      counts.set(
          i, static_cast<double>(random() % static_cast<uint64_t>(one.args.indices->shape[3] + 1)));
    gpu.upload(args.counts->data, counts.data(), counts.bytes());
    for (std::vector<std::byte>* into : {&replayed, &eager}) {
      cuda::fill(gpu.context(), args.o.data, std::byte{0xff}, one.o.bytes(), stream);
      if (into == &replayed)
        graph.launch(stream);
      else
        attend(args, stream);
      cuda::download(gpu.context(), into->data(), args.o.data, into->size(), stream);
    }
    different += replayed != eager;
    if (replay > 2) continue;
    std::memcpy(one.o.data(), eager.data(), eager.size());
    const AttentionReference reference =
        attention_reference(one.config, one.args, all_rows(one.args));
    CHECK(compare(to_doubles(one.args.o), reference.o, config.dim_v(), accuracy_rule(F16)).ok());
  }
  CHECK(different == 0);
}

TEST_CASE("streams: what an aborted call left in the workspace is nothing to the next",
          "[streams]") {
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  const SparseDecode decode = sparse_decode(gpu, decode_config(true));
  OwnStream stream(gpu.context());
  Decode problem(gpu, decode_config(true));
  std::mt19937_64 random(run_seed() + 15);
  problem.randomize(random);
  problem.upload();
  problem.call(decode, stream);
  const std::vector<std::byte> right = problem.results(stream);
  const size_t bytes = decode.workspace_bytes(problem.limits());
  void* memory = gpu.allocate(bytes);
  for (int garbage : {0x00, 0xff, 0x5a, 0x7f}) {
    cuda::fill(gpu.context(), memory, static_cast<std::byte>(garbage), bytes, stream);
    problem.clear(stream);
    problem.call(decode, stream, {memory, bytes});
    CHECK(problem.results(stream) == right);
  }
  gpu.synchronize();
  gpu.release(memory);
  if (has_gpu()) return;
  // The driver refuses the second launch of a call: the first has run, the workspace is half full.
  FakeCuda& fake = emulated_cuda(KILN_FAKE_CUDA);
  fake.launches_left = 1;
  CHECK_THROWS_AS(problem.call(decode, stream), DeviceError);
  fake.launches_left = -1;
  problem.clear(stream);
  problem.call(decode, stream);
  CHECK(problem.results(stream) == right);
}

TEST_CASE("streams: a counter of tiles is zeroed by the launches themselves", "[streams][late]") {
  if (!has_gpu()) return;  // no emulator runs its copies
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  const Function kernel =
      compile(gpu, testing::late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile"));
  AttentionCase one(late_config(), {1, 3, 3, 700, 700});
  one.randomize(run_seed() + 16, 0.4);
  LateAttention late(one);
  const Bindings bindings = bind(kernel.signature(), late.arguments(132));
  testing::OnDevice there(gpu, bindings);
  const CudaExecutable& code = *cuda_executable(kernel);
  const size_t bytes = code.workspace_bytes(there.bindings());
  REQUIRE(bytes > 0);
  void* memory = gpu.allocate(bytes);
  for (int garbage : {0x00, 0xff, 0x5a}) {
    cuda::fill(gpu.context(), memory, static_cast<std::byte>(garbage), bytes, nullptr);
    code.launch(there.bindings(), nullptr, {memory, bytes});
    there.fetch();
    late.check();
  }
  gpu.release(memory);
}

}  // namespace kiln::test
