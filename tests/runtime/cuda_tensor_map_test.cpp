// Tensor maps: what the driver is asked for, what is refused, what is remembered, and how a launch
// passes them.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <random>
#include <set>
#include <thread>

#include "ir/error.h"
#include "ir/parse.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_tensor_map.h"
#include "tests/runtime/gpu_support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

using Numbers = std::vector<uint64_t>;
using Box = std::vector<unsigned>;

// Memory that is nowhere: the driver only looks at the number.
Memory at(uintptr_t address, DType dtype, Shape shape, Shape strides = {}) {
  Memory memory = Memory::contiguous(reinterpret_cast<void*>(address), dtype, std::move(shape));
  if (!strides.empty()) memory.strides = std::move(strides);
  return memory;
}

cuda::TensorMapper mapper(const Memory& like, TensorMap map, bool written = false) {
  return {cuda::context(0), "attend: q", like.dtype, static_cast<int>(like.shape.size()),
          std::move(map),   written};
}

uint64_t map_of(const cuda::TensorMapper& mapper, const Memory& memory) {
  cuda::EncodedMap map;
  mapper(memory, &map);
  return map.words[0];
}

FakeCuda::Map made(const Memory& memory, TensorMap map, bool written = false) {
  FakeCuda& fake = fake_cuda();
  map_of(mapper(memory, std::move(map), written), memory);
  REQUIRE(fake.maps.size() == 1);
  return fake.maps[0];
}

std::string refusal(const Memory& memory, TensorMap map) {
  fake_cuda();
  return error_of([&] { map_of(mapper(memory, std::move(map)), memory); });
}

}  // namespace

TEST_CASE("tensor map: by panels, the panels are an axis behind the rows") {
  const FakeCuda::Map map = made(at(0x10000, F16, {2, 3, 1000, 192}), {{1, 1, 128, 128}, 64, true});
  CHECK(map.memory == reinterpret_cast<void*>(0x10000));
  CHECK(map.dtype == 6);
  CHECK(map.extents == Numbers{64, 1000, 3, 3, 2});
  CHECK(map.strides == Numbers{384, 128, 384000, 3 * 384000});
  CHECK(map.box == Box{64, 128, 2, 1, 1});
  CHECK(map.steps == Box{1, 1, 1, 1, 1});
  CHECK(map.swizzle == 3);
  CHECK(std::array{map.interleave, map.promotion, map.fill} == std::array{0, 3, 0});
}

TEST_CASE("tensor map: not by panels, the axes as they are and one panel in the box") {
  const FakeCuda::Map map =
      made(at(0x10000, BF16, {4, 1000, 100}, {200000, 200, 1}), {{1, 64, 128}, 32, false});
  CHECK(map.dtype == 9);
  CHECK(map.extents == Numbers{100, 1000, 4});
  CHECK(map.strides == Numbers{400, 400000});
  CHECK(map.box == Box{32, 64, 1});
  CHECK(map.swizzle == 2);
}

TEST_CASE("tensor map: ranks, dtypes and swizzles") {
  CHECK(made(at(0x100, F32, {64}), {{16}, 8, true}).extents == Numbers{8, 8});
  CHECK(made(at(0x100, F32, {64}), {{16}, 8, true}).box == Box{8, 2});
  CHECK(made(at(0x100, F32, {64}), {{8}, 8, false}).strides == Numbers{});
  const auto five = made(at(0x100, U8, {2, 3, 4, 5, 128}), {{1, 1, 2, 5, 32}, 32, false});
  CHECK(five.extents == Numbers{128, 5, 4, 3, 2});
  CHECK(five.box == Box{32, 5, 2, 1, 1});
  CHECK(five.swizzle == 1);
  const std::pair<DType, int> numbers[] = {{F16, 6}, {BF16, 9}, {F32, 7}, {F64, 8},  {E4M3, 0},
                                           {I8, 0},  {I16, 1},  {I32, 3}, {U32, 2},  {I64, 5},
                                           {U64, 4}, {Bool, 0}, {U16, 1}, {E5M2, 0}, {U8, 0}};
  for (const auto& [dtype, number] : numbers) {
    INFO(name(dtype));
    const auto columns = 128 / static_cast<int64_t>(size_of(dtype));
    CHECK(made(at(0x100, dtype, {8, columns}), {{8, columns}, columns, true}).dtype == number);
  }
}

