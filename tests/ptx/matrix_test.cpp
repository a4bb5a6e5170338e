// ldmatrix, stmatrix, movmatrix and mma.sync against the layouts of the PTX manual.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include <fmt/format.h>

#include "ir/dtype.h"
#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

// Matrix j, row r, column c of the input is 64·j + 8·r + c.
uint32_t expected_fragment(int matrix, int lane, bool transposed) {
  auto element = [&](int row, int column) {
    if (transposed) std::swap(row, column);
    return static_cast<uint32_t>(64 * matrix + 8 * row + column);
  };
  int row = lane / 4, column = 2 * (lane % 4);
  return element(row, column) | element(row, column + 1) << 16;
}

TEST_CASE("ldmatrix gives each lane its elements") {
  for (int count : {1, 2, 4})
    for (bool transposed : {false, true}) {
      std::string list;
      for (int j = 0; j < count; ++j) list += fmt::format("{}%r{}", j ? ", " : "", 10 + j);
      // Lane l stores row l % 8 of matrix l / 8 and gives its address.
      std::string body = R"(
        shl.b32 %r1, %r0, 3; add.u32 %r2, %r1, 1; shl.b32 %r2, %r2, 16; or.b32 %r2, %r1, %r2;
        add.u32 %r3, %r2, 0x20002; add.u32 %r4, %r2, 0x40004; add.u32 %r5, %r2, 0x60006;
        mov.u32 %r6, rows; mad.lo.u32 %r6, %r0, 16, %r6;
        st.shared.v4.b32 [%r6], {%r2, %r3, %r4, %r5}; bar.warp.sync -1;
        mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 0; mov.u32 %r13, 0;)";
      body += fmt::format("ldmatrix.sync.aligned.m8n8.x{}{}.shared.b16 {{{}}}, [%r6];", count,
                          transposed ? ".trans" : "", list);
      for (int j = 0; j < count; ++j) {
        std::string all =
            body + fmt::format("cvt.u64.u32 %d2, %r{}; st.global.b64 [%d0], %d2;", 10 + j);
        // Module-level shared memory is what run_warp cannot declare: a scope of its own does.
        std::vector<uint64_t> output = run_warp(".shared .align 16 .b8 rows[512];\n" + all);
        for (int lane = 0; lane < 32; ++lane)
          CHECK(output[static_cast<size_t>(lane)] == expected_fragment(j, lane, transposed));
      }
    }
}

TEST_CASE("stmatrix is the inverse of ldmatrix, movmatrix transposes") {
  for (const char* transposed : {"", ".trans"}) {
    std::vector<uint64_t> output = run_warp(fmt::format(R"(
      .shared .align 16 .b8 rows[512];
      mov.u32 %r6, rows; mad.lo.u32 %r6, %r0, 16, %r6; mad.lo.u32 %r1, %r0, 0x10001, 77;
      xor.b32 %r2, %r1, 0x5555;
      stmatrix.sync.aligned.m8n8.x2{0}.shared.b16 [%r6], {{%r1, %r2}}; bar.warp.sync -1;
      ldmatrix.sync.aligned.m8n8.x2{0}.shared.b16 {{%r3, %r4}}, [%r6];
      xor.b32 %r3, %r3, %r1; xor.b32 %r4, %r4, %r2; mov.b64 %d2, {{%r3, %r4}};
      st.global.b64 [%d0], %d2;)",
                                                        transposed));
    CHECK(output == std::vector<uint64_t>(32, 0));
  }
  std::vector<uint64_t> output = run_warp(R"(
    shl.b32 %r1, %r0, 1; add.u32 %r2, %r1, 1; shl.b32 %r2, %r2, 16; or.b32 %r1, %r1, %r2;
    movmatrix.sync.aligned.m8n8.trans.b16 %r3, %r1; cvt.u64.u32 %d2, %r3;
    st.global.b64 [%d0], %d2;)");
  for (int lane = 0; lane < 32; ++lane)
    CHECK(output[static_cast<size_t>(lane)] == expected_fragment(0, lane, true));
}

