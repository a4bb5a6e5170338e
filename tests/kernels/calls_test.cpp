// The contract of every library call: one shape, every argument fault a sentence, one compilation
// for all sizes, and no allocation on the way to a GPU.
#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <utility>

#include "ir/error.h"
#include "kernels/kernels.h"
#include "runtime/stats.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/allocations.h"
#include "tests/support/some_gpu.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.message();
  }
  return "no error";
}

// Zeroed tensors in a device's memory.
class Tensors {
 public:
  explicit Tensors(Device& device) : device_(device) {}
  ~Tensors() {
    for (void* memory : owned_) device_.release(memory);
  }
  Tensors(const Tensors&) = delete;
  Memory make(DType dtype, Shape shape) {
    const size_t bytes = static_cast<size_t>(count(shape)) * size_of(dtype) + 512;
    owned_.push_back(device_.allocate(bytes));
    device_.upload(owned_.back(), std::vector<std::byte>(bytes).data(), bytes);
    const auto begin = reinterpret_cast<uintptr_t>(owned_.back());
    return Memory::contiguous(static_cast<std::byte*>(owned_.back()) + (0 - begin) % 256, dtype,
                              std::move(shape));
  }

 private:
  Device& device_;
  std::vector<void*> owned_;
};

template <class Args>
struct Argument {
  const char* name;
  std::function<Memory&(Args&)> of;
  bool written = false;
};

struct Fault {
  const char* what;
  const char*
      says;  // after the argument's name; null: the message may name the one it disagrees with
  std::function<bool(Memory&)> make;  // false: not of this tensor
  bool only_written = false;
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> all = {
      {"dtype", ": expected ", [](Memory& m) { return m.dtype = I64, true; }},
      {"rank", ": expected ",
       [](Memory& m) {
         m.shape.erase(m.shape.begin());
         m.strides.erase(m.strides.begin());
         return true;
       }},
      {"an extent that others lack", nullptr, [](Memory& m) { return ++m.shape[0], true; }},
      {"a negative extent", nullptr, [](Memory& m) { return m.shape[0] = -1, true; }},
      {"the last axis apart", ": expected stride 1 on the last axis, got strides [",
       [](Memory& m) { return m.strides.back() = 2, true; }},
      {"a stride too few", " strides, got [", [](Memory& m) { return m.strides.pop_back(), true; }},
      {"strides beyond memory", ": expected strides within the address space, got [",
       [](Memory& m) { return m.strides[0] = INT64_MAX, m.strides.size() > 1; }},
      {"elements that overwrite each other",
       ": expected strides other than 0, as it is written, got",
       [](Memory& m) { return m.strides[0] = 0, true; }, true},
      {"an odd address", ": expected an address that is a multiple of ",
       [](Memory& m) {
         m.data = static_cast<std::byte*>(m.data) + 1;
         return size_of(m.dtype) > 1;
       }},
      {"null", "got a null address", [](Memory& m) { return m.data = nullptr, true; }},
  };
  return all;
}

