// Tensor copies: any rank, type, box, step and swizzle against coordinates computed one by one.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <random>

#include "runtime/ptx/numeric.h"
#include "runtime/ptx/tensor_map.h"
#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

constexpr uint32_t kTile = 16384;

struct Random {
  std::mt19937_64 bits;
  uint64_t operator()(uint64_t low, uint64_t high) { return low + bits() % (high - low + 1); }
};

// A map over `tensor` bytes, which lie from a multiple of 16 on.
struct Problem {
  TensorMap map;
  std::vector<int32_t> at;
  std::vector<uint8_t> tensor;

  uint32_t size() const { return static_cast<uint32_t>(bytes_of(map.type)); }
  uint32_t bytes() const {
    uint32_t all = size();
    for (int axis = 0; axis < map.rank; ++axis) all *= map.boxed(axis);
    return all;
  }

  explicit Problem(Random& random) {
    constexpr Type kTypes[] = {Type::U8,  Type::F16, Type::BF16, Type::F32,
                               Type::S32, Type::F64, Type::U64,  Type::U16};
    do {
      map = TensorMap{};
      map.rank = static_cast<int>(random(1, 5));
      map.type = kTypes[random(0, 7)];
      constexpr uint32_t kSwizzles[] = {0, 32, 64, 128};
      map.swizzle = kSwizzles[random(0, 3)];
      const uint32_t row = map.swizzle ? map.swizzle : 16 * static_cast<uint32_t>(random(1, 10));
      map.nan = is_float(map.type) && random(0, 1);
      uint64_t stride = 0;
      for (int axis = 0; axis < map.rank; ++axis) {
        map.box[axis] = axis == 0 ? row / size() : static_cast<uint32_t>(random(1, 12));
        map.steps[axis] = static_cast<uint32_t>(random(0, 2) ? 1 : random(1, 3));
        map.extents[axis] = random(1, 2 * map.box[axis]);
        if (axis > 0) map.strides[axis] = stride;
        stride = (axis == 0 ? map.extents[0] * size() : stride * map.extents[axis]) + 15;
        stride = (stride + 16 * random(0, 2)) / 16 * 16;
      }
      tensor.assign(stride, 0);
    } while (map.box[0] > 256 || bytes() > kTile || tensor.size() > (1 << 20));
    for (uint8_t& byte : tensor) byte = static_cast<uint8_t>(random.bits());
    for (int axis = 0; axis < map.rank; ++axis)
      at.push_back(static_cast<int32_t>(random(0, map.extents[axis] + map.box[axis])) -
                   static_cast<int32_t>(map.box[axis]));
  }

  // Calls f(offset in the tile, offset in the tensor or −1) for all elements of the box.
  template <class F>
  void for_each(F f) const {
    const uint32_t count = bytes() / size();
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t rest = i;
      int64_t place = 0;
      bool inside = true;
      for (int axis = 0; axis < map.rank; ++axis) {
        const uint32_t extent = map.boxed(axis);
        const int64_t step = axis == 0 ? 1 : map.steps[axis];
        const int64_t coordinate = at[static_cast<size_t>(axis)] + rest % extent * step;
        rest /= extent;
        inside &= coordinate >= 0 && coordinate < static_cast<int64_t>(map.extents[axis]);
        place += coordinate * static_cast<int64_t>(axis == 0 ? size() : map.strides[axis]);
      }
      // The swizzle exchanges units of 16 bytes within 128, by the line of 128 they are in.
      const uint32_t linear = i * size(), line = linear / 128, unit = linear % 128 / 16;
      const uint32_t among = map.swizzle == 0 ? 1 : map.swizzle / 16;
      const uint32_t placed = line * 128 + (unit ^ line % 8 % among) * 16 + linear % 16;
      f(placed, inside ? place : int64_t{-1});
    }
  }
};

std::string coordinates(int rank) {
  std::string list;
  for (int axis = 0; axis < rank; ++axis)
    list += fmt::format("{}%r{}", axis ? ", " : "", 20 + axis);
  return list;
}

