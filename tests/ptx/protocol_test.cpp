// mbarriers, roles and what the async proxy sees: what goes right, and each mistake by its finding.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using Catch::Matchers::Contains;
using Kind = FindingKind;

constexpr AsyncMode kModes[] = {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random};

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

// Warp 0 copies `rounds` parts of the input into a ring of two slots; warps 1 and 2 add up what
// they find. All by the book.
const char* const kRing = R"(.version 8.4
.target sm_90a
.address_size 64
.shared .align 128 .b8 ring[1024];
.shared .align 8 .b8 bars[32];
.visible .entry test(.param .u64 p0, .param .u64 p1)
.reqntid 96
{
.reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %d<8>;
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
mov.u32 %r1, ring; mov.u32 %r2, bars; setp.eq.u32 %p1, %r0, 0;
@!%p1 bra START;
mbarrier.init.shared::cta.b64 [%r2], 1; mbarrier.init.shared::cta.b64 [%r2+8], 1;
mbarrier.init.shared::cta.b64 [%r2+16], 2; mbarrier.init.shared::cta.b64 [%r2+24], 2;
fence.mbarrier_init.release.cluster;
START:
bar.sync 0;
mov.u32 %r3, 0; mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0;
setp.ge.u32 %p2, %r0, 32;
@%p2 bra CONSUME;
@!%p1 bra END;
PRODUCE:
and.b32 %r7, %r3, 1; shr.u32 %r8, %r3, 1; and.b32 %r8, %r8, 1; xor.b32 %r9, %r8, 1;
mad.lo.u32 %r10, %r7, 8, %r2; mad.lo.u32 %r11, %r7, 512, %r1;
WE: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10+16], %r9;
@!%p3 bra WE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%d1], 512, [%r10];
add.u64 %d1, %d1, 512; add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 5;
@%p4 bra PRODUCE;
bra END;
CONSUME:
sub.u32 %r12, %r0, 32; mad.wide.u32 %d2, %r12, 8, %d0;
LOOP:
and.b32 %r7, %r3, 1; shr.u32 %r8, %r3, 1; and.b32 %r8, %r8, 1;
mad.lo.u32 %r10, %r7, 8, %r2; mad.lo.u32 %r11, %r7, 512, %r1; mad.lo.u32 %r13, %r12, 8, %r11;
WF: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], %r8;
@!%p3 bra WF;
ld.shared.b32 %r14, [%r13];
add.u32 %r5, %r5, %r14;
bar.warp.sync -1;
and.b32 %r15, %r0, 31; setp.eq.u32 %p5, %r15, 0;
@%p5 mbarrier.arrive.shared::cta.b64 _, [%r10+16];
add.u32 %r3, %r3, 1; setp.lt.u32 %p4, %r3, 5;
@%p4 bra LOOP;
cvt.u64.u32 %d3, %r5;
st.global.b64 [%d2], %d3;
END:
ret;
}
)";

Report run_ring(const std::string& text, AsyncMode mode, std::vector<uint64_t>* output = nullptr) {
  std::vector<uint64_t> input(5 * 64), sums(64);
  for (size_t i = 0; i < input.size(); ++i) input[i] = i * i % 1009;
  Memory memory;
  memory.add(input.data(), 8 * input.size(), "input");
  memory.add(sums.data(), 8 * sums.size(), "output");
  Parameters parameters;
  parameters.add(sums.data()).add(input.data());
  Options options;
  options.async = mode;
  options.max_instructions = 200000;
  const Report report =
      launch(parse(text), "test", {1}, {96}, 0, parameters.bytes(), memory, options);
  if (output) *output = sums;
  return report;
}

}  // namespace

TEST_CASE("a ring of two slots, by roles, in all modes", "[protocol]") {
  for (AsyncMode mode : kModes) {
    std::vector<uint64_t> output;
    const Report report = run_ring(kRing, mode, &output);
    CHECK(findings(report) == "");
    for (uint64_t i = 0; i < 64; ++i) {
      uint64_t sum = 0;
      for (uint64_t round = 0; round < 5; ++round)
        sum += (64 * round + i) * (64 * round + i) % 1009;
      REQUIRE(output[i] == sum);
    }
  }
}

