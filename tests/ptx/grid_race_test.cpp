// Races between the blocks of a launch, each by a program that has one and its twin that has not.
#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using Catch::Matchers::Contains;

// 8 blocks of 32 threads: %r0 is the thread, %r1 the block, %d0 the array of 4096 bytes, %d1 the
// thread's own word of it, %p1 whether the thread is the first.
Report run_blocks(const std::string& body, int threads = 1, uint32_t blocks = 8) {
  std::vector<uint8_t> array(4096);
  Options options;
  options.threads = threads;
  return run_text(entry(1, R"(
    mov.u32 %r0, %tid.x; mov.u32 %r1, %ctaid.x; ld.param.u64 %d0, [p0];
    mad.lo.u32 %r2, %r1, 32, %r0; mad.wide.u32 %d1, %r2, 4, %d0;
    setp.eq.u32 %p1, %r0, 0;
    )" + body),
                  {&array}, {blocks}, {32}, 0, options);
}

// The findings of one host thread, which are those of any number of them.
std::string found(const std::string& body) {
  std::string one = findings(run_blocks(body));
  // Addresses differ from run to run.
  auto without_address = [](std::string text) {
    for (size_t at; (at = text.find("0x")) != std::string::npos;)
      text.erase(at, text.find(' ', at) - at);
    return text;
  };
  for (int threads : {2, 3, 8}) {
    INFO(body << " on " << threads << " threads");
    CHECK(without_address(findings(run_blocks(body, threads))) == without_address(one));
  }
  return one;
}

void check_race(const std::string& body) {
  INFO(body);
  CHECK_THAT(found(body), Contains("nothing orders the blocks of a launch"));
}

void check_clean(const std::string& body) {
  INFO(body);
  CHECK(found(body) == "");
}

TEST_CASE("blocks that write one place race, whatever they write") {
  check_clean("st.global.u32 [%d1], %r1;");
  check_race("@%p1 st.global.u32 [%d0], %r1;");
  check_race("@%p1 st.global.u32 [%d0], 5;");
  // The first word of the next block's.
  check_race("st.global.u32 [%d1], %r1; bar.sync 0; st.global.u32 [%d1+4], %r1;");
  check_clean(
      "st.global.u32 [%d1], %r1; bar.sync 0;"
      "setp.lt.u32 %p2, %r0, 31; @%p2 st.global.u32 [%d1+4], %r1;");
}

TEST_CASE("blocks race to the byte") {
  const std::string own_byte = "cvt.u64.u32 %d2, %r1; add.u64 %d2, %d2, %d0;";
  check_clean(own_byte + "@%p1 st.global.u8 [%d2], %r1;");
  check_race(own_byte + "@%p1 st.global.u8 [%d2], %r1; @%p1 st.global.u8 [%d2+1], %r1;");
  // Words of some blocks over bytes of others.
  check_race(own_byte +
             R"(setp.eq.u32 %p2, %r1, 5; and.pred %p3, %p1, %p2; @%p3 st.global.u32 [%d0], 1;
                           setp.eq.u32 %p2, %r1, 3; and.pred %p3, %p1, %p2;
                           @%p3 st.global.u8 [%d2], %r1;)");
  check_clean(own_byte + R"(setp.eq.u32 %p2, %r1, 5; and.pred %p3, %p1, %p2;
                            @%p3 st.global.u32 [%d0], 1;
                            setp.gt.u32 %p2, %r1, 5; and.pred %p3, %p1, %p2;
                            @%p3 st.global.u8 [%d2], %r1;)");
}

TEST_CASE("a block that reads what another writes races, whichever comes first") {
  check_clean("ld.global.u32 %r3, [%d0];");
  check_clean("st.global.u32 [%d1], %r1; ld.global.u32 %r3, [%d1];");
  check_clean("st.global.u32 [%d1], %r1; bar.sync 0; ld.global.u32 %r3, [%d1];");
  for (const char* block : {"0", "3", "7"})
    check_race("ld.global.u32 %r3, [%d0]; bar.sync 0; setp.eq.u32 %p2, %r1, " + std::string(block) +
               "; and.pred %p2, %p1, %p2; @%p2 st.global.u32 [%d0], 1;");
}