// One warp: the map, the tile's image and coordinates are parameters.
std::string program(int rank, const std::string& body) {
  std::string load;
  for (int axis = 0; axis < rank; ++axis)
    load += fmt::format("ld.param.b32 %r{}, [at+{}];", 20 + axis, 4 * axis);
  return fmt::format(R"(.version 8.4
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[{}];
.shared .align 8 .b64 bar;
.visible .entry test(.param .align 64 .b8 map[128], .param .u64 image, .param .align 4 .b8 at[20])
{{
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<16>;
mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, tile; mov.u32 %r2, bar;
mov.b64 %d0, map; cvta.param.u64 %d0, %d0; ld.param.u64 %d1, [image];
{}
@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
fence.mbarrier_init.release.cluster; bar.sync 0;
{}
ret;
}}
)",
                     kTile, load, body);
}

// The image to shared memory, or back, by all lanes.
std::string move_image(bool to_shared) {
  const std::string move = to_shared ? "ld.global.b32 %r7, [%d3]; st.shared.b32 [%r6], %r7;"
                                     : "ld.shared.b32 %r7, [%r6]; st.global.b32 [%d3], %r7;";
  return fmt::format(
      "mov.u32 %r5, %r0;\nL{0}: mad.lo.u32 %r6, %r5, 4, %r1;"
      "mad.wide.u32 %d3, %r5, 4, %d1; {1} add.u32 %r5, %r5, 32;"
      "setp.lt.u32 %p2, %r5, {2}; @%p2 bra L{0};\n",
      to_shared ? "in" : "out", move, kTile / 4);
}

Report run(const Problem& problem, const std::string& text, std::vector<uint8_t>& tensor,
           std::vector<uint8_t>& image, Options options) {
  TensorMap map = problem.map;
  std::vector<uint8_t> aligned(tensor.size() + 16);
  uint8_t* base = aligned.data() + (16 - reinterpret_cast<uintptr_t>(aligned.data()) % 16) % 16;
  std::copy(tensor.begin(), tensor.end(), base);
  map.address = reinterpret_cast<uint64_t>(base);
  const TensorMapBytes encoded = encode(map);
  std::vector<std::byte> parameters(encoded.begin(), encoded.end());
  parameters.resize(128 + 8 + 20);
  const auto address = reinterpret_cast<uint64_t>(image.data());
  std::memcpy(&parameters[128], &address, 8);
  std::memcpy(&parameters[136], problem.at.data(), 4 * problem.at.size());
  Memory memory;
  memory.add(base, tensor.size(), "tensor");
  memory.add(image.data(), image.size(), "image");
  const Program parsed = parse(text);
  Report report = launch(parsed, "test", {1}, {32}, 0, parameters, memory, options);
  tensor.assign(base, base + tensor.size());
  return report;
}

constexpr AsyncMode kModes[] = {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random};

std::string load_text(int rank, uint32_t bytes) {
  return program(
      rank, fmt::format(
                "{} fence.proxy.async; bar.sync 0;"
                "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {};"
                "@%p1 cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::"
                "bytes [%r1], [%d0, {{{}}}], [%r2];"
                "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0; @!%p3 bra W; {}",
                move_image(true), bytes, rank, coordinates(rank), move_image(false)));
}

std::string store_text(int rank, const std::string& begin) {
  return program(rank, fmt::format("{} fence.proxy.async; bar.sync 0;"
                                   "@%p1 {} [%d0, {{{}}}], [%r1];"
                                   "@%p1 cp.async.bulk.commit_group;"
                                   "@%p1 cp.async.bulk.wait_group 0;",
                                   move_image(true), begin, coordinates(rank)));
}

}  // namespace

TEST_CASE("tensor copies bring each element of a box to its place, and fill what is outside") {
  Random random{std::mt19937_64(20)};
  for (int round = 0; round < 200; ++round) {
    const Problem problem(random);
    std::vector<uint8_t> expected(kTile, 0x77), image = expected, tensor = problem.tensor;
    const uint64_t nan = problem.map.type == Type::F64   ? 0x7fffffffffffffff
                         : problem.map.type == Type::F32 ? kNaN32
                                                         : kNaN16;
    const uint64_t fill = problem.map.nan ? nan : 0;
    problem.for_each([&](uint32_t to, int64_t from) {
      const void* source =
          from < 0 ? static_cast<const void*>(&fill) : &problem.tensor[static_cast<size_t>(from)];
      std::memcpy(&expected[to], source, problem.size());
    });
    Options options;
    options.async = kModes[round % 3];
    const Report report =
        run(problem, load_text(problem.map.rank, problem.bytes()), tensor, image, options);
    INFO(fmt::format("round {}, rank {}", round, problem.map.rank));
    REQUIRE(findings(report) == "");
    REQUIRE(image == expected);
    CHECK(report.counters.bulk_bytes == problem.bytes());
  }
}

