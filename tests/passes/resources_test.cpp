// How blocks share a multiprocessor, and what is estimated of a thread's registers.
#include "passes/resources.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/builder.h"
#include "ir/parse.h"

namespace kiln {
namespace {

using Limit = Resources::Limit;

TEST_CASE("resources: blocks by registers, as the occupancy calculator has them") {
  CHECK(blocks_by_registers(255, 4) == 2);
  CHECK(blocks_by_registers(169, 4) == 2);  // rounded up to 176
  CHECK(blocks_by_registers(168, 4) == 3);
  CHECK(blocks_by_registers(128, 4) == 4);
  CHECK(blocks_by_registers(128, 8) == 2);
  CHECK(blocks_by_registers(129, 8) == 1);
  CHECK(blocks_by_registers(32, 4) == 16);
  // A warp's registers are in one of four parts: 12 warps of 168 fit, not 13.
  CHECK(blocks_by_registers(168, 6) == 2);
  CHECK(blocks_by_registers(168, 1) == 12);
  CHECK(blocks_by_registers(128, 32) == 0);
  for (int64_t warps = 1; warps <= 16; ++warps)
    for (int64_t blocks = 1; blocks * warps <= 64; ++blocks) {
      const int64_t most = registers_for_blocks(blocks, warps);
      INFO(blocks << " blocks of " << warps << " warps: " << most);
      CHECK(blocks_by_registers(most, warps) >= blocks);
      CHECK((most == 255 || blocks_by_registers(most + 1, warps) < blocks));
    }
}

TEST_CASE("resources: the least limit is named, warps are not lost") {
  const GpuTarget& h200 = gpu_target("sm_90");
  const Resources by_shared = block_resources(h200, 128, 82944, 4);
  CHECK(by_shared.blocks == 2);
  CHECK(by_shared.limit == Limit::Shared);
  CHECK(by_shared.resident_warps() == 8);
  CHECK(by_shared.text() == "2 blocks of 4 warps, by shared memory (82944 bytes each)");
  const Resources by_registers = block_resources(h200, 200, 1024, 8);
  CHECK(by_registers.blocks == 1);
  CHECK(by_registers.limit == Limit::Registers);
  CHECK(by_registers.text() == "1 block of 8 warps, by registers (200 a thread)");
  CHECK(block_resources(h200, 32, 0, 4).limit == Limit::Threads);
  CHECK(block_resources(h200, 32, 0, 1).limit == Limit::Blocks);
  CHECK(block_resources(gpu_target("sm_86"), 32, 0, 1).blocks == 16);
  // The kibibyte that the system takes of each block's share counts.
  CHECK(block_resources(h200, 32, 233472 / 3 - 1024, 4).blocks == 3);
  CHECK(block_resources(h200, 32, 233472 / 3 - 1023, 4).blocks == 2);
  CHECK(block_resources(gpu_target("sm_80"), 32, 170000, 4).blocks == 0);
  // What is estimated: as many blocks as are needed to have registers, the rest of them shared out.
  const Resources estimated = block_resources(h200, RegisterEstimate{130, 180}, 1024, 4);
  CHECK(estimated.blocks == 3);
  CHECK(estimated.registers == 168);
  CHECK(block_resources(h200, RegisterEstimate{90, 150}, 200000, 4).registers == 150);
  CHECK(block_resources(h200, RegisterEstimate{400, 500}, 1024, 8).blocks == 1);
}

// A thread's 64 numbers of c are read after the loop or not; d lives inside of it only.
std::string accumulating(bool reads_c) {
  const std::string layout =
      "[128, 64] reg (0, 1) (0, 2) (0, 4) (0, 8) (0, 16) (0, 32) lane (1, 0) (2, 0) (4, 0) (8, 0) "
      "(16, 0) warp (32, 0) (64, 0)";
  return fmt::format(R"ir(kernel @k {{target = "sm_80"}} {{
  %x = tensor {{name = "x"}} : tensor f16[128, 64]
  %y = tensor {{name = "y", role = output}} : tensor f32[128, 64]
  %one = const {{value = 1}} : i32
  launch %one {{warps = 4}} do |%b: i32| {{
    %zero = const {{value = 0}} : i32
    %ten = const {{value = 10}} : i32
    %none = const {{value = 0.0}} : f32
    %c = alloc {{layout = "{0}"}} : fragment f32[128, 64]
    fill %none, %c
    for %zero, %ten, %one do |%i: i32| {{
      %d = alloc {{layout = "{0}"}} : fragment f16[128, 64]
      copy %x, %d
      copy %d, %y
    }}
    {1}
  }}
}}
)ir",
                     layout, reads_c ? "copy %c, %y" : "");
}

RegisterEstimate estimate(const std::string& text, int64_t warps = 4) {
  const Kernel kernel = parse(text);
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch)
      return estimate_registers(kernel, kernel.op(id), warps);
  return {};
}

TEST_CASE("resources: fragments count while they are alive, halves in pairs") {
  const RegisterEstimate alone = estimate(accumulating(false)), both = estimate(accumulating(true));
  // c is dead in the loop, d takes 32 registers; else 64 of c and d together are 96.
  CHECK(both.wanted - alone.wanted == 32);  // c alone when it is filled, 64
  CHECK(both.needed > 96);
  CHECK(both.wanted > both.needed);
}

TEST_CASE("resources: more warps share the tiles, with layouts or without") {
  for (int64_t rows : {64, 128, 256}) {
    Kernel kernel("k");
    Builder build(kernel);
    Value one = build.constant(I32, 1);
    const OpId launch = build.emit(OpCode::Launch, {one});
    const RegionId region = build.add_region(launch);
    kernel.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build, region);
    Value a = build.alloc(Space::Shared, F16, {rows, 64}),
          b = build.alloc(Space::Shared, F16, {64, 128});
    Value c = build.alloc(Space::Fragment, F32, {rows, 128});
    build.fill(0, c);
    Attrs attrs;
    attrs.set("policy", std::string("full_row"));
    build.emit(OpCode::Gemm, {a, b, c}, std::move(attrs));
    const RegisterEstimate four = estimate_registers(kernel, kernel.op(launch), 4);
    CHECK(four.needed >= rows * 128 / 128);
    if (rows == 64) continue;
    const RegisterEstimate eight = estimate_registers(kernel, kernel.op(launch), 8);
    CHECK(four.needed - eight.needed >= rows * 128 / 256);
  }
}

}  // namespace
}  // namespace kiln