TEST_CASE("each mistake in a ring is found in all modes", "[protocol]") {
  struct Mistake {
    const char *what, *by;
    std::vector<const char*> messages;  // one of them, by mode
  };
  const Mistake mistakes[] = {
      {"@!%p3 bra WF;", "", {"copies to it"}},
      {"@!%p3 bra WE;", "", {"copies to it", "1 arrivals at the mbarrier"}},
      {"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 512;",
       "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 528;",
       {"16 bytes are to come"}},
      {"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 512;",
       "mbarrier.arrive.shared::cta.b64 _, [%r10];",
       {"copies to it"}},
      {"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r10], 512;",
       "",
       {"512 bytes came that none expected"}},
      {"@%p5 mbarrier.arrive", "mbarrier.arrive", {"no warp can go on"}},
      {"mbarrier.init.shared::cta.b64 [%r2+24], 2;",
       "mbarrier.init.shared::cta.b64 [%r2+24], 1;",
       {"no warp can go on", "phases have completed"}},
      {"@%p5 mbarrier.arrive.shared::cta.b64 _, [%r10+16];",
       "@%p5 mbarrier.arrive.shared::cta.b64 _, [%r10+16], 3;",
       {"3 arrivals at the mbarrier"}},
      {"@%p5 mbarrier.arrive.shared::cta.b64 _, [%r10+16];", "", {"2 of 2 arrivals are to come"}},
      {"fence.mbarrier_init.release.cluster;", "", {"initialisation"}},
      {"bar.warp.sync -1;", "", {"(a bulk copy that the mbarrier"}},
      {"bar.sync 0;", "", {"which warp 0 initialises"}},
      {"mbarrier.init.shared::cta.b64 [%r2+8], 1;", "", {"there is no mbarrier at"}},
      {"and.b32 %r8, %r8, 1;\nmad",
       "and.b32 %r8, %r8, 1; xor.b32 %r8, %r8, 1;\nmad",
       {"nothing was written to", "copies to it"}},
      {"xor.b32 %r9, %r8, 1;", "mov.u32 %r9, %r8;", {"waits for parity 0"}},
  };
  for (const Mistake& mistake : mistakes)
    for (AsyncMode mode : kModes) {
      INFO(mistake.what << " -> " << mistake.by << ", mode " << static_cast<int>(mode));
      const std::string found = findings(run_ring(replaced(kRing, mistake.what, mistake.by), mode));
      INFO(found);
      CHECK(std::any_of(mistake.messages.begin(), mistake.messages.end(), [&](const char* message) {
        return found.find(message) != std::string::npos;
      }));
    }
}

TEST_CASE("phases that a warp did not see are reported", "[protocol]") {
  const std::string arrive = "mbarrier.arrive.shared::cta.b64 _, [%r1]; bar.warp.sync -1;";
  const std::string wait = "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0;";
  const auto run = [&](const std::string& between) {
    return run_text(entry(0,
                          ".shared .align 8 .b64 bar; mov.u32 %r0, %tid.x; mov.u32 %r1, bar;"
                          "setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared::cta.b64 [%r1], 32;"
                          "bar.sync 0;" +
                              arrive + wait + between + wait),
                    {}, {1}, {32});
  };
  CHECK(findings(run("")) == "");
  CHECK_THAT(findings(run(arrive + arrive)), Contains("of which 2 phases have completed since"));
}

TEST_CASE("a deadlock tells where each warp waits, for which phase", "[protocol]") {
  const std::string text = findings(
      run_ring(replaced(kRing,
                        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                        "[%r11], [%d1], 512, [%r10];",
                        ""),
               AsyncMode::AtIssue));
  CHECK_THAT(text, Contains("deadlock"));
  CHECK_THAT(text,
             Contains("warp 1 lanes 0xffffffff waits for parity 0 (the mbarrier at shared "
                      "address 0x800 ('bars' + 0) is in phase 0: 0 of 1 arrivals are to come, "
                      "512 bytes are to come)"));
}