TEST_CASE("tensor copies write what is inside of the tensor, and nothing else") {
  Random random{std::mt19937_64(21)};
  for (int round = 0; round < 200; ++round) {
    const Problem problem(random);
    std::vector<uint8_t> image(kTile), tensor = problem.tensor, expected = tensor;
    for (uint8_t& byte : image) byte = static_cast<uint8_t>(random.bits());
    const bool adds = bytes_of(problem.map.type) == 4 && problem.map.type != Type::F32;
    problem.for_each([&](uint32_t from, int64_t to) {
      if (to < 0) return;
      uint8_t* place = &expected[static_cast<size_t>(to)];
      if (!adds) {
        std::memcpy(place, &image[from], problem.size());
      } else {
        uint32_t old, more;
        std::memcpy(&old, place, 4);
        std::memcpy(&more, &image[from], 4);
        old += more;
        std::memcpy(place, &old, 4);
      }
    });
    Options options;
    options.async = kModes[round % 3];
    const std::string begin =
        fmt::format("cp.{}async.bulk.tensor.{}d.global.shared::cta{}.tile.bulk_group",
                    adds ? "reduce." : "", problem.map.rank, adds ? ".add" : "");
    const Report report = run(problem, store_text(problem.map.rank, begin), tensor, image, options);
    INFO(fmt::format("round {}, rank {}", round, problem.map.rank));
    REQUIRE(findings(report) == "");
    REQUIRE(tensor == expected);
  }
}

TEST_CASE("a tensor map that no GPU would take is refused") {
  const auto refused = [](auto change, const std::string& message) {
    TensorMap map;
    map.rank = 2;
    map.type = Type::F16;
    map.extents[0] = map.extents[1] = 64;
    map.strides[1] = 128;
    map.box[0] = map.box[1] = 64;
    map.swizzle = 128;
    CHECK(decode_tensor_map(encode(map).data()) == map);
    change(map);
    CHECK_THROWS_WITH(encode(map), Catch::Matchers::Contains(message));
  };
  refused([](TensorMap& map) { map.rank = 6; }, "rank: expected 1 to 5, got 6");
  refused([](TensorMap& map) { map.address = 8; }, "address: expected a multiple of 16, got 8");
  refused([](TensorMap& map) { map.strides[1] = 100; }, "strides[1]: expected a multiple of 16");
  refused([](TensorMap& map) { map.box[1] = 257; }, "box[1]: expected 1 to 256, got 257");
  refused([](TensorMap& map) { map.swizzle = 64; }, "no more than the swizzle's 64 bytes");
  refused([](TensorMap& map) { map.steps[1] = 9; }, "steps[1]: expected 1 to 8, got 9");
  refused([](TensorMap& map) { map.type = Type::E4M3; }, "a type of tensor maps");
  TensorMapBytes bytes{};
  CHECK(!decode_tensor_map(bytes.data()));
}

TEST_CASE("what stands where a tensor map should is no map") {
  Random random{std::mt19937_64(22)};
  const Problem problem(random);
  std::vector<uint8_t> image(kTile), tensor = problem.tensor;
  std::string text = load_text(problem.map.rank, problem.bytes());
  const std::string map = "cvta.param.u64 %d0, %d0;";
  text.replace(text.find(map), map.size(), "mov.u64 %d0, %d1;");
  text.replace(text.find("ld.param.u64 %d1, [image];"), 26, "");
  text.replace(text.find("mov.b64 %d0, map;"), 17, "ld.param.u64 %d1, [image];");
  std::vector<uint8_t> aligned(kTile + 64);
  const Report report = run(problem, text, tensor, image, {});
  CHECK((has(report, FindingKind::OutOfBounds) || has(report, FindingKind::Misaligned)));
}

}  // namespace kiln::ptx