TEST_CASE("tensor map: the stride of an axis of extent 1 does not matter; 0 is a stride") {
  const auto map = made(at(0x100, F16, {1, 8, 64}, {-3, 64, 1}), {{1, 8, 64}, 64, false});
  CHECK(map.strides == Numbers{128, 16});
  CHECK(made(at(0x100, F16, {4, 8, 64}, {0, 64, 1}), {{1, 8, 64}, 64, false}).strides ==
        Numbers{128, 0});
}

TEST_CASE("tensor map: an empty tensor is one zero of our own") {
  FakeCuda& fake = fake_cuda();
  const Memory empty = at(0, F16, {2, 0, 128}, {0, 3, 1});
  const auto read = made(empty, {{1, 64, 128}, 64, true});
  CHECK(read.extents == Numbers{1, 1, 1, 1});
  CHECK(read.strides == Numbers{16, 128, 16});
  const auto written = made(empty, {{1, 64, 128}, 64, true}, true);
  CHECK(read.memory != written.memory);
  for (const void* memory : {read.memory, written.memory}) {
    REQUIRE(fake.blocks.upper_bound(reinterpret_cast<uint64_t>(memory)) != fake.blocks.begin());
    uint64_t value = 1;
    std::memcpy(&value, memory, sizeof value);
    CHECK(value == 0);
  }
  CHECK(made(at(0, F16, {0}), {{64}, 64, true}).extents == Numbers{1, 1});
  CHECK(made(at(0, F16, {8, 0}, {0, 1}), {{8, 64}, 64, false}).extents == Numbers{1, 1});
}

TEST_CASE("tensor map: what TMA cannot go through is refused, with kernel, tensor and axis") {
  const TensorMap map{{1, 64, 64}, 64, true};
  CHECK_THAT(
      refusal(at(0x1008, F16, {2, 100, 64}), map),
      Contains("attend: q: expected an address that is a multiple of 16 bytes, got 0x1008") &&
          Contains("| asynchronous copies by tensor maps (TMA) need it: begin a view at a "
                   "multiple of 8 elements"));
  CHECK_THAT(refusal(at(0x1000, F16, {2, 100, 64}, {6500, 65, 1}), map),
             Contains("attend: q: axis 0: expected a stride that is a multiple of 16 bytes, got "
                      "6500 elements of f16, 13000 bytes"));
  CHECK_THAT(refusal(at(0x1000, F16, {2, 100, 64}, {6504, 65, 1}), map),
             Contains("attend: q: axis 1: expected a stride that is a multiple of 16 bytes, got 65 "
                      "elements of f16, 130 bytes") &&
                 Contains("pad the rows to a multiple of 8 elements"));
  CHECK_THAT(refusal(at(0x1000, F16, {2, 100, 64}, {-6400, 64, 1}), map),
             Contains("axis 0: expected a stride of 0 to 2^40 bytes, got -6400 elements of f16"));
  CHECK_THAT(refusal(at(0x1000, F16, {2, 100, 64}, {int64_t{1} << 39, 64, 1}), map),
             Contains("axis 0: expected a stride of 0 to 2^40 bytes"));
  CHECK(refusal(at(0x1000, F16, {2, 100, 64}, {(int64_t{1} << 39) - 8, 64, 1}), map) == "no error");
  CHECK_THAT(refusal(at(0x1000, F16, {2, 100, 72}), map),
             Contains("attend: q: axis 2: expected an extent that is a multiple of 64, got 72") &&
                 Contains("pad the rows to a multiple of 64 elements"));
  CHECK(refusal(at(0x1000, F16, {2, 100, 72}), {{1, 64, 64}, 64, false}) == "no error");
  CHECK_THAT(refusal(at(0x1000, F16, {1, 1, 2, 100, 64}), {{1, 1, 1, 64, 64}, 64, true}),
             Contains("attend: q: expected a tensor of at most 4 axes") && Contains("got 5"));
  CHECK_THAT(refusal(at(0x1000, F16, {2, 300, 64}), {{1, 257, 64}, 64, true}),
             Contains("attend: q: axis 1: expected a copy by tensor maps (TMA) of 1 to 256 "
                      "elements, got 257"));
  CHECK_THROWS_AS(mapper(at(0x1000, F16, {2, 64}), {{64}, 64, true}), InternalError);
  CHECK_THROWS_AS(mapper(at(0x1000, F16, {64}), {{24}, 24, true}), InternalError);
}

