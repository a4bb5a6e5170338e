// Each detector, by a program that has the mistake and its twin that has not.
#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using Kind = FindingKind;
using Catch::Matchers::Contains;

constexpr const char* kShared = ".shared .align 16 .b8 tile[512];";

// A block of 64 threads; p0 is an array of 1024 bytes.
Report run_block(const std::string& body, Options options = {}, uint32_t threads = 64) {
  std::vector<uint8_t> array(1024, 7);
  return run_text(entry(1, "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0];\n" + body, kShared),
                  {&array}, {1}, {threads}, 0, options);
}

void check_finds(const std::string& body, Kind kind, Options options = {}) {
  Report report = run_block(body, options);
  INFO(body << "\n" << findings(report));
  REQUIRE(report.findings.size() >= 1);
  CHECK(has(report, kind));
  CHECK(report.findings[0].ptx_line > 0);
  CHECK_FALSE(report.findings[0].advice.empty());
}

void check_clean(const std::string& body, Options options = {}) {
  Report report = run_block(body, options);
  INFO(body);
  CHECK(findings(report) == "");
}

// Thread t writes word t of the tile and reads word (t + 1) % 64.
std::string neighbours(const std::string& between) {
  return R"(
    mov.u32 %r1, tile;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;)" +
         between + R"(
    add.u32 %r3, %r0, 1; and.b32 %r3, %r3, 63;
    mad.lo.u32 %r3, %r3, 4, %r1;
    ld.shared.u32 %r4, [%r3];
    mad.wide.u32 %d1, %r0, 4, %d0;
    st.global.u32 [%d1], %r4;)";
}

TEST_CASE("a missing barrier is a race") {
  check_finds(neighbours(""), Kind::Race);
  check_clean(neighbours("bar.sync 0;"));
  check_clean(neighbours("bar.sync 3, 64;"));
  check_clean(neighbours("barrier.cta.sync.aligned 1;"));
  // Within a warp bar.warp.sync is enough, between warps it is not.
  check_finds(neighbours("bar.warp.sync 0xffffffff;"), Kind::Race);
}

TEST_CASE("lanes of one warp race too") {
  const std::string body = R"(
    shl.b32 %r1, %r0, 2; xor.b32 %r2, %r1, 4;
    mov.u32 %r3, tile; add.u32 %r1, %r1, %r3; add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r1], %r0;
    $ ld.shared.u32 %r4, [%r2];)";
  auto with = [&](const std::string& text) {
    const size_t at = body.find('$');
    return body.substr(0, at) + text + body.substr(at + 1);
  };
  check_finds(with(""), Kind::Race);
  check_clean(with("bar.warp.sync -1;"));
}

// Lane l holds the bytes from 4·l on of a matrix; its rows' addresses come from lanes 0 to 7.
TEST_CASE("elements of a matrix are accessed by the lanes that hold them") {
  const auto body = [](const std::string& other, const std::string& between) {
    return R"(
    mov.u32 %r1, tile; shl.b32 %r2, %r0, 2; add.u32 %r2, %r2, %r1; st.shared.u32 [%r2], %r0;
    and.b32 %r3, %r0, 7; shl.b32 %r3, %r3, 4; add.u32 %r3, %r3, %r1; bar.warp.sync -1;
    xor.b32 %r2, %r2, )" +
           other + "; ld.shared.u32 %r4, [%r2]; add.u32 %r4, %r4, 1; " + between +
           "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r4};";
  };
  CHECK(run_block(body("0", ""), {}, 32).findings.empty());
  const Report report = run_block(body("4", ""), {}, 32);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].kind == Kind::Race);
  CHECK(run_block(body("4", "bar.warp.sync -1; "), {}, 32).findings.empty());
}

TEST_CASE("a write after a read without a barrier is a race") {
  std::string body = R"(
    mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0; bar.sync 0;
    ld.shared.u32 %r4, [tile+128];
    $
    setp.eq.u32 %p1, %r0, 0;
    @%p1 st.shared.u32 [tile+128], %r0;)";
  std::string good = body;
  good.replace(good.find('$'), 1, "bar.sync 0;");
  body.erase(body.find('$'), 1);
  check_finds(body, Kind::Race);
  check_clean(good);
}

