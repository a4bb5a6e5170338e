#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using Kind = FindingKind;

// Each of 32 threads copies 16 bytes of the array to the tile, waits as told and reads them back,
// or its neighbour's.
Report run_copy(const std::string& copy, const std::string& wait, AsyncMode mode, bool neighbour,
                std::vector<uint8_t>* output, size_t array_bytes = 512) {
  std::vector<uint8_t> input(array_bytes);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<uint8_t>(i * 7 + 1);
  output->assign(512, 0);
  Options options;
  options.async = mode;
  std::string body = R"(
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; ld.param.u64 %d1, [p1];
    mad.wide.u32 %d2, %r0, 16, %d0; mad.wide.u32 %d3, %r0, 16, %d1;
    mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1; mov.u32 %r9, 5; setp.lt.u32 %p1, %r0, 4;
    mov.u32 %r8, 0;
    )" + copy + wait +
                     (neighbour ? "xor.b32 %r2, %r2, 16;" : "") + R"(
    ld.shared.v4.b32 {%r3, %r4, %r5, %r6}, [%r2];
    st.global.v4.b32 [%d3], {%r3, %r4, %r5, %r6};)";
  return run_text(entry(2, body, ".shared .align 16 .b8 tile[1024];"), {&input, output}, {1}, {32},
                  0, options);
}

constexpr const char* kCopy = "cp.async.cg.shared.global [%r2], [%d2], 16;\n";

TEST_CASE("cp.async copies once it is awaited") {
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest})
    for (const char* wait :
         {"cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"}) {
      std::vector<uint8_t> output;
      Report report = run_copy(kCopy, wait, mode, false, &output);
      CHECK(findings(report) == "");
      for (size_t i = 0; i < 512; ++i) REQUIRE(output[i] == static_cast<uint8_t>(i * 7 + 1));
    }
}

TEST_CASE("the profile tells which lanes a predicate held back and which copies a wait completed") {
  std::vector<uint8_t> output;
  Report report = run_copy("@%p1 cp.async.cg.shared.global [%r2], [%d2], 16;\n",
                           "cp.async.wait_all;", AsyncMode::AtLatest, false, &output);
  uint64_t passed = 0, held_back = 0, completed = 0;
  for (const LineProfile& line : report.lines) {
    if (line.instruction.starts_with("cp.async.cg")) {
      passed += line.lanes;
      held_back += line.held_back;
    }
    if (line.instruction == "cp.async.wait_all") completed += line.completed;
  }
  CHECK(passed == 4);
  CHECK(held_back == 28);
  CHECK(completed == 4);
}

TEST_CASE("a copy that is not awaited is found in both modes") {
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest})
    for (const char* wait :
         {"", "cp.async.commit_group;", "cp.async.commit_group; cp.async.wait_group 1;",
          "cp.async.wait_group 0;"}) {
      std::vector<uint8_t> output;
      Report report = run_copy(kCopy, wait, mode, false, &output);
      INFO(wait);
      CHECK(has(report, Kind::AsyncNotAwaited));
      // Latest: the bytes are not there, and the results show it.
      bool arrived = output[1] == 8;
      CHECK(arrived == (mode == AsyncMode::AtIssue));
    }
}

TEST_CASE("other threads need a barrier after the wait") {
  std::vector<uint8_t> output;
  Report report = run_copy(kCopy, "cp.async.wait_all;", AsyncMode::AtIssue, true, &output);
  CHECK(has(report, Kind::Race));
  report = run_copy(kCopy, "cp.async.wait_all; bar.sync 0;", AsyncMode::AtLatest, true, &output);
  CHECK(findings(report) == "");
  CHECK(output[0] == static_cast<uint8_t>(16 * 7 + 1));
}