// Where the manual says the elements of A (16×K), B (K×8), C and D are, for elements of `bits`
// bits.
struct Position {
  int lane, index, part;  // register, element of it
};
Position position_a(int row, int k, int bits) {
  int in_register = 32 / bits, group = k / in_register;
  return {4 * (row % 8) + group % 4, 2 * (group / 4) + row / 8, k % in_register};
}
Position position_b(int k, int column, int bits) {
  int in_register = 32 / bits, group = k / in_register;
  return {4 * column + group % 4, group / 4, k % in_register};
}
Position position_c(int row, int column) {
  return {4 * (row % 8) + column / 2, 2 * (row / 8) + column % 2, 0};
}

struct Case {
  const char* types;  // "f32.f16.f16.f32"
  const char* shape;
  int k, bits;
  double (*decode_a)(uint64_t);
  double (*decode_b)(uint64_t);
  bool integers;
};

template <DType T>
double small(uint64_t x) {
  return from_bits16(T, static_cast<uint16_t>(x));
}
template <DType T>
double tiny(uint64_t x) {
  return from_bits8(T, static_cast<uint8_t>(x));
}
double tf32(uint64_t x) {
  return as<float>(x & 0xffffe000);
}
double s8(uint64_t x) {
  return static_cast<int8_t>(x);
}
double u8(uint64_t x) {
  return static_cast<uint8_t>(x);
}

const Case kCases[] = {
    {"f32.f16.f16.f32", "m16n8k16", 16, 16, small<kiln::F16>, small<kiln::F16>, false},
    {"f32.f16.f16.f32", "m16n8k8", 8, 16, small<kiln::F16>, small<kiln::F16>, false},
    {"f32.bf16.bf16.f32", "m16n8k16", 16, 16, small<kiln::BF16>, small<kiln::BF16>, false},
    {"f32.bf16.bf16.f32", "m16n8k8", 8, 16, small<kiln::BF16>, small<kiln::BF16>, false},
    {"f32.tf32.tf32.f32", "m16n8k8", 8, 32, tf32, tf32, false},
    {"f32.tf32.tf32.f32", "m16n8k4", 4, 32, tf32, tf32, false},
    {"f32.e4m3.e4m3.f32", "m16n8k32", 32, 8, tiny<kiln::E4M3>, tiny<kiln::E4M3>, false},
    {"f32.e5m2.e4m3.f32", "m16n8k32", 32, 8, tiny<kiln::E5M2>, tiny<kiln::E4M3>, false},
    {"s32.s8.s8.s32", "m16n8k32", 32, 8, s8, s8, true},
    {"s32.u8.s8.s32", "m16n8k16", 16, 8, u8, s8, true},
};

uint64_t random_element(std::mt19937& random, const Case& test) {
  if (test.integers) return random() & 0xff;
  if (test.bits == 8) return (random() & 0x80) | (0x20 + random() % 0x20);
  if (test.bits == 16) {  // of magnitude around 1 in either type
    bool half = std::string_view(test.types).find(".f16") != std::string_view::npos;
    return (random() & 0x8000) | (half ? 0x3400 + random() % 0x0c00 : 0x3e80 + random() % 0x180);
  }
  return (random() & 0x80000000) | (0x3e800000 + random() % 0x01800000);
}