TEST_CASE("threads that write one place race unless they write the same") {
  check_finds("st.shared.u32 [tile], %r0;", Kind::Race);
  check_clean("mov.u32 %r1, 5; st.shared.u32 [tile], %r1;");
  // Neighbouring bytes and halves are no race.
  check_clean("mov.u32 %r1, tile; add.u32 %r1, %r1, %r0; st.shared.u8 [%r1], %r0;");
  check_clean(R"(mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 2, %r1; cvt.u16.u32 %h1, %r0;
                 st.shared.u16 [%r1], %h1; ld.shared.u16 %h2, [%r1]; st.shared.u16 [%r1], %h1;)");
  // Atomics do not race with each other, but with plain accesses.
  check_clean("st.shared.u32 [tile], 0; bar.sync 0; atom.shared.add.u32 %r1, [tile], 1;");
  check_finds(R"(st.shared.u32 [tile], 0; bar.sync 0; atom.shared.add.u32 %r1, [tile], 1;
                 ld.shared.u32 %r2, [tile];)",
              Kind::Race);
}

TEST_CASE("global memory races within a block") {
  std::string body = R"(
    mad.wide.u32 %d1, %r0, 4, %d0; xor.b32 %r1, %r0, 32; mad.wide.u32 %d2, %r1, 4, %d0;
    st.global.u32 [%d1], %r0; $ ld.global.u32 %r2, [%d2];)";
  std::string good = body;
  good.replace(good.find('$'), 1, "bar.sync 0;");
  body.erase(body.find('$'), 1);
  check_finds(body, Kind::Race);
  check_clean(good);
}

TEST_CASE("a flag with fences orders what it guards") {
  // Thread 0 publishes; thread 32 waits for the flag. Both fences are needed.
  auto body = [](const char* release, const char* acquire) {
    return std::string(R"(
      setp.eq.u32 %p1, %r0, 0; setp.eq.u32 %p2, %r0, 32;
      st.shared.u32 [tile+4], 0;
      bar.sync 0;
      @!%p1 bra other;
      st.shared.u32 [tile], 99;
      )") + release +
           R"(
      atom.relaxed.cta.shared.exch.b32 %r1, [tile+4], 1;
    other:
      @!%p2 bra done;
    spin:
      ld.relaxed.cta.shared.u32 %r2, [tile+4];
      setp.eq.u32 %p3, %r2, 0;
      @%p3 bra spin;
      )" + acquire +
           R"(
      ld.shared.u32 %r3, [tile];
    done:)";
  };
  std::string fence = "fence.acq_rel.cta;";
  check_clean(body(fence.c_str(), fence.c_str()));
  check_finds(body("", fence.c_str()), Kind::Race);
  check_finds(body(fence.c_str(), ""), Kind::Race);
}

TEST_CASE("uninitialised shared memory is found, to the byte") {
  check_finds("ld.shared.u32 %r1, [tile];", Kind::UninitializedShared);
  check_finds(R"(setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u8 [tile], %r0; bar.sync 0;
                 ld.shared.u16 %h1, [tile];)",
              Kind::UninitializedShared);
  check_clean(R"(setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u16 [tile], %r0; bar.sync 0;
                 ld.shared.u8 %h1, [tile+1];)");
}

TEST_CASE("uninitialised registers are found") {
  check_finds("add.u32 %r2, %r1, 1;", Kind::UninitializedRegister);
  // Written by some lanes alone.
  check_finds("setp.lt.u32 %p1, %r0, 7; @%p1 mov.u32 %r1, 3; add.u32 %r2, %r1, 1;",
              Kind::UninitializedRegister);
  check_finds("@%p5 bra over; over:", Kind::UninitializedRegister);
  check_clean(R"(setp.lt.u32 %p1, %r0, 7; @%p1 mov.u32 %r1, 3; @!%p1 mov.u32 %r1, 4;
                 add.u32 %r2, %r1, 1;)");
  // Bytes that do not matter come from a register that nothing writes.
  check_clean("prmt.b32 %r2, %r0, %r41, 0x5410; and.b32 %r3, %r2, 65535;");
  check_finds("prmt.b32 %r2, %r0, %r1, 0x5410; mov.u32 %r1, 0;", Kind::UninitializedRegister);
  Report report = run_block("add.u32 %r2, %r41, 1;");
  CHECK_THAT(findings(report), Contains("'%r41'"));
}

