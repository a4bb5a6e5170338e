#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

Counters count(const std::string& body, uint32_t threads = 32, Dim3 grid = {1}) {
  std::vector<uint8_t> array(65536);
  Options options;
  options.check_uninitialized = false;
  options.check_races = false;
  Report report = run_text(entry(1, "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0];" + body,
                                 ".shared .align 1024 .b8 tile[16384];"),
                           {&array}, grid, {threads}, 0, options);
  REQUIRE(findings(report) == "");
  return report.counters;
}

// Each lane reads `bytes` bytes at lane·stride of shared memory.
Counters shared(int stride, const std::string& load) {
  return count("mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, " + std::to_string(stride) + ", %r1;" +
               load);
}

TEST_CASE("bank conflicts") {
  struct {
    int stride;
    const char* load;
    uint64_t wavefronts, conflicts;
  } cases[] = {
      {4, "ld.shared.b32 %r2, [%r1];", 1, 0},
      {0, "ld.shared.b32 %r2, [%r1];", 1, 0},  // one word for all
      {8, "ld.shared.b32 %r2, [%r1];", 2, 1},
      {12, "ld.shared.b32 %r2, [%r1];", 1, 0},
      {128, "ld.shared.b32 %r2, [%r1];", 32, 31},
      {132, "ld.shared.b32 %r2, [%r1];", 1, 0},
      {2, "ld.shared.b16 %h2, [%r1];", 1, 0},
      {8, "ld.shared.b64 %d2, [%r1];", 2, 0},
      {16, "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1];", 4, 0},
      {32, "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1];", 8, 4},
      {16, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];", 4, 0},
      {128, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r2, %r3, %r4, %r5}, [%r1];", 32, 28},
      {144, "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r2, %r3}, [%r1];", 2, 0},
      {128, "st.shared.b32 [%r1], %r0;", 32, 31},
      {0, "ld.shared.b64 %d2, [%r1];", 1, 0},
      {0, "ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r1];", 2, 0},
  };
  for (auto& test : cases) {
    INFO(test.load << " stride " << test.stride);
    Counters counters = shared(test.stride, test.load);
    CHECK(counters.shared_wavefronts == test.wavefronts);
    CHECK(counters.bank_conflicts == test.conflicts);
    CHECK(counters.shared_requests == 1);
  }
}

TEST_CASE("lanes at one address, in pairs, halve the passes of a wide read") {
  // The lane's place in the tile as a number of 16 bytes.
  auto wavefronts = [](const std::string& place, const std::string& load) {
    return count(place + "mov.u32 %r1, tile; mad.lo.u32 %r1, %r2, 16, %r1;" + load)
        .shared_wavefronts;
  };
  const std::string two = "ld.shared.b64 %d2, [%r1];";
  const std::string four = "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r1];";
  const std::string one_apart = "shr.u32 %r2, %r0, 1;";
  CHECK(wavefronts(one_apart, four) == 2);
  CHECK(wavefronts(one_apart, two) == 2);  // 16 places two banks apart: the banks need two
  const std::string two_apart =
      "and.b32 %r2, %r0, 1; shr.u32 %r3, %r0, 2; mad.lo.u32 %r2, %r3, 2, %r2;";
  CHECK(wavefronts(two_apart, four) == 2);
  const std::string four_apart =
      "and.b32 %r2, %r0, 3; shr.u32 %r3, %r0, 3; mad.lo.u32 %r2, %r3, 4, %r2;";
  CHECK(wavefronts(four_apart, four) == 4);
  const std::string eight = "shr.u32 %r2, %r0, 3;";  // one word for each quarter
  CHECK(wavefronts(eight, four) == 2);
  CHECK(wavefronts(eight, two) == 1);
  CHECK(wavefronts("and.b32 %r2, %r0, 15;", four) == 4);
}

TEST_CASE("sectors of global memory") {
  struct {
    int stride;
    const char* load;
    uint64_t sectors, bytes;
  } cases[] = {
      {4, "ld.global.b32 %r2, [%d1];", 4, 128},
      {0, "ld.global.b32 %r2, [%d1];", 1, 128},
      {64, "ld.global.b32 %r2, [%d1];", 32, 128},
      {16, "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%d1];", 16, 512},
      {1, "st.global.b8 [%d1], %r0;", 1, 32},
  };
  for (auto& test : cases) {
    INFO(test.load << " stride " << test.stride);
    Counters counters =
        count("add.u64 %d0, %d0, 31; and.b64 %d0, %d0, -32; mad.wide.u32 %d1, %r0, " +
              std::to_string(test.stride) + ", %d0;" + test.load);
    CHECK(counters.global_sectors == test.sectors);
    CHECK(counters.global_bytes == test.bytes);
    CHECK(counters.global_requests == 1);
  }
}

TEST_CASE("instructions, lanes and barriers are counted") {
  Counters counters =
      count("setp.lt.u32 %p1, %r0, 40; @%p1 add.u32 %r1, %r0, 1; bar.sync 0; bar.sync 0;", 64, {3});
  CHECK(counters.instructions.at("add") == 6);
  CHECK(counters.instructions.at("bar") == 12);
  CHECK(counters.barriers == 12);
  CHECK(counters.warp_instructions == 6 * 7);
  CHECK(counters.lane_instructions == 3 * (6 * 64 + 40));
}

TEST_CASE("lines have profiles") {
  std::vector<uint8_t> array(128);
  Report report = run_text(
      entry(1, ".loc 1 7 0\nld.param.u64 %d0, [p0];\n.loc 1 9 0\nld.global.u32 %r1, [%d0];",
            ".file 1 \"k.cpp\""),
      {&array}, {2}, {32});
  REQUIRE(report.lines.size() == 3);
  CHECK(report.lines[1].instruction == "ld.global.u32");
  CHECK(report.lines[1].file == "k.cpp");
  CHECK(report.lines[1].line == 9);
  CHECK(report.lines[1].warps == 2);
  CHECK(report.lines[1].lanes == 64);
  CHECK(report.lines[1].sectors == 2);
}

}  // namespace
}  // namespace kiln::ptx