TEST_CASE("tensor map: a driver that refuses is quoted with what it was asked for") {
  FakeCuda& fake = fake_cuda();
  const Memory memory = at(0x1000, F16, {100, 128});
  const cuda::TensorMapper q = mapper(memory, {{64, 128}, 64, true});
  fake.fail("cuTensorMapEncodeTiled", cuda::Result::InvalidValue);
  CHECK_THAT(device_error_of([&] { map_of(q, memory); }),
             Contains("making the tensor map of attend: q") && Contains("extents [64, 100, 2]") &&
                 Contains("strides [256, 128] bytes") && Contains("box [64, 64, 2]"));
  fake.reset(fake);
  CHECK(map_of(q, memory) == 1);  // a failure is not remembered
}

TEST_CASE("tensor map: made once for a tensor, again for whatever differs; nothing allocated") {
  FakeCuda& fake = fake_cuda();
  const Memory first = at(0x10000, F16, {2, 100, 64});
  std::vector<Memory> all = {first};
  for (Memory other : {at(0x10080, F16, {2, 100, 64}), at(0x10000, F16, {2, 99, 64}),
                       at(0x10000, F16, {2, 100, 64}, {6400, 128, 1}),
                       at(0x10000, F16, {1, 100, 64}), at(0x10000, F16, {2, 100, 128})})
    all.push_back(other);
  const cuda::TensorMapper q = mapper(first, {{1, 64, 64}, 64, true});
  const cuda::TensorMapper k = mapper(first, {{1, 64, 64}, 64, true});
  std::vector<uint64_t> numbers;
  for (const Memory& memory : all) numbers.push_back(map_of(q, memory));
  CHECK(numbers == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(map_of(k, first) == 7);
  fake.stack() = {cuda::context(0).handle()};
  fake.forget();
  const int64_t before = allocations();
  bool right = true;
  constexpr int kTimes = 10000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimes; ++i) {
    const size_t which = static_cast<size_t>(i) % all.size();
    right &= map_of(q, all[which]) == numbers[which];
  }
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  CHECK(allocations() == before);
  CHECK(right);
  CHECK(fake.all_calls() == 0);
  WARN(fmt::format("a map that is remembered takes {:.0f} ns (a report, no bar)",
                   time.count() / kTimes));
  fake.stack().clear();
}

