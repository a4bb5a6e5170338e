// No tile overlaps another that holds something: followed along the ways a launch may run.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "ir/error.h"
#include "ir/layout/formula.h"
#include "ir/layout/tile_layout.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "passes/passes.h"
#include "tests/passes/shared_programs.h"
#include "tests/passes/traces.h"

namespace kiln {
namespace {

using testing::SharedProgram;
using testing::Trace;
using testing::Traces;

constexpr uint64_t kPrograms = 300;

// One tile from one run of its alloc to the next.
struct Life {
  const Op* alloc;
  int64_t begin, end;                 // bytes
  size_t first = SIZE_MAX, last = 0;  // steps that touch it
};

std::vector<Life> lives(const Kernel& kernel, const Trace& trace) {
  std::vector<Life> all;
  std::map<uint32_t, size_t> now;  // by tile
  for (size_t step = 0; step < trace.size(); ++step) {
    const Op& op = *trace[step].op;
    if (op.code == OpCode::Alloc && kernel.type(op.result).space == Space::Shared) {
      const int64_t begin = op.integer("offset"),
                    bytes = layout_of(op)->extent(Resource::Offset) * 4;  // all are of f32
      now[op.result.id] = all.size();
      all.push_back({&op, begin, begin + bytes});
    }
    if (op.code == OpCode::For) continue;
    for (const Access& access : accesses_deep(kernel, op)) {
      auto found = now.find(access.base.id);
      if (found == now.end()) continue;
      Life& life = all[found->second];
      life.first = std::min(life.first, step);
      life.last = step;
    }
  }
  return all;
}

std::string overlap(const Kernel& kernel, const Trace& trace) {
  const std::vector<Life> all = lives(kernel, trace);
  for (const Life& a : all)
    for (const Life& b : all)
      if (&a != &b && a.first <= b.last && b.first <= a.last && a.begin < b.end && b.begin < a.end)
        return fmt::format("bytes {} to {} and {} to {}", a.begin, a.end, b.begin, b.end);
  return "";
}

const Op& launch_of(const Kernel& kernel) {
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch) return kernel.op(id);
  throw InternalError("no launch");
}

TEST_CASE("tiles that hold something at the same time do not overlap") {
  int64_t shared = 0, apart = 0;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    INFO("seed " << seed);
    Kernel kernel = SharedProgram::make(seed);
    plan_shared_memory(kernel);
    REQUIRE_NOTHROW(verify(kernel, IrStage::Lowered));
    const Op& launch = launch_of(kernel);
    walk(kernel, launch.regions[0], [&](OpId id) {
      const Op& op = kernel.op(id);
      if (op.code != OpCode::Alloc || kernel.type(op.result).space != Space::Shared) return;
      const Layout layout = *layout_of(op);
      const int64_t offset = op.integer("offset"), bytes = layout.extent(Resource::Offset) * 4;
      // Rows of 64 bytes: a swizzle repeats after 512.
      const bool swizzled = !owner_formula(layout, Resource::Offset).is_sum();
      CHECK(offset >= 0);
      CHECK(offset % (swizzled ? 512 : 16) == 0);
      CHECK(offset + bytes <= launch.integer("shared"));
      apart += bytes;
    });
    shared += launch.integer("shared");
    std::string wrong;
    Traces::each(kernel, launch.regions[0], 200, [&](const Trace& trace) {
      wrong = overlap(kernel, trace);
      return wrong.empty();
    });
    CHECK(wrong == "");
  }
  CHECK(shared < apart * 3 / 4);  // most of what can be shared is
}

TEST_CASE("a launch without shared tiles needs no shared memory, whatever it said before") {
  Kernel kernel = parse(R"(kernel @k {target = "sm_80"} {
  %y = tensor {name = "y", role = output} : tensor f32[4]
  %one = const {value = 1} : i32
  launch %one {shared = 512} do |%b: i32| {
    %f = alloc : fragment f32[4]
    fill %b, %f
    copy %f, %y
  }
})");
  plan_shared_memory(kernel);
  CHECK(launch_of(kernel).integer("shared") == 0);
}

TEST_CASE("what does not fit is refused with what to do; without a target nothing is planned") {
  auto kernel = [](int64_t columns) {
    Kernel made = parse(fmt::format(R"(kernel @k {{
  %y = tensor {{name = "y", role = output}} : tensor f32[{0}]
  %one = const {{value = 1}} : i32
  launch %one do |%b: i32| {{
    %t = alloc {{layout = "[{0}] digit {0} offset 1 axis 0 1"}} : shared f32[{0}]
    fill %b, %t
    copy %t, %y
  }}
}})",
                                    columns),
                        "k.tile");
    return made;
  };
  for (const GpuTarget& target : gpu_targets()) {
    INFO(target.name);
    Kernel fits = kernel(target.shared_per_block / 4),
           too_large = kernel(target.shared_per_block / 4 + 1);
    fits.target = too_large.target = target.name;
    plan_shared_memory(fits);
    CHECK(launch_of(fits).integer("shared") == target.shared_per_block);
    try {
      plan_shared_memory(too_large);
      FAIL_CHECK("planned");
    } catch (const UserError& error) {
      CHECK(error.message() ==
            fmt::format("shared memory: a block needs {0} bytes, {1} has {2}: shared f32[{3}] of "
                        "k.tile:5 takes {0}",
                        target.shared_per_block + 4, target.name, target.shared_per_block,
                        target.shared_per_block / 4 + 1));
      CHECK(error.hint() == "smaller tiles or fewer stages");
      CHECK(error.loc().line == 5);
    }
  }
  Kernel no_target = kernel(4);
  CHECK_THROWS_AS(plan_shared_memory(no_target), UserError);
}

}  // namespace
}  // namespace kiln
