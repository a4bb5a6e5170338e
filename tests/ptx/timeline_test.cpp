// The clock of one block: what waits for what, which of three schedules is the fastest, and the
// JSON.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/ptx/hopper.h"
#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

Options timed() {
  Options options;
  options.timeline = Dim3{0, 0, 0};
  return options;
}

// Thread 0 copies 2048 bytes, and when they are there 2048 more; then four warps multiply.
const char* const kProgram = R"(.version 8.4
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b8 full[16];
.visible .entry test(.param .u64 p0)
.reqntid 128
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<8>;
ld.param.u64 %d0, [p0];
mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, full;
setp.eq.u32 %p0, %r0, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
@%p0 mbarrier.init.shared::cta.b64 [%r2+8], 1;
fence.proxy.async;
bar.sync 0;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 2048;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 2048, [%r2];
W0: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
@!%p1 bra W0;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2+8], 2048;
@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1+2048], [%d0], 2048, [%r2+8];
W1: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+8], 0;
@!%p2 bra W1;
shr.u32 %r3, %r1, 4; cvt.u64.u32 %d1, %r3; or.b64 %d1, %d1, 0x1000080000; add.u64 %d2, %d1, 128;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, %d1, %d2, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
ret;
}
)";

Report run_program(const Options& options) {
  std::vector<uint8_t> input(2048);
  return run_text(kProgram, {&input}, {1}, {128}, 0, options);
}

std::vector<Interval> of(const Timeline& timeline, uint32_t warp, Interval::Kind kind) {
  std::vector<Interval> all;
  std::copy_if(timeline.intervals.begin(), timeline.intervals.end(), std::back_inserter(all),
               [&](const Interval& i) { return i.warp == warp && i.kind == kind; });
  return all;
}

}  // namespace

// By the costs of runtime/ptx/clock.cpp. Each warp has a quarter of its own, so none waits for
// another's turn to issue.
TEST_CASE("a timeline by hand", "[timeline]") {
  const Timeline timeline = run_program(timed()).timeline;
  // setp at 0, its predicate at 6; two inits at 6 and 7, the fence at 8, bar.sync at 9, over 20
  // later; expect_tx at 29, the copy at 30, the wait 30 later. 2048 bytes at 47 a clock: 44, and
  // 690 on the way.
  const uint64_t first = 30 + 44 + 690;
  // The branch of the loop, expect_tx, the copy.
  const uint64_t second = first + 2 + 44 + 690;
  const auto loads = of(timeline, 0, Interval::Kind::Load);
  REQUIRE(loads.size() == 2);
  CHECK(loads[0].begin == 30);
  CHECK(loads[0].end == first);
  CHECK(loads[1].begin == first + 2);
  CHECK(loads[1].end == second);
  CHECK(loads[1].bytes == 2048);
  const auto waits = of(timeline, 0, Interval::Kind::WaitMbarrier);
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].begin == 61);
  CHECK(waits[0].end == first);
  CHECK(waits[1].begin == first + 33);
  CHECK(waits[1].end == second);
  // The branch; shr, cvt, or, add one after another, 6 each; the fence 63 after the last is there.
  const uint64_t product = second + 1 + 4 * 6 + 63 + 1;
  for (uint32_t warp = 0; warp < 4; ++warp) {
    INFO(warp);
    const auto products = of(timeline, warp, Interval::Kind::Product);
    REQUIRE(products.size() == 1);
    CHECK(products[0].begin == product);
    CHECK(products[0].end == product + 16 + 16 / 4);  // reading a and b takes longer than 16/2
    const auto wait = of(timeline, warp, Interval::Kind::WaitProducts);
    REQUIRE(wait.size() == 1);
    CHECK(wait[0].begin == product + 19 + 2);  // commit_group, wait_group
    CHECK(wait[0].end == product + 20 + 68);
  }
  CHECK(timeline.clocks == product + 20 + 68 + 1);  // ret
  CHECK(timeline.tensor_clocks == 4 * 20);
  CHECK(timeline.warps == 4);
  CHECK(timeline.entry == "test");
}

