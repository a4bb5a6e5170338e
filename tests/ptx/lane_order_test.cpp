// What one lane releases or waits for alone, and what a wait answers that nobody needs to ask.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using Catch::Matchers::Contains;

constexpr AsyncMode kModes[] = {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random};

// Two warps with 32 words and two mbarriers of one arrival. Warp 1 does `first`: it comes last to
// the barrier, so it goes on first. %p1: lane 0; %r4: a word for each lane.
std::string two_warps(const std::string& first, const std::string& second) {
  return entry(1,
               fmt::format(R"(
    ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mov.u32 %r1, bars; mov.u32 %r2, words;
    and.b32 %r3, %r0, 31; mad.lo.u32 %r4, %r3, 4, %r2;
    setp.eq.u32 %p1, %r3, 0; setp.lt.u32 %p2, %r0, 32; setp.eq.u32 %p3, %r0, 0;
    @%p3 mbarrier.init.shared::cta.b64 [%r1], 1; @%p3 mbarrier.init.shared::cta.b64 [%r1+8], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @%p2 bra SECOND;
    {}
    bra END;
    SECOND:
    {}
    END:)",
                           first, second),
               ".shared .align 16 .b8 words[128]; .shared .align 8 .b8 bars[16];");
}

std::string found(const std::string& text, AsyncMode mode) {
  std::vector<uint8_t> memory(128);
  Options options;
  options.async = mode;
  return findings(run_text(text, {&memory}, {1}, {64}, 0, options));
}

const std::string kArrive = "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];";
const std::string kMeet = "bar.warp.sync -1;";
const std::string kWrite = "st.shared.b32 [%r4], %r0;";
const std::string kRead = "ld.shared.b32 %r5, [%r4];";
const std::string kWait = "W: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0; @!%p4 bra W;";

}  // namespace

TEST_CASE("an arrival of one lane tells what the others did before all met", "[lanes]") {
  for (AsyncMode mode : kModes) {
    CHECK(found(two_warps(kWrite + kMeet + kArrive, kWait + kRead), mode) == "");
    CHECK_THAT(found(two_warps(kWrite + kArrive, kWait + kRead), mode),
               Contains("thread 1 reads") && Contains("thread 33 writes it"));
    // What they read is as much theirs.
    CHECK(found(two_warps(kWrite + kRead + kMeet + kArrive, kWait + kWrite), mode) == "");
    CHECK_THAT(found(two_warps(kWrite + kMeet + kRead + kArrive, kWait + kWrite), mode),
               Contains("thread 33 reads it"));
    // … and what they read before lane 0 read again.
    CHECK_THAT(
        found(two_warps(kWrite + kMeet + "ld.shared.b32 %r5, [%r2];" + kArrive +
                            "@%p1 ld.shared.b32 %r5, [%r2]; @%p1 mbarrier.arrive.shared::cta.b64 "
                            "_, [%r1+8];",
                        "V: mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1+8], 0; @!%p4 bra V; "
                        "@%p1 st.shared.b32 [%r2], %r0;"),
              mode),
        Contains("thread 0 writes") && Contains("thread 33 reads it"));
    // All lanes' arrivals tell of all lanes.
    const std::string all = "@%p3 mbarrier.init.shared::cta.b64 [%r1], 1;";
    std::string text =
        two_warps(kWrite + "mbarrier.arrive.shared::cta.b64 _, [%r1];", kWait + kRead);
    text.replace(text.find(all), all.size(), "@%p3 mbarrier.init.shared::cta.b64 [%r1], 32;");
    CHECK(found(text, mode) == "");
  }
}

TEST_CASE("what one lane has waited for, the others know once all have met", "[lanes]") {
  const std::string wait =
      "W: @%p1 mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;"
      "@!%p1 bra ON; @!%p4 bra W; ON:";
  for (AsyncMode mode : kModes) {
    CHECK(found(two_warps(kWrite + kMeet + kArrive, wait + kMeet + kRead), mode) == "");
    CHECK(found(two_warps(kWrite + kMeet + kArrive, wait + "@%p1 ld.shared.b32 %r5, [%r2+64];"),
                mode) == "");
    CHECK_THAT(found(two_warps(kWrite + kMeet + kArrive, wait + kRead), mode),
               Contains("thread 1 reads"));
  }
}

TEST_CASE("a wait may answer late, but not what its warp knows", "[lanes]") {
  const std::string once = "mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r1], 0;";
  const std::string test = "mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r1], 0;";
  for (const std::string& asks : {once, test}) {
    const std::string text = two_warps(kWrite + kMeet + kArrive, asks + kRead);
    CHECK(found(text, AsyncMode::AtIssue) == "");
    CHECK_THAT(found(text, AsyncMode::AtLatest), Contains("reads") && Contains("writes it"));
    CHECK(found(two_warps(kWrite + kMeet + kArrive, asks + "@%p4 " + kRead), AsyncMode::AtLatest) ==
          "");
    // A barrier behind the arrival: the phase is known to be complete.
    const std::string met = "bar.sync 1;";
    for (AsyncMode mode : kModes)
      CHECK(found(two_warps(kArrive + met, met + asks + "@!%p4 st.global.b32 [%d0+4096], %r0;"),
                  mode) == "");
    // … and so it is to the warp that has arrived last.
    for (AsyncMode mode : kModes)
      CHECK(found(two_warps(kArrive + asks + "@!%p4 st.global.b32 [%d0+4096], %r0;", ""), mode) ==
            "");
  }
}

}  // namespace kiln::ptx
