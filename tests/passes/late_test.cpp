// Passes on kernels of the late IR: those of the host keep what such a kernel does, those that
// spread work over threads leave it alone.
#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "ir/error.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/pipeline.h"
#include "tests/support/late_file.h"
#include "tests/support/random_bindings.h"

using namespace kiln;
using testing::late_kernel;
using testing::RandomBindings;

namespace {

using Sizes = std::map<std::string, int64_t>;

// Every element the same, in eager and in random orders.
void expect_same(const Kernel& before, const Kernel& after, const Sizes& dims) {
  const RandomBindings inputs(before, dims);
  RandomBindings expected = inputs;
  interpret(before, expected.bindings());
  for (uint64_t seed : {0, 1, 2}) {
    RandomBindings actual = inputs;
    const auto async = seed ? InterpOptions::Async::Random : InterpOptions::Async::Eager;
    interpret(after, actual.bindings(), {.async = async, .seed = seed + 1});
    CHECK(actual.damage() == "");
    CHECK(actual.difference(expected) == "");
  }
}

const std::pair<const char*, Sizes> kFiles[] = {
    {"copy_ring.tile", {{"n", 130}}},
    {"dead_slot.tile", {{"n", 200}}},
    {"messages.tile", {{"n", 5}, {"rows", 7}}},
};

}  // namespace

TEST_CASE("late: passes of the host keep what a kernel does", "[late]") {
  for (const auto& [name, dims] : kFiles) {
    const Kernel kernel = late_kernel(KILN_TESTS_DIR, name);
    for (const Pass& pass : pipeline_for(Tier::Host)) {
      INFO(name << " " << pass.name);
      Kernel changed = kernel;
      run_passes(changed, std::span(&pass, 1), {.verify_each = true});
      expect_same(kernel, changed, dims);
    }
    Kernel changed = kernel;
    run_passes(changed, pipeline_for(Tier::Host), {.verify_each = true});
    expect_same(kernel, changed, dims);
  }
}

TEST_CASE("late: the canonical form keeps what a kernel does, target or not", "[late]") {
  for (const auto& [name, dims] : kFiles) {
    INFO(name);
    Kernel kernel = late_kernel(KILN_TESTS_DIR, name);
    expect_same(kernel, canonical(kernel), dims);
    kernel.target.clear();
    expect_same(kernel, canonical(kernel), dims);
    CHECK(hash(kernel) != hash(late_kernel(KILN_TESTS_DIR, name)));
  }
}

TEST_CASE("late: no pass spreads over threads what is spread already", "[late]") {
  const Kernel kernel = late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile");
  CHECK(passes_for(kernel, Tier::Sm80).empty());
  for (const Pass& pass : passes_for(kernel, Tier::Host)) CHECK(pass.name.starts_with("expand_"));
  CHECK(passes_for(Kernel("none"), Tier::Sm80).size() == pipeline_for(Tier::Sm80).size());
  for (const Pass& pass : all_passes()) {
    Kernel changed = kernel;
    const bool on_host =
        std::any_of(pipeline_for(Tier::Host).begin(), pipeline_for(Tier::Host).end(),
                    [&](const Pass& other) { return other.name == pass.name; });
    INFO(pass.name);
    const auto run = [&] { run_passes(changed, std::span(&pass, 1), {.verify_each = true}); };
    if (on_host) {
      CHECK_NOTHROW(run());
      continue;
    }
    CHECK_THROWS_AS(run(), UserError);
    CHECK(print(changed) == print(kernel));
  }
}

TEST_CASE("late: dead code spares what other roles wait for", "[late]") {
  Kernel kernel = late_kernel(KILN_TESTS_DIR, "messages.tile");
  const auto ops = [](const Kernel& of) {
    std::map<std::string, int> counts;
    walk(of, of.body, [&](OpId id) { ++counts[std::string(info(of.op(id).code).name)]; });
    return counts;
  };
  std::map<std::string, int> before = ops(kernel);
  // Without any output, only the protocol is left.
  walk(kernel, kernel.body, [&](OpId id) {
    for (RegionId region : kernel.op(id).regions)
      std::erase_if(kernel.region(region).ops, [&](OpId inner) {
        const Op& op = kernel.op(inner);
        return op.code == OpCode::Store && kernel.type(op.operands[1]).space == Space::Global;
      });
  });
  run_passes(kernel, std::span(&pass_named("dead_code"), 1), {.verify_each = true});
  std::map<std::string, int> after = ops(kernel);
  for (const char* name : {"roles", "loop", "exit_if", "channel", "push_begin", "push_end", "pop",
                           "release", "copy_async"}) {
    INFO(name);
    CHECK(before[name] > 0);
    CHECK(after[name] == before[name]);
  }
  CHECK(after["parallel"] == 0);
}