template <class Handle>
void check_faults(Device& device, const Handle& f, const typename Handle::Args& good,
                  const std::vector<Argument<typename Handle::Args>>& arguments) {
  const bool on_gpu = device.name().starts_with("cuda");
  REQUIRE(error_of([&] { f(good, nullptr); }) == "no error");
  device.synchronize();
  const auto expect = [&](const char* name, const typename Handle::Args& args,
                          const std::string& says) {
    const std::string message = error_of([&] { f(args, nullptr); });
    CHECK_THAT(message, Contains(says) && Contains("expected ") && Contains("got "));
    if (name) CHECK_THAT(" " + message, Contains(fmt::format(" {}: ", name)));
    CHECK_THAT(error_of([&] { f(args); }), Contains("expected ") && Contains("got "));
  };
  for (const auto& argument : arguments) {
    for (const Fault& fault : faults()) {
      auto args = good;
      if (fault.only_written && !argument.written) continue;
      if (!fault.make(argument.of(args))) continue;
      INFO(argument.name << ": " << fault.what);
      expect(fault.says ? argument.name : nullptr, args, fault.says ? fault.says : "");
    }
    auto args = good;
    INFO(argument.name << ": said to be another device's");
    argument.of(args).device = &kiln::device("interpreter");
    expect(argument.name, args, "got memory of interpreter");
    argument.of(args).device = &device;
    CHECK(error_of([&] { f(args, nullptr); }) == "no error");
    CHECK(error_of([&] { f(args); }) == "no error");
    device.synchronize();
    if (!on_gpu) continue;
    std::vector<double> here(1 << 16);
    argument.of(args).data = here.data();
    INFO(argument.name << ": in the host's memory");
    expect(argument.name, args, "expected memory of device ");
  }
  // Workspaces and streams.
  alignas(256) std::array<std::byte, 512> host_memory;
  Tensors tensors(device);
  const Memory there = tensors.make(U8, {4096});
  const auto with = [&](const Workspace& workspace, Stream stream = nullptr) {
    return error_of([&] { f(good, stream, workspace); });
  };
  CHECK(with({there.data, 4096}) == "no error");
  CHECK_THAT(with({nullptr, 4096}), Contains(": workspace: expected 4096 bytes of the device's") &&
                                        Contains("got a null address"));
  CHECK_THAT(with({static_cast<std::byte*>(there.data) + 8, 4088}),
             Contains(": workspace: expected an address that is a multiple of 256, got 0x"));
  if (on_gpu)
    CHECK_THAT(with({host_memory.data(), 512}),
               Contains(": workspace: expected memory of device ") && Contains("got host memory"));
  else
    CHECK_THAT(with({}, &host_memory), Contains(": stream: expected null on "));
  // Released handles.
  auto moved = f;
  const auto taken = std::move(moved);
  for (const Handle& released : {Handle(), moved}) {
    CHECK_THAT(error_of([&] { released(good, nullptr); }),
               StartsWith("a released handle was used"));
    CHECK_THAT(error_of([&] { released(good); }), StartsWith("a released handle was used"));
    CHECK_THAT(error_of([&] { released.workspace_bytes({}); }),
               StartsWith("a released handle was used"));
  }
  CHECK(error_of([&] { taken(good, nullptr); }) == "no error");
  device.synchronize();
}

AttentionArgs attention_args(Tensors& tensors, const AttentionConfig& c, BlockForm form) {
  AttentionArgs args{tensors.make(c.dtype, {2, 4, 70, c.head_dim}),
                     tensors.make(c.dtype, {2, 2, 90, c.head_dim}),
                     tensors.make(c.dtype, {2, 2, 90, c.dim_v()}),
                     tensors.make(c.dtype, {2, 4, 70, c.dim_v()}),
                     {},
                     {},
                     {},
                     {},
                     {}};
  if (form == BlockForm::MaskBool) args.mask = tensors.make(Bool, {2, 4, 5, 6});
  if (form == BlockForm::Lists) {
    args.counts = tensors.make(I32, {2, 4, 5});
    args.indices = tensors.make(I32, {2, 4, 5, 3});
  }
  if (c.lse) args.lse = tensors.make(F32, {2, 4, 70});
  return args;
}

void check_attention(Device& device, BlockForm form, bool checked) {
  const AttentionConfig config{.dtype = F16,
                               .head_dim = 16,
                               .head_dim_v = 32,
                               .block = 16,
                               .form = form,
                               .lse = true,
                               .checked = checked};
  const BlockSparseAttention f = block_sparse_attention(device, config);
  Tensors tensors(device);
  const AttentionArgs good = attention_args(tensors, config, form);
  using A = AttentionArgs;
  std::vector<Argument<A>> arguments = {{"q", [](A& a) -> Memory& { return a.q; }},
                                        {"k", [](A& a) -> Memory& { return a.k; }},
                                        {"v", [](A& a) -> Memory& { return a.v; }},
                                        {"o", [](A& a) -> Memory& { return a.o; }, true},
                                        {"lse", [](A& a) -> Memory& { return *a.lse; }, true}};
  if (good.mask) arguments.push_back({"mask", [](A& a) -> Memory& { return *a.mask; }});
  if (good.counts) {
    arguments.push_back({"counts", [](A& a) -> Memory& { return *a.counts; }});
    arguments.push_back({"indices", [](A& a) -> Memory& { return *a.indices; }});
  }
  check_faults(device, f, good, arguments);
  const AttentionLimits limits{.batch = 2, .heads = 4, .heads_kv = 2, .seq = 70, .seq_kv = 90};
  CHECK((f.workspace_bytes(limits) > 0) == checked);  // what the checks find
  if (!checked) return;
  const Memory workspace = tensors.make(U8, {4096});
  CHECK_THAT(error_of([&] {
               f(good, nullptr, {workspace.data, 1});
             }),
             Contains(": workspace: expected at least ") && Contains(" bytes, got 1"));
}