TEST_CASE("accesses outside of memory name what is near") {
  std::string body = "mad.wide.u32 %d1, %r0, 4, %d0; ld.global.u32 %r1, [%d1+800];";
  check_finds(body, Kind::OutOfBounds);
  CHECK_THAT(findings(run_block(body)),
             Contains("thread 56 reads 4 bytes") && Contains("0 bytes past the end of 'array0'"));
  check_finds("ld.global.u32 %r1, [%d0-4];", Kind::OutOfBounds);
  check_finds("st.shared.u32 [tile+512], %r0;", Kind::OutOfBounds);
  check_finds("mov.u32 %r1, 0; st.shared.u32 [%r1], %r0;", Kind::OutOfBounds);
  check_finds("mov.u64 %d1, 0; ld.global.u32 %r1, [%d1];", Kind::OutOfBounds);
  check_finds("ld.param.u32 %r1, [p0+8];", Kind::OutOfBounds);
}

TEST_CASE("misaligned accesses are found") {
  check_finds("ld.global.u32 %r1, [%d0+2];", Kind::Misaligned);
  check_finds("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];", Kind::Misaligned);
  check_finds("st.shared.u16 [tile+1], %r0;", Kind::Misaligned);
}

TEST_CASE("memory that is only read is not written") {
  std::vector<uint8_t> array(64);
  Memory memory;
  memory.add(array.data(), array.size(), "weights", false);
  Parameters parameters;
  parameters.add(array.data());
  Program program = parse(entry(1, "ld.param.u64 %d0, [p0]; st.global.u32 [%d0], 1;"));
  Report report = launch(program, "test", {1}, {1}, 0, parameters.bytes(), memory);
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].kind == Kind::ReadOnly);
  CHECK_THAT(report.findings[0].text(), Contains("'weights'"));
}

TEST_CASE("a deadlock shows every warp's position") {
  std::string body = "setp.lt.u32 %p1, %r0, 32; @%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64;";
  check_finds(body, Kind::Deadlock);
  CHECK_THAT(findings(run_block(body)),
             Contains("warp 0") && Contains("warp 1") && Contains("waits at a barrier"));
  check_finds("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0, 64;", Kind::Deadlock);
  // All that live: those that left are not awaited.
  check_clean("setp.lt.u32 %p1, %r0, 32; @%p1 ret; bar.sync 0;");
  check_finds("bar.sync 1, 32; bar.sync 16;", Kind::Deadlock);
}

TEST_CASE("a barrier in divergent code is found") {
  check_finds("and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bra even; bar.sync 0; even:",
              Kind::DivergentWarp);
  check_finds("and.b32 %r1, %r0, 1; setp.eq.u32 %p1, %r1, 0; @%p1 bar.sync 0;",
              Kind::DivergentWarp);
  check_finds(R"(setp.lt.u32 %p1, %r0, 5; @%p1 ret;
                 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%r1, %r2, %r3, %r4},
                   {%r0, %r0}, {%r0}, {%r0, %r0, %r0, %r0};)",
              Kind::DivergentWarp);
  check_finds("shfl.sync.idx.b32 %r1, %r0, 0, 31, 0x1;", Kind::DivergentWarp);
}

TEST_CASE("an endless loop meets the instruction limit") {
  Options options;
  options.max_instructions = 100000;
  check_finds("again: bra again;", Kind::InstructionLimit, options);
}

TEST_CASE("trap ends the kernel") {
  check_finds("setp.eq.u32 %p1, %r0, 40; @%p1 trap;", Kind::Trap);
  CHECK_THAT(findings(run_block("setp.eq.u32 %p1, %r0, 40; @%p1 trap;")), Contains("thread 40"));
}

TEST_CASE("findings name the user's line") {
  std::vector<uint8_t> array(64);
  std::string text = entry(1, ".loc 1 42 7\nld.param.u64 %d0, [p0];\nld.global.u32 %r1, [%d0+64];",
                           ".file 1 \"kernel.cpp\"");
  Report report = run_text(text, {&array}, {1}, {1});
  REQUIRE(report.findings.size() == 1);
  CHECK(report.findings[0].file == "kernel.cpp");
  CHECK(report.findings[0].line == 42);
  CHECK(report.findings[0].ptx_line == 10);
  CHECK_THAT(report.findings[0].text(), Contains("kernel.cpp:42: out of bounds"));
}

TEST_CASE("findings are the same in every run, and one an instruction") {
  auto run = [] {
    std::vector<uint8_t> array(4096);
    return findings(run_text(entry(1,
                                   "mov.u32 %r0, %tid.x; st.shared.u32 [tile], %r0;"
                                   "ld.shared.u32 %r1, [tile+8];",
                                   kShared),
                             {&array}, {16}, {64}));
  };
  std::string first = run();
  CHECK(run() == first);
  CHECK(std::count(first.begin(), first.end(), '\n') == 6);  // two of them
}

}  // namespace
}  // namespace kiln::ptx
