// The reference system's small decode problem (one sequence of at most 2048 keys, 13 of 64 blocks),
// counted: of the cache exactly the selected bytes are read, once.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "ir/canon.h"
#include "kernels/sparse_decode/sparse_decode.h"
#include "runtime/gpu_code.h"
#include "tests/emulator/subject.h"

namespace kiln::testing {
namespace {

constexpr int64_t kHeadsKv = 8, kBlocks = 13, kBlock = 32, kDim = 128, kRoom = 2048;

struct SmallProblem {
  Array q{F16, {1, 32, kDim}}, o{F16, {1, 32, kDim}};
  Array k{F16, {1, kRoom, kHeadsKv, kDim}}, v{F16, {1, kRoom, kHeadsKv, kDim}};
  Array lengths{I32, {1}}, chosen{I32, {1, kHeadsKv, kBlocks}};

  SmallProblem() {
    lengths.set(0, kRoom);
    std::vector<double> all(kRoom / kBlock);
    std::iota(all.begin(), all.end(), 0);
    std::mt19937_64 random(1);
    for (int64_t h = 0; h < kHeadsKv; ++h) {
      std::shuffle(all.begin(), all.end(), random);
      for (int64_t i = 0; i < kBlocks; ++i)
        chosen.set(h * kBlocks + i, all[static_cast<size_t>(i)]);
    }
  }
  DecodeArgs args() {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .o = o.view(),
            .lengths = lengths.view(),
            .chosen = chosen.view()};
  }
};

// The launches of the problem, with the rule's 12 splits of an H200.
std::vector<ptx::Report> launches(std::string_view target) {
  SmallProblem problem;
  const DecodeConfig config = validated({.block = kBlock});
  const Kernel kernel = canonical(sparse_decode_kernel(config));
  Arguments arguments;
  const DecodeArgs args = problem.args();
  arguments.tensor("q", Memory::contiguous(args.q.data, F16, {1, 1, 32, kDim}));
  arguments.tensor("o", Memory::contiguous(args.o.data, F16, {1, 1, 32, kDim}));
  arguments.tensor("chosen", Memory::contiguous(args.chosen->data, I32, {1, 1, kHeadsKv, kBlocks}));
  arguments.tensor("k", args.k).tensor("v", args.v).tensor("lengths", args.lengths);
  arguments.param("scale", scale_of(config, args)).param("quota", 1).dim("splits", 12);
  const auto executable = emulated(kernel, compile_for_gpu(kernel, target).code);
  const Signature signature(std::make_shared<const Kernel>(kernel));
  return emulate(*executable, bind(signature, arguments), {});
}

TEST_CASE("decode: the reference system's small problem, counted", "[counters]") {
  for (const char* target : {"sm_80", "sm_90"}) {
    INFO(target);
    const std::vector<ptx::Report> reports = launches(target);
    REQUIRE(reports.size() == 2);
    uint64_t copied = 0;
    for (const ptx::Report& report : reports) CHECK(report.findings.empty());
    for (const ptx::LineProfile& line : reports[0].lines)
      if (line.instruction.starts_with("cp.async")) copied += line.sectors * 32;
    const uint64_t cache = kHeadsKv * kBlocks * kBlock * 2 * kDim * 2;
    const uint64_t queries = 12 * 32 * kDim * 2;  // for every split
    CHECK(copied == cache + queries);
    // For 16 rows and 32 keys: 4 x 8 of m16n8k16 for the scores, 16 x 2 for the values.
    const uint64_t tiles = kHeadsKv * kBlocks;
    CHECK(reports[0].counters.instructions.at("mma") == tiles * (4 * 8 + 16 * 2));
    // What it costs otherwise may only fall: the list of blocks, a softmax over four warps.
    CHECK(reports[0].counters.warp_instructions <= 525'000);
    CHECK(reports[1].counters.warp_instructions <= 46'000);
    CHECK(reports[0].counters.bank_conflicts <= 12'800);
    CHECK(reports[1].counters.bank_conflicts == 0);
  }
}

}  // namespace
}  // namespace kiln::testing