void check_decode(Device& device) {
  DecodeConfig config{.head_dim = 16, .group = 2, .block = 16, .lse = true, .split = false};
  Tensors tensors(device);
  using D = DecodeArgs;
  const D good{.q = tensors.make(F16, {2, 4, 16}),
               .k = tensors.make(F16, {2, 48, 2, 16}),
               .v = tensors.make(F16, {2, 48, 2, 16}),
               .o = tensors.make(F16, {2, 4, 16}),
               .lengths = tensors.make(I32, {2}),
               .chosen = tensors.make(I32, {2, 2, 3}),
               .lse = tensors.make(F32, {2, 4})};
  check_faults<SparseDecode>(device, sparse_decode(device, config), good,
                             {{"q", [](D& d) -> Memory& { return d.q; }},
                              {"k", [](D& d) -> Memory& { return d.k; }},
                              {"v", [](D& d) -> Memory& { return d.v; }},
                              {"lengths", [](D& d) -> Memory& { return d.lengths; }},
                              {"chosen", [](D& d) -> Memory& { return *d.chosen; }},
                              {"o", [](D& d) -> Memory& { return d.o; }, true},
                              {"lse", [](D& d) -> Memory& { return *d.lse; }, true}});
  config.split = true;
  const SparseDecode merged = sparse_decode(device, config);
  CHECK(merged.workspace_bytes({.batch = 2, .heads_kv = 2}) > 0);
  const Memory workspace = tensors.make(U8, {4096});
  CHECK_THAT(error_of([&] {
               merged(good, nullptr, {workspace.data, 1});
             }),
             Contains(": workspace: expected at least ") && Contains(" bytes, got 1"));
}

void check_quest(Device& device) {
  const QuestConfig config{.dtype = F16, .head_dim = 16, .block = 8};
  Tensors tensors(device);
  using P = MinmaxPoolArgs;
  const MinmaxPool pool = minmax_pool(device, config);
  check_faults<MinmaxPool>(device, pool,
                           {tensors.make(F16, {2, 20, 3, 16}), tensors.make(I32, {2}),
                            tensors.make(F16, {2, 3, 3, 16}), tensors.make(F16, {2, 3, 3, 16})},
                           {{"k", [](P& p) -> Memory& { return p.k; }},
                            {"lengths", [](P& p) -> Memory& { return p.lengths; }},
                            {"kmin", [](P& p) -> Memory& { return p.kmin; }, true},
                            {"kmax", [](P& p) -> Memory& { return p.kmax; }, true}});
  CHECK(pool.workspace_bytes({.batch = 2, .room = 20, .heads_kv = 3}) == 0);
  using S = QuestScoreArgs;
  const QuestScore score = quest_score(device, config);
  check_faults<QuestScore>(
      device, score,
      {tensors.make(F16, {2, 6, 16}), tensors.make(F16, {2, 5, 3, 16}),
       tensors.make(F16, {2, 5, 3, 16}), tensors.make(I32, {2}), tensors.make(F32, {2, 3, 5})},
      {{"q", [](S& s) -> Memory& { return s.q; }},
       {"kmin", [](S& s) -> Memory& { return s.kmin; }},
       {"kmax", [](S& s) -> Memory& { return s.kmax; }},
       {"lengths", [](S& s) -> Memory& { return s.lengths; }},
       {"scores", [](S& s) -> Memory& { return s.scores; }, true}});
  CHECK(score.workspace_bytes({.batch = 2, .heads = 6, .heads_kv = 3, .blocks = 5}) == 0);
}

void check_others(Device& device) {
  Tensors tensors(device);
  using M = MatmulArgs;
  const Matmul multiply =
      matmul(device, {.dtype = F16, .out = F32, .block_m = 16, .block_n = 16, .block_k = 16});
  check_faults<Matmul>(
      device, multiply,
      {tensors.make(F16, {20, 40}), tensors.make(F16, {40, 30}), tensors.make(F32, {20, 30})},
      {{"a", [](M& m) -> Memory& { return m.a; }},
       {"b", [](M& m) -> Memory& { return m.b; }},
       {"c", [](M& m) -> Memory& { return m.c; }, true}});
  CHECK(multiply.workspace_bytes({.m = 20, .n = 30, .k = 40}) == 0);
  using S = RowSoftmaxArgs;
  const RowSoftmax softmax = row_softmax(device, {.dtype = F32, .block_n = 64});
  check_faults<RowSoftmax>(device, softmax,
                           {tensors.make(F32, {20, 30}), tensors.make(F32, {20, 30})},
                           {{"x", [](S& s) -> Memory& { return s.x; }},
                            {"y", [](S& s) -> Memory& { return s.y; }, true}});
  CHECK(softmax.workspace_bytes({.rows = 20, .cols = 30}) == 0);
  using C = TileCopyArgs;
  const TileCopy copier = tile_copy(device, {.dtype = F32, .out = BF16, .block_n = 64});
  check_faults<TileCopy>(device, copier,
                         {tensors.make(F32, {20, 30}), tensors.make(BF16, {20, 30})},
                         {{"x", [](C& c) -> Memory& { return c.x; }},
                          {"y", [](C& c) -> Memory& { return c.y; }, true}});
  CHECK(copier.workspace_bytes({.rows = 20, .cols = 30}) == 0);
}