TEST_CASE("registers are given back before others take them", "[protocol]") {
  const auto run = [](const std::string& directives, const std::string& producer,
                      const std::string& consumer) {
    const std::string text = fmt::format(R"(.version 8.4
.target sm_90a
.address_size 64
.visible .entry test()
{}
{{
.reg .pred %p<2>; .reg .b32 %r<2>;
mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 128;
@%p0 bra MORE;
{}
ret;
MORE:
{}
ret;
}}
)",
                                         directives, producer, consumer);
    return launch(parse(text), "test", {1}, {384}, 0, {}, Memory());
  };
  const std::string of_384 = ".reqntid 384";  // 168 registers each
  const auto set = [](const char* which, int registers) {
    return fmt::format("setmaxnreg.{}.sync.aligned.u32 {};", which, registers);
  };
  CHECK(findings(run(of_384, set("dec", 24), set("inc", 240))) == "");
  CHECK(findings(run(of_384 + "\n.minnctapersm 2", set("dec", 40), set("inc", 96))) == "");
  Report report = run(of_384, set("dec", 40), set("inc", 240));
  CHECK(has(report, Kind::Deadlock));
  CHECK_THAT(findings(report), Contains("waits for registers, 256 are free"));
  CHECK(has(run(of_384, "", set("inc", 240)), Kind::Deadlock));
  report = run(of_384, set("dec", 176), "");
  CHECK(has(report, Kind::RegisterBudget));
  CHECK_THAT(findings(report), Contains("warp 0 has 168 registers a thread and asks for 176"));
  CHECK(has(run(of_384, set("inc", 160), ""), Kind::RegisterBudget));
  CHECK_THROWS_WITH(run(of_384, set("dec", 23), ""), Contains("a multiple of 8 from 24 to 256"));
  CHECK(findings(run("", set("dec", 24), set("inc", 256))) == "");  // ptxas ignores it
}

TEST_CASE("clusters of one block", "[protocol]") {
  const std::vector<uint64_t> output = run_warp(R"(
    .shared .b32 word; mov.u32 %r1, word; mapa.shared::cluster.u32 %r2, %r1, 0;
    setp.eq.u32 %p1, %r0, 5; @%p1 st.shared::cluster.b32 [%r2], 77;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    ld.shared.b32 %r3, [%r1]; mov.u32 %r4, %cluster_nctarank; add.u32 %r3, %r3, %r4;
    cvt.u64.u32 %d4, %r3; st.global.b64 [%d0], %d4;)");
  for (uint64_t each : output) CHECK(each == 78);
}

TEST_CASE("copies out of shared memory: what must stand before and behind", "[protocol]") {
  const std::string program = entry(1, R"(
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, tile;
    mad.lo.u32 %r2, %r0, 16, %r1; st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    @!%p1 bra BEHIND;
    cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r1], 512;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    BEHIND:
    bar.sync 0;
    mov.u32 %r3, 0; st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3};
    @%p1 cp.async.bulk.wait_group 0;)",
                                    ".shared .align 128 .b8 tile[512];");
  const auto run = [&](const std::string& text, AsyncMode mode, std::vector<uint8_t>& output) {
    Options options;
    options.async = mode;
    return run_text(text, {&output}, {1}, {32}, 0, options);
  };
  for (AsyncMode mode : kModes) {
    std::vector<uint8_t> output(512);
    CHECK(findings(run(program, mode, output)) == "");
    for (size_t i = 0; i < 512; ++i) REQUIRE(output[i] == (i % 4 ? 0 : i / 16));
    Report report = run(replaced(program, "fence.proxy.async.shared::cta;", ""), mode, output);
    CHECK(has(report, Kind::ProxyFence));
    CHECK_THAT(findings(report), Contains("by the async proxy; thread 0 writes it"));
    report = run(replaced(program, "cp.async.bulk.wait_group.read 0;", ""), mode, output);
    CHECK(has(report, Kind::AsyncNotAwaited));
    CHECK_THAT(findings(report), Contains("a bulk copy of thread 0 reads it"));
    report = run(replaced(program, "cp.async.bulk.commit_group;", ""), mode, output);
    CHECK(has(report, Kind::AsyncNotAwaited));
    // What a thread leaves behind need not have read its source.
    report = run(replaced(replaced(program, "cp.async.bulk.wait_group.read 0;", "bra END;"),
                          "wait_group 0;", "wait_group 0; END:"),
                 mode, output);
    CHECK(!report.findings.empty());
  }
}