// The same attention with no overlap inside a warpgroup, with the next scores under way during the
// softmax, and with a guessed maximum besides. On an H200 the tensor cores were busy 62 to 65, 73
// to 76 and 82 to 86 % of the time, from the sparsest problem to the densest.
TEST_CASE("a timeline ranks schedules as a GPU does", "[hopper][timeline]") {
  HopperProblem problem{1, 1024, false, 0.6};
  problem.draw(5);
  std::map<std::string, Timeline> of;
  for (const char* file : {"noov.ptx", "base.ptx", "xdn.ptx"}) {
    INFO(file);
    const Report report = problem.run(parse(hopper_text(file)), 1, timed());
    CHECK(hopper_findings(report) == "");
    CHECK(problem.error() < 2e-3);
    of[file] = report.timeline;
  }
  CHECK(of["noov.ptx"].clocks > 1.1 * static_cast<double>(of["base.ptx"].clocks));
  CHECK(of["base.ptx"].clocks > 1.08 * static_cast<double>(of["xdn.ptx"].clocks));
  CHECK(of["noov.ptx"].tensor_share() == Approx(0.63).margin(0.06));
  CHECK(of["base.ptx"].tensor_share() == Approx(0.745).margin(0.06));
  CHECK(of["xdn.ptx"].tensor_share() == Approx(0.84).margin(0.06));
}

TEST_CASE("a timeline as trace events: rows of warps, tensor cores and stages", "[timeline]") {
  const Timeline timeline = run_program(timed()).timeline;
  const auto json = nlohmann::json::parse(trace_events(timeline));
  CHECK(json["otherData"]["clocks"] == timeline.clocks);
  std::map<std::string, int> rows, events;
  std::map<std::pair<int, int>, uint64_t> ends;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["name"] == "thread_name") ++rows[event["args"]["name"]];
      continue;
    }
    REQUIRE(event["ph"] == "X");
    ++events[event["name"]];
    uint64_t& end = ends[{event["pid"], event["tid"]}];
    CHECK(event["ts"] >= end);  // events of a row do not overlap
    end = event["ts"].get<uint64_t>() + event["dur"].get<uint64_t>();
    CHECK(end <= timeline.clocks);
    CHECK(event["args"]["first PTX line"] > 0);
  }
  CHECK(rows == std::map<std::string, int>{{"warp 0", 1},
                                           {"warp 1, consumer", 1},
                                           {"warp 2, consumer", 1},
                                           {"warp 3, consumer", 1},
                                           {"quarter 0", 1},
                                           {"quarter 1", 1},
                                           {"quarter 2", 1},
                                           {"quarter 3", 1},
                                           {"stage 0: mbarrier at shared+4096", 1},
                                           {"stage 1: mbarrier at shared+4104", 1}});
  CHECK(events["TMA load"] == 2);
  CHECK(events["wgmma"] == 4);
  CHECK(events["wait: mbarrier"] == 8);
  CHECK(events["wait: wgmma.wait_group"] == 4);
}

TEST_CASE("a timeline is of the block that was asked for, and of no other", "[timeline]") {
  const std::string text = entry(1, "bar.sync 0; ret;");
  const auto run = [&](Dim3 at, std::optional<Dim3> only) {
    std::vector<uint8_t> none(8);
    Options options;
    options.timeline = at;
    options.only_block = only;
    return run_text(text, {&none}, {3}, {64}, 0, options).timeline;
  };
  CHECK(run({2, 0, 0}, {}).block == Dim3{2, 0, 0});
  CHECK(run({2, 0, 0}, Dim3{2, 0, 0}).warps == 2);
  const std::string why = "the block of the timeline is none of those that run";
  CHECK_THROWS_WITH(run({3, 0, 0}, {}), why);
  CHECK_THROWS_WITH(run({1, 0, 0}, Dim3{2, 0, 0}), why);
  CHECK(run_program({}).timeline.intervals.empty());
}

}  // namespace kiln::ptx