void check_all(Device& device) {
  check_attention(device, BlockForm::MaskBool, false);
  check_attention(device, BlockForm::Lists, true);
  check_attention(device, BlockForm::Dense, false);
  check_decode(device);
  check_quest(device);
  check_others(device);
}

}  // namespace

TEST_CASE("calls: every argument fault of every kernel, on the host", "[calls]") {
  check_all(device("host"));
}

TEST_CASE("calls: every argument fault of every kernel, on a GPU", "[calls]") {
  check_all(some_gpu(KILN_FAKE_CUDA));
}

TEST_CASE("calls: configurations that cannot be name the field", "[calls]") {
  Device& host = device("host");
  CHECK_THAT(error_of([&] { matmul(host, {.dtype = I8}); }),
             Contains("dtype: expected f16, bf16, f32 or f64, got i8"));
  CHECK_THAT(error_of([&] { matmul(host, {.block_k = 7}); }),
             Contains("block_k: expected 8 to 256, got 7"));
  CHECK_THAT(error_of([&] { row_softmax(host, {.dtype = F64}); }),
             Contains("dtype: expected f16, bf16 or f32, got f64"));
  CHECK_THAT(error_of([&] { row_softmax(host, {.block_m = 0}); }),
             Contains("block_m: expected 1 to 128, got 0"));
  CHECK_THAT(error_of([&] { tile_copy(host, {.out = U8}); }),
             Contains("out: expected f16, bf16 or f32, got u8"));
  CHECK_THAT(error_of([&] { tile_copy(host, {.block_n = 8193}); }),
             Contains("block_n: expected 1 to 8192, got 8193"));
}

TEST_CASE("calls: code for an architecture that the configuration names", "[calls]") {
  const AttentionConfig config{
      .dtype = F16, .head_dim = 64, .block = {16, 32}, .causal = true, .target = "sm_80"};
  Device& gpu = some_gpu(KILN_FAKE_CUDA);
  const BlockSparseAttention older = block_sparse_attention(gpu, config);
  CHECK(older.device().name() == gpu.name());
  CHECK(older.device().target() == "sm_80");
  CHECK_THAT(older.ptx(), Contains(".target sm_80"));
  CHECK(&block_sparse_attention(gpu, {.head_dim = 16, .block = 16}).device() == &gpu);
  CHECK(matmul(device("emulator"), {.target = "sm_90"}).device().name() == "emulator:sm_90");
  CHECK(tile_copy(device("emulator:sm_90"), {.target = "sm_89"}).device().target() == "sm_89");
  CHECK(row_softmax(device("host"), {.target = "host"}).device().name() == "host");
  CHECK_THAT(error_of([&] { block_sparse_attention(gpu, {.target = "sm_120"}); }),
             StartsWith("target: ") && Contains("it cannot run code for sm_120"));
  CHECK_THAT(error_of([] { sparse_decode(device("host"), {.target = "sm_90"}); }),
             StartsWith("target: device host: an architecture (sm_90) is for GPUs"));
  CHECK_THAT(error_of([] { row_softmax(device("emulator"), {.target = "sm_91"}); }),
             StartsWith("target: ") && Contains("sm_91"));
}

TEST_CASE("calls: 100 of random batch, lengths and heads are one compilation", "[calls]") {
  setenv("KILN_CACHE", "off", 1);
  forget_compiled();
  const int64_t before = compile_stats().compilations;
  std::mt19937_64 random(run_seed() + 8);
  const auto below = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  const AttentionConfig config{.dtype = F32,
                               .head_dim = 32,
                               .head_dim_v = 16,
                               .block = {32, 16},
                               .causal = true,
                               .form = BlockForm::Lists,
                               .lse = true};
  for (int i = 0; i < 100; ++i) {
    const int64_t heads_kv = below(3);
    AttentionCase one(config, {below(3), heads_kv * below(3), heads_kv, below(120), below(150)});
    one.randomize(random(), 0.5);
    one.check(device("host"));
  }
  CHECK(compile_stats().compilations - before == 1);
  unsetenv("KILN_CACHE");
}