TEST_CASE("registers and shared memory of a wgmma under way", "[protocol]") {
  // b is zeros but for its first 16 bytes; a comes in registers, then d, which is stored.
  const std::string program = R"(.version 8.4
.target sm_90a
.address_size 64
.visible .entry test(.param .u64 p0)
{
.shared .align 1024 .b8 b[256];
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b32 %a<4>; .reg .f32 %f<8>; .reg .b64 %d<8>;
mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mad.wide.u32 %d1, %r0, 4, %d0;
mov.u32 %r1, b; mad.lo.u32 %r2, %r0, 2, %r1; mov.u32 %r3, 0x3c003c00; setp.lt.u32 %p0, %r0, 64;
mad.lo.u32 %r4, %r0, 4, %r1; @%p0 st.shared.b32 [%r4], %r3;
fence.proxy.async;
bar.sync 0;
shr.u32 %r5, %r1, 4; cvt.u64.u32 %d2, %r5; add.u64 %d2, %d2, 0x800080000;
mov.f32 %f0, 0f3f800000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
mov.b32 %a0, %r3; mov.b32 %a1, %r3; mov.b32 %a2, %r3; mov.b32 %a3, %r3;
wgmma.fence.sync.aligned;
setp.ne.u32 %p1, %r3, 0;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, {%a0, %a1, %a2, %a3}, %d2, %p1, 1, 1, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
bar.sync 1;
add.f32 %f4, %f0, %f3; st.global.f32 [%d1], %f4;
mov.b32 %a0, 0; @%p0 st.shared.b32 [%r4], %a0;
ret;
}
)";
  const auto run = [&](const std::string& text, AsyncMode mode, std::vector<uint8_t>& output) {
    Options options;
    options.async = mode;
    return run_text(text, {&output}, {1}, {128}, 0, options);
  };
  const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
  const auto before_wait = [&](const std::string& what) {
    return replaced(replaced(program, wait, what + wait), "mov.b32 %a0, 0; @%p0", "@%p3");
  };
  struct Mistake {
    std::string text;
    Kind kind;
    const char* message;
  };
  const Mistake mistakes[] = {
      {replaced(program, wait, ""), Kind::RegisterInFlight,
       "reads '%f0', an accumulator of a wgmma that it has not awaited"},
      {replaced(program, wait, "wgmma.wait_group.sync.aligned 1;\n"), Kind::RegisterInFlight,
       "an accumulator"},
      {replaced(program, "wgmma.commit_group.sync.aligned;", ""), Kind::RegisterInFlight,
       "an accumulator"},
      {before_wait("mov.b32 %a0, 0;"), Kind::RegisterInFlight,
       "writes '%a0', operand a of a wgmma"},
      {replaced(program, "wgmma.fence.sync.aligned;", ""), Kind::RegisterInFlight,
       "no wgmma.fence stands between"},
      {replaced(program, "wgmma.fence.sync.aligned;\n",
                "wgmma.fence.sync.aligned;\nmov.b32 %a2, 0;"),
       Kind::RegisterInFlight, "'%a2' is operand a here and no wgmma.fence"},
      {before_wait("@%p0 st.shared.b32 [%r4], %r3;"), Kind::AsyncNotAwaited, "a wgmma of warp"},
      {replaced(program, "fence.proxy.async;", ""), Kind::ProxyFence, "by the async proxy"},
      {replaced(program, "bar.sync 0;", ""), Kind::Race, "orders the two"},
  };
  for (AsyncMode mode : kModes) {
    std::vector<uint8_t> output(512);
    CHECK(findings(run(program, mode, output)) == "");
    float value;
    std::memcpy(&value, &output[40], 4);
    CHECK(value == 2 * (16 + 1));
    for (const Mistake& mistake : mistakes) {
      const Report report = run(mistake.text, mode, output);
      INFO(mistake.message << ", mode " << static_cast<int>(mode) << "\n" << findings(report));
      CHECK(has(report, mistake.kind));
      CHECK_THAT(findings(report), Contains(mistake.message));
    }
  }
}

TEST_CASE("what the emulator does not know of Hopper is named", "[protocol]") {
  const auto refused = [](const std::string& text) {
    CHECK_THROWS_WITH(parse(entry(0, text)), Contains("unknown instruction"));
  };
  refused(
      "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%r0,%r1,%r2,%r3}, %d0, %d1, %r4, 0, "
      "%p0, 1, 1, 0, 0;");
  refused(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r0], [%r1], 16, "
      "[%r2];");
  refused(
      "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r0], "
      "[%d0, {%r1, %r2, %r3}], [%r4], {%h0};");
  refused("mbarrier.arrive.expect.shared.b64 _, [%r0];");
  refused("fence.proxy.other;");
}

}  // namespace kiln::ptx
