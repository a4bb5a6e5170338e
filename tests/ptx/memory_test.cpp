// Loads, stores and atomics in every space.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

std::vector<uint64_t> counted() {  // four inputs a lane, all bytes different
  std::vector<uint64_t> input(128);
  for (size_t i = 0; i < input.size(); ++i) input[i] = 0x0706050403020100 + 0x0808080808080808 * i;
  return input;
}

TEST_CASE("loads extend, stores cut off") {
  std::vector<uint64_t> input = counted();
  auto check = [&](const std::string& body, auto value) {
    std::vector<uint64_t> output = run_warp(body, input);
    INFO(body);
    for (size_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == value(input[4 * lane]));
  };
  const std::string store = "st.global.u64 [%d0], %d2;";
  check("ld.global.u8 %d2, [%d1+3];" + store, [](uint64_t x) { return x >> 24 & 0xff; });
  check("ld.global.s8 %d2, [%d1+7];" + store,
        [](uint64_t x) { return uint64_t(int64_t{int8_t(x >> 56)}); });
  check("ld.global.s16 %r2, [%d1+2]; cvt.u64.u32 %d2, %r2;" + store,
        [](uint64_t x) { return uint64_t(uint32_t(int32_t{int16_t(x >> 16)})); });
  check("ld.global.b16 %h1, [%d1]; cvt.u64.u16 %d2, %h1;" + store,
        [](uint64_t x) { return x & 0xffff; });
  check("ld.global.u64 %d2, [%d1]; st.global.u8 [%d0], %d2; st.global.u16 [%d0+4], %d2;",
        [](uint64_t x) { return (x & 0xff) | (x & 0xffff) << 32; });
}

TEST_CASE("vector loads and stores") {
  std::vector<uint64_t> input = counted();
  std::vector<uint64_t> output = run_warp(
      "ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%d1]; st.global.v2.b32 [%d0], {%r4, %r1};",
      input);
  for (size_t lane = 0; lane < 32; ++lane)
    CHECK(output[lane] == (input[4 * lane + 1] >> 32 | input[4 * lane] << 32));
  output = run_warp(
      "ld.global.L1::no_allocate.v2.u64 {%d2, %d3}, [%d1+16]; st.global.b64 [%d0], %d3;", input);
  for (size_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == input[4 * lane + 3]);
  output = run_warp(
      "ld.global.b128 %q1, [%d1]; mov.b128 {%d2, %d3}, %q1; st.global.b64 [%d0], %d3;", input);
  for (size_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == input[4 * lane + 1]);
  output = run_warp(
      "ld.global.v4.u8 {%h1, %h2, %h3, %h4}, [%d1+4]; st.global.v4.u8 [%d0], {%h4, %h3, %h2, %h1};",
      input);
  for (size_t lane = 0; lane < 32; ++lane)
    CHECK(output[lane] == __builtin_bswap32(static_cast<uint32_t>(input[4 * lane] >> 32)));
}

TEST_CASE("every space has its own memory, generic addresses reach all") {
  std::vector<uint64_t> output = run_warp(R"(
    .shared .align 8 .b64 words[32]; .local .align 8 .b8 stack[16];
    mov.u32 %r1, words; mad.lo.u32 %r1, %r0, 8, %r1; cvt.u64.u32 %d2, %r0;
    st.shared.u64 [%r1], %d2;                               // the lane
    cvt.u64.u32 %d3, %r1; cvta.shared.u64 %d3, %d3; ld.u64 %d4, [%d3];
    mul.lo.u64 %d5, %d4, 1000; st.local.u64 [stack+8], %d5; // each lane its own
    mov.u64 %d6, stack; cvta.local.u64 %d6, %d6; ld.u64 %d7, [%d6+8];
    isspacep.shared %p1, %d3; isspacep.local %p2, %d3; isspacep.global %p3, %d1;
    @!%p1 trap; @%p2 trap; @!%p3 trap;
    cvta.to.shared.u64 %d8, %d3; ld.shared.u64 %d9, [%d8]; add.u64 %d7, %d7, %d9;
    st.u64 [%d0], %d7;)");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == 1001 * lane);
}

TEST_CASE("module variables: constants with values, globals that last") {
  const std::string text =
      entry(1, R"(ld.param.u64 %d0, [p0]; ld.const.u32 %r1, [table+8]; ld.const.f32 %r2, [one];
            atom.global.add.u32 %r3, [counter], 1; mov.u64 %d1, counter; ld.volatile.global.u32 %r4, [%d1];
            st.global.v4.u32 [%d0], {%r1, %r2, %r3, %r4};)",
            ".const .align 4 .u32 table[4] = {1, 0x22, -3, 4};\n.const .f32 one = 0f3F800000;\n"
            ".global .align 8 .u32 counter = 40;");
  Program program = parse(text);
  std::vector<uint32_t> out(4);
  Memory memory;
  memory.add(out.data(), 16, "out");
  Parameters parameters;
  parameters.add(out.data());
  for (uint32_t run = 0; run < 3; ++run) {
    Report report = launch(program, "test", {1}, {1}, 0, parameters.bytes(), memory);
    REQUIRE(findings(report) == "");
    CHECK(out == std::vector<uint32_t>{0xfffffffd, 0x3f800000, 40 + run, 41 + run});
  }
}

