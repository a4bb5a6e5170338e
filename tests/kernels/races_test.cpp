// The library's kernels for GPUs have no races, and no barrier or wait for nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/registry.h"
#include "passes/pipeline.h"
#include "tests/passes/race_check.h"

namespace kiln {
namespace {

void expect_no_races(Kernel kernel, const std::string& target) {
  kernel.target = target;
  run_passes(kernel, pipeline_for(Tier::Sm80));
  CHECK(testing::RaceCheck(kernel).find() == "");
  // One barrier of a launch may be for sizes that do not come together: a last block of half a
  // tile, and so many blocks that they are listed in two parts. One wait may stand before a loop
  // whose own does for it: insert_barriers does not count what several rounds of a prologue have
  // fetched meanwhile.
  std::string unseen;
  int barriers = 0;
  std::set<std::string> waits;  // by their place
  testing::for_each_mutant(kernel, [&](const Kernel& mutant, const std::string& what) {
    if (!testing::RaceCheck(mutant).find().empty()) return;
    unseen += what + "; ";
    if (what.starts_with("without the barrier"))
      ++barriers;
    else
      waits.insert(what.substr(what.rfind(' ')));
  });
  INFO(unseen);
  const auto& ops = kernel.region(kernel.body).ops;
  CHECK(barriers <= std::count_if(ops.begin(), ops.end(),
                                  [&](OpId id) { return kernel.op(id).code == OpCode::Launch; }));
  CHECK(waits.size() <= 1);
}

TEST_CASE("attention has no races", "[races][long]") {
  for (AttentionConfig config : shipped_attention_configs())
    for (bool written_out : {false, true}) {
      config.written_out = written_out;
      config.lse = written_out;
      INFO(name(config.dtype) << " dim " << config.head_dim << " block " << config.block.q
                              << " form " << static_cast<int>(config.form));
      expect_no_races(block_sparse_attention_kernel(config), "sm_90");
    }
}

TEST_CASE("attention with scores computed ahead has no races", "[races]") {
  for (int64_t stages : {1, 2}) {
    const AttentionConfig config{
        .causal = true, .form = BlockForm::Dense, .stages = stages, .schedule = Schedule::Overlap};
    INFO("stages " << stages);
    expect_no_races(block_sparse_attention_kernel(config), "sm_90");
  }
}

TEST_CASE("no kernel of the library has races", "[races][long]") {
  for (const KernelEntry& entry : kernel_registry())
    for (const char* target : {"sm_80", "sm_90"}) DYNAMIC_SECTION(entry.name << " for " << target) {
        expect_no_races(entry.build(entry.with_defaults({}), target), target);
      }
}

}  // namespace
}  // namespace kiln
