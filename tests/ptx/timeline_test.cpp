// The clock of one block: what waits for what, what costs how much, which of six schedules is the
// fastest, and the JSON.
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
  // The branch of the loop, expect_tx 5 later, the copy.
  const uint64_t second = first + 6 + 44 + 690;
  const auto loads = of(timeline, 0, Interval::Kind::Load);
  REQUIRE(loads.size() == 2);
  CHECK(loads[0].begin == 30);
  CHECK(loads[0].end == first);
  CHECK(loads[1].begin == first + 6);
  CHECK(loads[1].end == second);
  CHECK(loads[1].bytes == 2048);
  const auto waits = of(timeline, 0, Interval::Kind::WaitMbarrier);
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].begin == 61);
  CHECK(waits[0].end == first);
  CHECK(waits[1].begin == first + 37);
  CHECK(waits[1].end == second);
  // The branch; shr, cvt, or, add one after another, 6 each; the fence 63 after the last is there.
  const uint64_t product = second + 5 + 4 * 6 + 63 + 1;
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

namespace {

// 128 threads multiply twice, by descriptors from %d1 and %d2 that `text` makes; what stands behind
// comes then, and `ret`.
Report multiply(const std::string& text, const std::string& behind) {
  const std::string program = fmt::format(
      R"(.version 8.4
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[4096];
.visible .entry test(.param .u64 p0)
.reqntid 128
{{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>; .reg .f32 %f<12>;
mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.f32 %f9, 0f3f800000;
shl.b32 %r2, %r0, 5; add.u32 %r2, %r2, %r1;
st.shared.v4.u32 [%r2], {{0, 0, 0, 0}}; st.shared.v4.u32 [%r2+16], {{0, 0, 0, 0}};
fence.proxy.async; bar.sync 0;
setp.gt.u32 %p1, %r0, 999;
{}
shr.u32 %r3, %r1, 4; cvt.u64.u32 %d1, %r3; or.b64 %d1, %d1, 0x1000080000; add.u64 %d2, %d1, 128;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, %d1, %d2, 0, 1, 1, 0, 0;
wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}}, %d1, %d2, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
{}
wgmma.wait_group.sync.aligned 0;
ret;
}}
)",
      text, behind);
  std::vector<uint8_t> none(8);
  return run_text(program, {&none}, {1}, {128}, 0, timed());
}

}  // namespace

TEST_CASE("descriptors that may differ between lanes cost moves, by the clock", "[timeline]") {
  // From the first product's issue to the wait's, behind the commit.
  const auto takes = [](const std::string& text) {
    const Report report = multiply(text, "");
    CHECK(report.findings.empty());
    const Timeline& timeline = report.timeline;
    return of(timeline, 0, Interval::Kind::WaitProducts).at(0).begin -
           of(timeline, 0, Interval::Kind::Product).at(0).begin;
  };
  const uint64_t uniform = 2 * 19 + 2, moved = uniform + 2 * 4;
  CHECK(takes("") == uniform);
  // A thread's index, and what is computed from it; not what all lanes of a warp agree on.
  CHECK(takes("shr.u32 %r4, %r0, 7; add.u32 %r1, %r1, %r4;") == moved);
  CHECK(takes("shr.u32 %r4, %r0, 7; redux.sync.max.u32 %r4, %r4, -1; add.u32 %r1, %r1, %r4;") ==
        uniform);
  CHECK(takes("ld.shared.u32 %r4, [%r1]; add.u32 %r1, %r1, %r4;") == moved);
  // Where lanes part and meet again, by a thread's index or by what is the same for all.
  CHECK(takes("@%p1 bra L; add.u32 %r1, %r1, 128; L:") == moved);
  CHECK(takes("mov.u32 %r4, %ctaid.x; setp.ne.u32 %p2, %r4, 0; @%p2 bra L; add.u32 %r1, %r1, 128;"
              "L:") == uniform);
}

TEST_CASE("arithmetic moves over a wait that a short branch guards, by the clock", "[timeline]") {
  std::string exponentials;
  for (int i = 0; i < 12; ++i) exponentials += "ex2.approx.ftz.f32 %f10, %f9;\n";
  const auto clocks = [&](const std::string& more) {
    const Report report = multiply(
        "", "@%p1 bra L;\nwgmma.wait_group.sync.aligned 0;\n" + more + "L:\n" + exponentials);
    CHECK(report.findings.empty());
    return report.timeline.clocks;
  };
  std::string moves;
  for (int i = 0; i < 7; ++i) moves += "mov.u32 %r5, %r0;\n";
  CHECK(clocks(moves) > clocks("") + 60);  // eight instructions are not made predicates
}

TEST_CASE("stores take the time of the sectors that they touch, by the clock", "[timeline]") {
  const auto run = [](int stride) {
    std::string text = fmt::format(
        "ld.param.u64 %d0, [p0]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, {};"
        "add.u64 %d0, %d0, %d1;",
        stride);
    for (int i = 0; i < 8; ++i) text += fmt::format("st.global.u32 [%d0+{}], %r0;", 1024 * i);
    std::vector<uint8_t> out(8 * 1024);
    return run_text(entry(1, text + "ret;"), {&out}, {1}, {32}, 0, timed());
  };
  const Report sparse = run(32), dense = run(4);
  CHECK(sparse.counters.global_sectors == 8 * 32);
  // What follows the last comes when the 7 before it are out, at 47 bytes a clock.
  const auto bytes = [](const Report& report) {
    return report.counters.global_sectors / 8 * 7 * 32;
  };
  CHECK(sparse.timeline.clocks - dense.timeline.clocks == bytes(sparse) / 47 - bytes(dense) / 47);
}

// One attention kernel, and what it takes from it to change its schedule; H200: how busy the tensor
// cores were, from the sparsest problem to the densest.
//   noov  no overlap inside the warpgroup                     62 to 65 %
//   base  the next scores under way during the softmax        73 to 76
//   xo0   xdn, its output stored from registers               76 to 84
//   xk1   xdn, the next k awaited before the exponentials     77
//   xv4   xdn, v given back between the exponentials          82
//   xdn   as base, with a guessed maximum                     82 to 86
TEST_CASE("a timeline ranks schedules as a GPU does", "[hopper][timeline]") {
  HopperProblem problem{1, 1024, false, 0.6};
  problem.draw(5);
  std::map<std::string, double> clocks, busy;
  for (const std::string name : {"noov", "base", "xo0", "xk1", "xv4", "xdn"}) {
    INFO(name);
    const Report report = problem.run(parse(hopper_text(name + ".ptx")), 1, timed());
    CHECK(hopper_findings(report) == "");
    CHECK(problem.error() < 2e-3);
    clocks[name] = static_cast<double>(report.timeline.clocks);
    busy[name] = report.timeline.tensor_share();
  }
  CHECK(clocks["noov"] > 1.1 * clocks["base"]);
  CHECK(clocks["base"] > 1.08 * clocks["xo0"]);
  CHECK(clocks["base"] > 1.08 * clocks["xk1"]);
  CHECK(clocks["xo0"] > 1.001 * clocks["xv4"]);
  CHECK(clocks["xk1"] > 1.004 * clocks["xv4"]);
  CHECK(clocks["xv4"] == Approx(clocks["xdn"]).epsilon(0.01));
  CHECK(clocks["xk1"] > clocks["xdn"]);
  CHECK(clocks["xo0"] > clocks["xdn"]);
  CHECK(busy["noov"] == Approx(0.63).margin(0.06));
  CHECK(busy["base"] == Approx(0.745).margin(0.06));
  CHECK(busy["xdn"] == Approx(0.84).margin(0.06));
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