TEST_CASE("wait_group leaves the last groups open") {
  // Two groups, the second to the upper half of the tile: one may stay open.
  std::string copies = std::string(kCopy) +
                       "cp.async.commit_group;\n"
                       "cp.async.ca.shared.global [%r2+512], [%d2], 16;\n"
                       "cp.async.commit_group;\n";
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest}) {
    std::vector<uint8_t> output;
    Report report = run_copy(copies, "cp.async.wait_group 1;", mode, false, &output);
    CHECK(findings(report) == "");
    CHECK(output[17] == static_cast<uint8_t>(17 * 7 + 1));
  }
}

TEST_CASE("cp.async fills with zeros beyond the source's size") {
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest}) {
    std::vector<uint8_t> output;
    Report report = run_copy("cp.async.cg.shared.global [%r2], [%d2], 16, %r9;\n",
                             "cp.async.wait_all;", mode, false, &output);
    CHECK(findings(report) == "");
    for (size_t i = 0; i < 512; ++i)
      REQUIRE(output[i] == (i % 16 < 5 ? static_cast<uint8_t>(i * 7 + 1) : 0));
    report = run_copy("cp.async.cg.shared.global [%r2], [%d2], 16, %p1;\n", "cp.async.wait_all;",
                      mode, false, &output);
    CHECK(findings(report) == "");
    for (size_t i = 0; i < 512; ++i)
      REQUIRE(output[i] == (i / 16 < 4 ? 0 : static_cast<uint8_t>(i * 7 + 1)));
  }
}

TEST_CASE("cp.async reads no further than its source's size") {
  // The array ends within the last thread's 16 bytes.
  std::vector<uint8_t> output;
  Report report = run_copy(kCopy, "cp.async.wait_all;", AsyncMode::AtIssue, false, &output, 501);
  CHECK(has(report, Kind::OutOfBounds));
  report = run_copy("cp.async.cg.shared.global [%r2], [%d2], 16, %r9;\n", "cp.async.wait_all;",
                    AsyncMode::AtIssue, false, &output, 501);
  CHECK(findings(report) == "");
  // A size of 0 reads nothing, wherever the pointer points.
  report = run_copy("cp.async.cg.shared.global [%r2], [%d2], 16, %r8;\n", "cp.async.wait_all;",
                    AsyncMode::AtIssue, false, &output, 16);
  CHECK(findings(report) == "");
}

TEST_CASE("cp.async of 4 and 8 bytes, and misaligned ones") {
  std::vector<uint8_t> output;
  Report report = run_copy(
      "cp.async.ca.shared.global [%r2], [%d2], 8; cp.async.ca.shared.global [%r2+8], [%d2+8], 4;\n"
      "cp.async.ca.shared.global [%r2+12], [%d2+12], 4;\n",
      "cp.async.wait_all;", AsyncMode::AtLatest, false, &output);
  CHECK(findings(report) == "");
  for (size_t i = 0; i < 512; ++i) REQUIRE(output[i] == static_cast<uint8_t>(i * 7 + 1));
  report = run_copy("cp.async.cg.shared.global [%r2], [%d2+8], 16;\n", "cp.async.wait_all;",
                    AsyncMode::AtIssue, false, &output);
  CHECK(has(report, Kind::Misaligned));
}

TEST_CASE("a copy over bytes that others still read is a race") {
  std::string body = R"(
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mov.u32 %r1, tile;
    mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %d2, %r0, 16, %d0;
    st.shared.v4.b32 [%r2], {%r0, %r0, %r0, %r0}; bar.sync 0;
    xor.b32 %r3, %r2, 16; ld.shared.b32 %r4, [%r3];
    $ cp.async.cg.shared.global [%r2], [%d2], 16; cp.async.wait_all;)";
  std::vector<uint8_t> array(512);
  auto run = [&](const char* between) {
    std::string all = body;
    all.replace(all.find('$'), 1, between);
    return run_text(entry(1, all, ".shared .align 16 .b8 tile[512];"), {&array}, {1}, {32});
  };
  CHECK(has(run(""), Kind::Race));
  CHECK(findings(run("bar.sync 0;")) == "");
}

}  // namespace
}  // namespace kiln::ptx