TEST_CASE("atomics of several blocks do not race with each other, but with plain accesses") {
  const std::string add = "@%p1 red.global.add.u32 [%d0], 1;";
  check_clean(add);
  check_clean("atom.global.add.u32 %r3, [%d0], 1; atom.global.max.u32 %r3, [%d0], %r1;");
  check_race(add + "bar.sync 0; ld.global.u32 %r3, [%d0];");
  check_race(add + "setp.eq.u32 %p2, %r1, 7; and.pred %p2, %p1, %p2; bar.sync 0;" +
             "@%p2 st.global.u32 [%d0], 0;");
  check_clean(add + "bar.sync 0; ld.relaxed.gpu.global.u32 %r3, [%d0];");
}

// Each block writes its word; the last one to count itself reads all of them.
std::string last_block(const char* release, const char* acquire) {
  return std::string(R"(
    mad.wide.u32 %d2, %r1, 4, %d0;
    @!%p1 bra done;
    st.global.u32 [%d2], %r1;
    )") + release +
         R"(
    atom.relaxed.gpu.global.add.u32 %r3, [%d0+512], 1;
    setp.ne.u32 %p2, %r3, 7;
    @%p2 bra done;
    )" + acquire +
         R"(
    mov.u32 %r4, 0;
    again:
    mad.wide.u32 %d2, %r4, 4, %d0;
    ld.global.u32 %r5, [%d2];
    add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 8;
    @%p3 bra again;
    done:)";
}

TEST_CASE("fences around an atomic order blocks") {
  const char* fence = "fence.acq_rel.gpu;";
  check_clean(last_block(fence, fence));
  // Which block is the last one is chance with several host threads, so is what the finding names.
  for (auto [release, acquire] : {std::pair("", fence), {fence, ""}, {"", ""}})
    CHECK_THAT(findings(run_blocks(last_block(release, acquire))),
               Contains("nothing orders the blocks of a launch"));
}

TEST_CASE("a race between blocks names both places") {
  std::vector<uint8_t> array(64);
  const std::string text = entry(1, R"(ld.param.u64 %d0, [p0]; mov.u32 %r1, %ctaid.x;
.loc 1 42 7
ld.global.u32 %r2, [%d0+8];
.loc 1 43 1
setp.eq.u32 %p1, %r1, 2;
@%p1 st.global.u32 [%d0+8], 1;)",
                                 ".file 1 \"kernel.cpp\"");
  Report report = run_text(text, {&array}, {4}, {1});
  REQUIRE(report.findings.size() == 1);
  const Finding& finding = report.findings[0];
  CHECK(finding.kind == FindingKind::Race);
  CHECK(finding.block == Dim3{2, 0, 0});
  CHECK(finding.file == "kernel.cpp");
  CHECK(finding.line == 43);
  CHECK_THAT(finding.message,
             Contains("block (2, 0, 0) writes") && Contains("'array0' + 8 of 64") &&
                 Contains("block (0, 0, 0) reads it at PTX line 10") && Contains("kernel.cpp:42"));
  CHECK_FALSE(finding.advice.empty());
}

TEST_CASE("what comes before the end of a grid is the same on any number of threads") {
  // Block 4 reads out of bounds; blocks 0 to 3 have a race, and 6 and 7 may or may not have run.
  const std::string body = R"(
    and.b32 %r3, %r1, 1; mad.wide.u32 %d2, %r3, 4, %d0;
    setp.lt.u32 %p2, %r1, 4; and.pred %p2, %p1, %p2;
    @%p2 st.global.u32 [%d2], %r1;
    setp.eq.u32 %p3, %r1, 4; @%p3 ld.global.u32 %r4, [%d0+4096];
    setp.gt.u32 %p4, %r1, 5; and.pred %p4, %p1, %p4;
    @%p4 st.global.u32 [%d0+1024], %r1;)";
  const std::string all = found(body);
  CHECK_THAT(all, Contains("out of bounds") && Contains("block (2, 0, 0) writes"));
  CHECK_THAT(all, !Contains("block (7, 0, 0)"));
}

}  // namespace
}  // namespace kiln::ptx