TEST_CASE("parameters are laid out as in C") {
  Program program = parse(
      ".version 7.0\n.target sm_80\n.address_size 64\n"
      ".entry test(.param .u8 a, .param .u32 b, .param .align 8 .b8 c[12], .param .u64 d)\n"
      "{ .reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u8 %r1, [a]; ld.param.u32 %r2, [b];\n"
      "ld.param.u32 %r3, [c+8]; ld.param.u64 %d1, [d]; add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, "
      "%r3;\n"
      "st.global.u32 [%d1], %r1; ret; }");
  CHECK(program.parameter_bytes("test") == 32);
  uint32_t out = 0;
  std::vector<std::byte> bytes(32);
  auto put = [&](size_t at, auto value) { std::memcpy(&bytes[at], &value, sizeof value); };
  put(0, uint8_t{1});
  put(4, uint32_t{20});
  put(16, uint32_t{300});
  put(24, &out);
  Memory memory;
  memory.add(&out, 4, "out");
  CHECK(findings(launch(program, "test", {1}, {1}, 0, bytes, memory)) == "");
  CHECK(out == 321);
}

TEST_CASE("dynamic shared memory follows the static") {
  std::vector<uint8_t> out(256);
  Report report = run_text(
      entry(1, R"(ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %d0, %r0, 4, %d0;
                  st.shared.u32 [first], 7; mov.u32 %r1, dynamic; mad.lo.u32 %r2, %r0, 4, %r1;
                  st.shared.u32 [%r2], %r0; mov.u32 %r3, %dynamic_smem_size; add.u32 %r3, %r3, %r1;
                  st.global.u32 [%d0], %r3;)",
            ".extern .shared .align 1024 .b8 dynamic[];\n.shared .align 4 .b8 first[4];"),
      {&out}, {1}, {64}, 256);
  CHECK(findings(report) == "");
  uint32_t value;
  std::memcpy(&value, out.data(), 4);
  CHECK(value == 2048 + 256);  // it begins at the next multiple of 1024
}

TEST_CASE("atomics return the old value and change memory") {
  // The first input word of lane 0 is the target of all lanes.
  auto run = [](const std::string& body, uint64_t initial) {
    std::vector<uint64_t> cell = {initial, 0};
    Memory memory;
    memory.add(cell.data(), 16, "cell");
    Program program = parse(entry(1, "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0];" + body));
    Parameters parameters;
    parameters.add(cell.data());
    Report report = launch(program, "test", {4}, {64}, 0, parameters.bytes(), memory);
    INFO(body);
    CHECK(findings(report) == "");
    return cell[0];
  };
  CHECK(run("red.global.add.u32 [%d0], 3;", 10) == 10 + 3 * 256);
  CHECK(run("red.relaxed.gpu.global.add.u64 [%d0], 1;", 1ull << 40) == (1ull << 40) + 256);
  CHECK(run("atom.global.max.s32 %r1, [%d0], %r0;", 0xfffffff0) == 63);
  CHECK(run("atom.global.min.u32 %r1, [%d0], %r0;", 5) == 0);
  CHECK(run("atom.global.or.b32 %r1, [%d0], %r0;", 64) == 127);
  CHECK(run("atom.global.and.b64 %d1, [%d0], 0xf0;", 0xff) == 0xf0);
  CHECK(run("atom.global.xor.b32 %r1, [%d0], 1;", 6) == 6);
  CHECK(run("atom.global.inc.u32 %r1, [%d0], 6;", 0) == 256 % 7);
  CHECK(run("atom.global.dec.u32 %r1, [%d0], 6;", 0) == 3);  // 256 steps down a ring of 7
  CHECK(run("red.global.add.f32 [%d0], 0f3F000000;", bits(1.0f)) == bits(129.0f));
  CHECK(run("red.global.add.f64 [%d0], 0d3FE0000000000000;", bits(1.0)) == bits(129.0));
  CHECK(run("mov.b32 %r1, 0x3c004000; red.global.add.noftz.f16x2 [%d0], %r1;", 0) == 0x5c006000);
  CHECK(run("mov.b16 %h1, 0x3f80; atom.global.add.noftz.bf16 %h2, [%d0], %h1;", 0) == 0x4380);
  CHECK(run("setp.ne.u32 %p1, %r0, 0; @%p1 exit; again: ld.relaxed.gpu.global.u32 %r1, [%d0];"
            "add.u32 %r2, %r1, 5; atom.acq_rel.gpu.global.cas.b32 %r3, [%d0], %r1, %r2;"
            "setp.ne.u32 %p2, %r3, %r1; @%p2 bra again;",
            1) == 21);
  // Tickets: every thread gets another number.
  std::vector<uint8_t> out(4 * 256 + 4);
  Report report =
      run_text(entry(1, R"(ld.param.u64 %d0, [p0]; atom.global.add.u32 %r1, [%d0+1024], 1;
                                       mad.wide.u32 %d1, %r1, 4, %d0; st.global.u32 [%d1], %r1;)"),
               {&out}, {8}, {32});
  CHECK(findings(report) == "");
  std::vector<uint32_t> tickets(256), expected(256);
  std::memcpy(tickets.data(), out.data(), 1024);
  std::iota(expected.begin(), expected.end(), 0u);
  CHECK(tickets == expected);
}

}  // namespace
}  // namespace kiln::ptx