TEST_CASE("mma.sync multiplies and adds") {
  std::mt19937 random(5);
  for (const Case& test : kCases) {
    INFO(test.shape << " " << test.types);
    int count_a = 16 * test.k * test.bits / 32 / 32, count_b = count_a / 2;
    // Registers 0…3 of A, 4, 5 of B, then C, as 32-bit halves of 64-bit words in the input.
    std::vector<uint64_t> a(static_cast<size_t>(16 * test.k)), b(static_cast<size_t>(test.k * 8)),
        c(128);
    std::vector<std::array<uint32_t, 12>> lanes(32);
    auto put = [&](Position at, int first, uint64_t value) {
      lanes[static_cast<size_t>(at.lane)][static_cast<size_t>(first + at.index)] |=
          static_cast<uint32_t>(value << (test.bits * at.part % 32));
    };
    std::vector<double> want(128);
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < test.k; ++k) {
        uint64_t x = a[static_cast<size_t>(row * test.k + k)] = random_element(random, test);
        put(position_a(row, k, test.bits), 0, x);
      }
    for (int k = 0; k < test.k; ++k)
      for (int column = 0; column < 8; ++column) {
        uint64_t x = b[static_cast<size_t>(k * 8 + column)] = random_element(random, test);
        put(position_b(k, column, test.bits), 4, x);
      }
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        auto i = static_cast<size_t>(row * 8 + column);
        uint32_t x = test.integers ? static_cast<uint32_t>(random()) >> 4
                                   : static_cast<uint32_t>(bits(0.01f * static_cast<float>(i)));
        want[i] = test.integers ? double(static_cast<int32_t>(x)) : double{as<float>(x)};
        Position at = position_c(row, column);
        lanes[static_cast<size_t>(at.lane)][static_cast<size_t>(8 + at.index)] = x;
        for (int k = 0; k < test.k; ++k)
          want[i] += test.decode_a(a[static_cast<size_t>(row * test.k + k)]) *
                     test.decode_b(b[static_cast<size_t>(k * 8 + column)]);
      }
    std::string list_a, list_b;
    for (int i = 0; i < count_a; ++i) list_a += fmt::format("{}%r{}", i ? ", " : "", 10 + i);
    for (int i = 0; i < count_b; ++i) list_b += fmt::format("{}%r{}", i ? ", " : "", 14 + i);
    std::string body = R"(
      mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
      mad.wide.u32 %d0, %r0, 48, %d0; mad.wide.u32 %d1, %r0, 16, %d1;)";
    for (int i = 0; i < 12; ++i)
      body += fmt::format("ld.global.b32 %r{}, [%d0+{}];\n", 10 + i, 4 * i);
    body += fmt::format(
        "mma.sync.aligned.{}.row.col.{} {{%r30, %r31, %r32, %r33}}, {{{}}}, {{{}}}, "
        "{{%r18, %r19, %r20, %r21}};\nst.global.v4.b32 [%d1], {{%r30, %r31, %r32, %r33}};",
        test.shape, test.types, list_a, list_b);
    std::vector<uint8_t> input(32 * 48), output(32 * 16);
    std::memcpy(input.data(), lanes.data(), input.size());
    Report report = run_text(entry(2, body), {&input, &output}, {1}, {32});
    REQUIRE(findings(report) == "");
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        Position at = position_c(row, column);
        uint32_t raw;
        std::memcpy(&raw, &output[static_cast<size_t>(16 * at.lane + 4 * at.index)], 4);
        double got = test.integers ? double(static_cast<int32_t>(raw)) : double{as<float>(raw)};
        double expected = want[static_cast<size_t>(row * 8 + column)];
        if (!test.integers) expected = static_cast<float>(expected);
        CHECK(got == expected);
      }
  }
}

TEST_CASE("mma.sync of f64 and with f16 sums") {
  // A is the identity's first rows: D = B.
  std::vector<uint64_t> output = run_warp(R"(
    shr.u32 %r1, %r0, 2; and.b32 %r2, %r0, 3; setp.eq.u32 %p1, %r1, %r2;
    selp.f64 %d2, 0d3FF0000000000000, 0d0000000000000000, %p1;
    mad.lo.u32 %r3, %r2, 8, %r1; cvt.rn.f64.u32 %d3, %r3; mov.f64 %d4, 0d0000000000000000;
    mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d5, %d6}, {%d2}, {%d3}, {%d4, %d4};
    st.global.f64 [%d0], %d6;)");
  for (int lane = 0; lane < 32; ++lane) {
    int row = lane / 4, column = 2 * (lane % 4) + 1;
    CHECK(as<double>(output[static_cast<size_t>(lane)]) == (row < 4 ? 8 * row + column : 0));
  }
  // All ones: D = 16 + C, in f16.
  output = run_warp(R"(
    mov.b32 %r1, 0x3c003c00; mov.b32 %r2, 0x40004200;
    mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r3, %r4}, {%r1, %r1, %r1, %r1},
      {%r1, %r1}, {%r2, %r1};
    mov.b64 %d2, {%r3, %r4}; st.global.b64 [%d0], %d2;)");
  for (uint64_t value : output) CHECK(value == 0x4c404c404c804cc0);
}

}  // namespace
}  // namespace kiln::ptx