TEST_CASE("calls: what entries of lists are none is skipped, and said by a checked kernel",
          "[calls]") {
  AttentionConfig config{.dtype = F32, .head_dim = 16, .block = 16, .form = BlockForm::Lists};
  for (const char* name : {"host", "interpreter", "emulator"}) {
    INFO(name);
    AttentionCase one(config, {.heads = 2, .heads_kv = 1, .seq = 40, .seq_kv = 70});
    one.randomize(run_seed() + 9, 0.6);
    Array counts = one.lists.counts, indices = one.lists.indices;
    REQUIRE(indices.shape()[3] > 0);
    one.config.checked = true;
    one.check(device(name));  // nothing to say

    const auto said = [&](const Array& c, const Array& i, const char* says) {
      Array own_counts = c, own_indices = i;
      one.args.counts = own_counts.view(), one.args.indices = own_indices.view();
      one.config.checked = false;
      one.run(device(name));  // skipped
      one.config.checked = true;
      CHECK_THAT(error_of([&] { one.run(device(name)); }), Contains(says));
    };
    Array wrong = indices;
    wrong.set(0, 5);  // of 5 blocks
    Array used = counts;
    used.set(0, 1);
    said(used, wrong, "indices: expected blocks of keys");
    wrong.set(0, -2);
    said(used, wrong, "indices: expected blocks of keys");
    used.set(0, static_cast<double>(indices.shape()[3] + 1));
    said(used, indices, "counts: expected 0 to the entries of indices");
    used.set(0, -1);
    said(used, indices, "counts: expected 0 to the entries of indices");
  }
}

TEST_CASE("calls: a hot call on a GPU allocates nothing and asks the driver twice", "[calls]") {
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  FakeCuda* fake = has_gpu() ? nullptr : &emulated_cuda(KILN_FAKE_CUDA);
  const AttentionConfig config{.dtype = F16, .head_dim = 16, .block = 16, .lse = true};
  const BlockSparseAttention f = block_sparse_attention(gpu, config);
  Tensors tensors(gpu);
  AttentionArgs args = attention_args(tensors, config, BlockForm::MaskBool);
  cuda::Current current(gpu.context());
  if (fake) fake->execute = nullptr;  // the kernel itself is not of interest
  for (int i = 0; i < 3; ++i) f(args, nullptr);
  if (fake) fake->forget();
  const int64_t before = allocations();
  for (int i = 0; i < 1000; ++i) {
    args.q.shape[2] = args.o.shape[2] = args.lse->shape[2] = 70 - i % 7;
    f(args, nullptr);
  }
  CHECK(allocations() == before);
  if (fake) CHECK(fake->all_calls() == 2 * 1000);
  gpu.synchronize();
}

TEST_CASE("calls: a hot decode call allocates nothing; strides too few are said", "[calls]") {
  CudaDevice& gpu = some_gpu(KILN_FAKE_CUDA);
  FakeCuda* fake = has_gpu() ? nullptr : &emulated_cuda(KILN_FAKE_CUDA);
  const SparseDecode f =
      sparse_decode(gpu, {.fp8_cache = true, .head_dim = 16, .group = 2, .block = 16});
  Tensors tensors(gpu);
  DecodeArgs args{tensors.make(F16, {3, 4, 16}), tensors.make(E4M3, {3, 64, 2, 16}),
                  tensors.make(E4M3, {3, 64, 2, 16}), tensors.make(F16, {3, 4, 16}),
                  tensors.make(I32, {3})};
  args.chosen = tensors.make(I32, {3, 2, 4});
  args.k_scale = tensors.make(F32, {2});
  args.v_scale = tensors.make(F32, {1});
  cuda::Current current(gpu.context());
  if (fake) fake->execute = nullptr;
  args.splits = 2;
  for (int i = 0; i < 3; ++i) f(args, nullptr);
  const int64_t before = allocations();
  for (int i = 0; i < 1000; ++i) f(args, nullptr);
  CHECK(allocations() == before);
  if (fake) {  // the merge may begin early, the first launch waits for what was queued before it
    CHECK(fake->last_launch.early);
    CHECK_FALSE(fake->launch_before.early);
  }
  gpu.synchronize();
  for (Memory* memory : {&args.q, &*args.chosen, &*args.k_scale, &*args.v_scale}) {
    const Shape strides = std::exchange(memory->strides, {});
    CHECK_THAT(error_of([&] { f(args, nullptr); }), Contains(" strides, got ["));
    memory->strides = strides;
  }
}
