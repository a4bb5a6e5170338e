#include "passes/launch_warps.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/builder.h"
#include "ir/verify.h"
#include "passes/gemm_plan.h"

namespace kiln {
namespace {

// A launch that `body` fills, and its warps.
template <class Body>
int64_t warps_of(Body&& body) {
  Kernel kernel("k");
  Builder build(kernel);
  Value one = build.constant(I32, 1);
  OpId launch = build.emit(OpCode::Launch, {one});
  RegionId region = build.add_region(launch);
  kernel.add_argument(region, Type::scalar(I32));
  Builder::Scope scope(build, region);
  body(build);
  verify(kernel);
  return launch_warps(kernel, kernel.op(launch));
}

void add_gemm(Builder& build, const char* policy, int64_t m, int64_t n, int64_t k,
              DType dtype = F16) {
  Value a = build.alloc(Space::Shared, dtype, {m, k}),
        b = build.alloc(Space::Shared, dtype, {k, n});
  Value c = build.alloc(Space::Fragment, dtype == F64 ? F64 : F32, {m, n});
  Attrs attrs;
  attrs.set("policy", std::string(policy));
  build.emit(OpCode::Gemm, {a, b, c}, std::move(attrs));
}

int64_t for_gemm(const char* policy, int64_t m, int64_t n, int64_t k, DType dtype = F16) {
  return warps_of([&](Builder& build) { add_gemm(build, policy, m, n, k, dtype); });
}

int64_t for_tile(Space space, Shape shape) {
  return warps_of([&](Builder& build) {
    Value tile = build.alloc(space, F32, shape);
    build.fill(0, tile);
  });
}

TEST_CASE("warps of gemms by whole rows or columns") {
  CHECK(for_gemm("full_row", 128, 64, 64) == 8);
  CHECK(for_gemm("full_row", 112, 64, 64) == 7);
  CHECK(for_gemm("full_row", 96, 64, 64) == 6);
  CHECK(for_gemm("full_row", 80, 64, 64) == 5);
  CHECK(for_gemm("full_row", 64, 64, 64) == 4);
  CHECK(for_gemm("full_row", 48, 64, 64) == 3);
  CHECK(for_gemm("full_row", 256, 64, 64) == 8);
  CHECK(for_gemm("full_row", 176, 64, 64) == 11);
  // Too few strips: the copies want four warps nevertheless.
  CHECK(for_gemm("full_row", 32, 64, 64) == 4);
  CHECK(for_gemm("full_row", 16, 64, 64) == 4);
  CHECK(for_gemm("full_col", 64, 128, 64) == 8);
  CHECK(for_gemm("full_col", 128, 64, 64) == 4);
}

TEST_CASE("warps of gemms by squares") {
  CHECK(for_gemm("square", 64, 64, 64) == 4);
  CHECK(for_gemm("square", 128, 128, 32) == 8);
  CHECK(for_gemm("square", 128, 64, 32) == 8);
  CHECK(for_gemm("square", 256, 256, 32) == 8);
  CHECK(for_gemm("square", 32, 32, 64) == 4);
  CHECK(for_gemm("square", 48, 48, 64) == 6);
  CHECK(for_gemm("square", 64, 64, 32, F64) == 4);
}

TEST_CASE("no warp computes what another does where that can be helped") {
  for (int64_t m = 16; m <= 128; m += 16)
    for (int64_t n = 32; n <= 256; n += 32)
      for (const char* policy : {"square", "full_row", "full_col"}) {
        INFO(fmt::format("{} {}x{}", policy, m, n));
        Kernel kernel("k");
        Builder build(kernel);
        add_gemm(build, policy, m, n, 64);
        const Op& gemm = kernel.op(kernel.region(kernel.body).ops.back());
        const int64_t copies = gemm_warps(kernel, gemm, for_gemm(policy, m, n, 64)).copies;
        const bool few = std::string(policy) == "full_row" && m < 48;
        CHECK((copies == 1 || few || std::string(policy) == "full_col"));
        CHECK(copies <= 4);
      }
}

TEST_CASE("the gemm with the most work decides") {
  auto both = [](bool first) {
    return warps_of([&](Builder& build) {
      if (first) add_gemm(build, "full_row", 128, 64, 64);
      add_gemm(build, "square", 32, 32, 16);
      if (!first) add_gemm(build, "full_row", 128, 64, 64);
    });
  };
  CHECK(both(true) == 8);
  CHECK(both(false) == 8);
}

TEST_CASE("warps of kernels without a gemm") {
  CHECK(for_tile(Space::Fragment, {16, 128}) == 4);
  CHECK(for_tile(Space::Shared, {1, 1024}) == 4);
  CHECK(for_tile(Space::Fragment, {16, 8}) == 2);
  CHECK(for_tile(Space::Fragment, {64}) == 1);
  CHECK(for_tile(Space::Fragment, {}) == 1);
  // 64 KiB in registers: 128 of a thread with four warps, with as much again alive too many.
  CHECK(for_tile(Space::Fragment, {16, 1024}) == 4);
  CHECK(warps_of([](Builder& build) {
          Value whole = build.alloc(Space::Shared, F32, {16, 1024});
          Value a = build.alloc(Space::Fragment, F32, {16, 1024});
          Value b = build.alloc(Space::Fragment, F32, {16, 1024});
          build.fill(0, a);
          build.fill(0, b);
          for (Value tile : {a, b}) build.emit(OpCode::Copy, {tile, whole});
        }) == 8);
  CHECK(warps_of([](Builder& build) {
          Value small = build.alloc(Space::Shared, F32, {4});
          Value zero = build.constant(I32, 0);
          build.parallel({300}, [&](std::span<const Value>) { build.load(small, {zero}); });
        }) == 4);
}

}  // namespace
}  // namespace kiln