TEST_CASE("tensor map: more tensors than are remembered, in several threads") {
  FakeCuda& fake = fake_cuda();
  const Memory like = at(0x10000, F16, {100, 64});
  const cuda::TensorMapper q = mapper(like, {{64, 64}, 64, true});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t, seed = random_seed()] {
      std::mt19937 random(seed + t);
      for (int i = 0; i < 5000; ++i) {
        const Memory memory = at(0x10000 + 16 * (random() % 1000), F16, {100, 64});
        const uint64_t number = map_of(q, memory);
        std::lock_guard lock(fake.launching);
        wrong += fake.maps.at(number - 1).memory != memory.data;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(fake.maps.size() >= 4 * 900);
}

TEST_CASE("tensor map: all that makes a map another makes it anew") {
  FakeCuda& fake = fake_cuda();
  const auto base = [] { return at(0x10000, F16, {4, 100, 128}, {25600, 256, 1}); };
  std::vector<Memory> tensors = {base()};
  tensors.push_back(at(0x10010, F16, {4, 100, 128}, {25600, 256, 1}));
  for (size_t axis = 0; axis < 3; ++axis) {
    tensors.push_back(base());
    tensors.back().shape[axis] *= 2;
    if (axis == 2) continue;
    tensors.push_back(base());
    tensors.back().strides[axis] *= 2;
  }
  std::vector<cuda::TensorMapper> mappers;
  for (const TensorMap& map :
       {TensorMap{{1, 64, 128}, 64, true}, TensorMap{{1, 32, 128}, 64, true},
        TensorMap{{2, 64, 128}, 64, true}, TensorMap{{1, 64, 64}, 64, true},
        TensorMap{{1, 64, 128}, 32, true}, TensorMap{{1, 64, 128}, 64, false}})
    mappers.push_back(mapper(base(), map));
  mappers.push_back(mapper(base(), {{1, 64, 128}, 64, true}, true));
  mappers.emplace_back(cuda::context(1), "attend: q", F16, 3, TensorMap{{1, 64, 128}, 64, true},
                       false);
  Memory other = base();
  other.dtype = BF16;
  mappers.push_back(mapper(other, {{1, 64, 128}, 64, true}));

  std::set<uint64_t> numbers;
  for (const cuda::TensorMapper& map : mappers)
    for (const Memory& tensor : tensors) {
      const uint64_t number = map_of(map, tensor);
      numbers.insert(number);
      CHECK(map_of(map, tensor) == number);
    }
  CHECK(numbers.size() == mappers.size() * tensors.size());
  CHECK(fake.maps.size() == numbers.size());
}

TEST_CASE("tensor map: what is used stays remembered, what is not gives way") {
  FakeCuda& fake = fake_cuda();
  const cuda::TensorMapper q = mapper(at(0, F16, {100, 64}), {{64, 64}, 64, true});
  const Memory hot = at(0x10000, F16, {100, 64});
  const uint64_t number = map_of(q, hot);
  constexpr uint64_t kCold = 5000;
  bool same = true;
  for (uint64_t i = 1; i <= kCold; ++i) {
    map_of(q, at(0x10000 + 0x1000 * i, F16, {100, 64}));
    same &= map_of(q, hot) == number;
  }
  CHECK(same);
  CHECK(fake.maps.size() == 1 + kCold);
  // Of the others as many as a thread remembers at most are still there.
  uint64_t there = 0;
  for (uint64_t i = kCold; i >= 1; --i) {
    const size_t before = fake.maps.size();
    map_of(q, at(0x10000 + 0x1000 * i, F16, {100, 64}));
    there += fake.maps.size() == before;
  }
  CHECK(there > 0);
  CHECK(there <= 256);
}

TEST_CASE("tensor map: a launch passes maps first, then the other slots") {
  FakeCuda& fake = fake_cuda();
  const Kernel kernel = scale_kernel();
  GpuCode code;
  code.ptx =
      ".version 8.0\n.target sm_80\n.entry mapped(.param .align 64 .b8 y_map[128], "
      ".param .align 64 .b8 x_map[128], .param .u64 n, .param .u64 x)";
  code.launches = {{"mapped",
                    {{Slot::Kind::Map, "y", 0, {{64}, 32, true}},
                     {Slot::Kind::Map, "x", 0, {{16}, 16, false}},
                     {Slot::Kind::Dim, "n"},
                     {Slot::Kind::Pointer, "x"}},
                    384,
                    200 << 10}};
  const cuda::Context& context = cuda::context(0);
  const CudaExecutable executable(cuda_shared(context), kernel, code,
                                  cuda::load_module(context, code.ptx, "mapped"));
  OnDevice x(device("cuda"), iota(64)), y(device("cuda"), F32, {64});
  const Scalar factor = Scalar::of_float(F32, 2);
  Memory from = x.memory(), to = y.memory();
  const Memory* tensors[] = {&from, &to};
  const CallArguments arguments{.tensors = tensors, .params = {&factor, 1}};
  executable.launch(arguments, nullptr);
  const FakeCuda::Launch& launch = fake.last_launch;
  REQUIRE(launch.param_bytes == 2 * 128 + 16);
  CHECK(launch.dynamic_shared == 200 << 10);
  Numbers words(launch.param_bytes / 8);
  std::memcpy(words.data(), launch.params.data(), launch.param_bytes);
  CHECK(words[0] == 1);
  CHECK(words[15] == 1);
  CHECK(words[16] == 2);
  CHECK(words[32] == 64);
  CHECK(words[33] == reinterpret_cast<uint64_t>(from.data));
  REQUIRE(fake.maps.size() == 2);
  CHECK(fake.maps[0].memory == to.data);
  CHECK(fake.maps[0].extents == Numbers{32, 2});
  CHECK(fake.maps[1].memory == from.data);

  fake.stack() = {context.handle()};
  fake.forget();
  const int64_t before = allocations();
  for (int i = 0; i < 100; ++i) executable.launch(arguments, nullptr);
  CHECK(allocations() == before);
  CHECK(fake.all_calls() == 200);
  fake.stack().clear();

  from.shape = to.shape = {63};
  CHECK_THAT(error_of([&] { executable.launch(arguments, nullptr); }),
             Contains("scale: y: axis 0: expected an extent that is a multiple of 32, got 63"));
  code.launches[0].slots = {{Slot::Kind::Dim, "n"}, {Slot::Kind::Map, "x", 0, {{16}, 16, false}}};
  CHECK_THROWS_AS(CudaExecutable(cuda_shared(context), kernel, code,
                                 cuda::load_module(context, code.ptx, "mapped")),
                  InternalError);
}
