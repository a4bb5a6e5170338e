#include "passes/gemm_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "ir/builder.h"
#include "ir/layout/reshape.h"
#include "ir/verify.h"

namespace kiln {
namespace {

using Catch::Matchers::Contains;

struct Case {
  int64_t m = 64, n = 64, k = 32;
  DType dtype = F16;
  const char* policy = "square";
  const char* instruction = "mma";
  bool transpose_a = false, transpose_b = false;
  size_t units_a = 0, units_b = 0, units_c = 0;  // axes of extent 1 in front
};

struct Gemm {
  Kernel kernel{"k"};
  OpId id;

  explicit Gemm(const Case& c) {
    Builder build(kernel);
    Value one = build.constant(I32, 1);
    RegionId region = build.add_region(build.emit(OpCode::Launch, {one}));
    kernel.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build, region);
    auto tile = [&](Space space, DType dtype, int64_t rows, int64_t columns, bool swap,
                    size_t units) {
      Shape shape(units, 1);
      shape.insert(shape.end(), {swap ? columns : rows, swap ? rows : columns});
      return build.alloc(space, dtype, shape);
    };
    const DType sum = c.dtype == F64 ? F64 : is_float(c.dtype) ? F32 : I32;
    Value a = tile(Space::Fragment, c.dtype, c.m, c.k, c.transpose_a, c.units_a);
    Value b = tile(Space::Fragment, c.dtype, c.k, c.n, c.transpose_b, c.units_b);
    Value to = tile(Space::Fragment, sum, c.m, c.n, false, c.units_c);
    Attrs attrs;
    attrs.set("transpose_a", c.transpose_a);
    attrs.set("transpose_b", c.transpose_b);
    attrs.set("policy", std::string(c.policy));
    attrs.set("instruction", std::string(c.instruction));
    id = build.emit(OpCode::Gemm, {a, b, to}, std::move(attrs));
    verify(kernel);
  }
  const Op& op() const { return kernel.op(id); }
  GemmPlan plan(int64_t warps) const { return gemm_plan(kernel, op(), warps); }
  MmaSupport support(const char* target) const {
    return mma_support(kernel, op(), gpu_target(target));
  }
};

// The coordinate of a matrix's element in its operand.
Coordinate stored(int64_t row, int64_t column, bool swap, size_t units) {
  Coordinate at(units, 0);
  at.insert(at.end(), {swap ? column : row, swap ? row : column});
  return at;
}

bool has(const Layout& layout, const Coordinate& at, int64_t warp) {
  const auto owners = layout.owners(at);
  return std::any_of(owners.begin(), owners.end(),
                     [&](const Owner& owner) { return owner.warp == warp; });
}

// A warp multiplies what it has: all of row i of a and of column j of b where it has c[i, j].
void expect_operands_with_results(const Case& c, int64_t warps) {
  INFO(fmt::format("{}x{}x{} {} over {} warps, {}, transposes {} {}", c.m, c.n, c.k, name(c.dtype),
                   warps, c.policy, c.transpose_a, c.transpose_b));
  const GemmPlan plan = Gemm(c).plan(warps);
  CHECK(plan.warps.m * plan.warps.n * plan.warps.copies == warps);
  for (const Layout* layout : {&plan.a, &plan.b, &plan.c}) {
    CHECK(layout->warps() == warps);
    CHECK(layout->extent(Resource::Lane) == 32);
  }
  bool missing = false;
  for (int64_t i = 0; i < c.m; i += 5)
    for (int64_t j = 0; j < c.n; j += 3)
      for (const Owner& owner : plan.c.owners(stored(i, j, false, c.units_c)))
        for (int64_t k = 0; k < c.k; k += 3) {
          missing |= !has(plan.a, stored(i, k, c.transpose_a, c.units_a), owner.warp);
          missing |= !has(plan.b, stored(k, j, c.transpose_b, c.units_b), owner.warp);
        }
  CHECK_FALSE(missing);
}

TEST_CASE("the warps that have a result have what it is made of") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  auto pick = [&](auto... values) {
    const std::common_type_t<decltype(values)...> list[] = {values...};
    return list[random() % sizeof...(values)];
  };
  for (int round = 0; round < 40; ++round) {
    Case c;
    c.m = 16 * pick(1, 2, 3, 4, 5, 8);
    c.n = 8 * pick(1, 2, 3, 8, 10);
    c.k = 8 * pick(1, 2, 3, 4, 9);
    c.dtype = pick(F16, BF16, I8, U8, E4M3, E5M2);
    c.policy = pick("square", "full_row", "full_col");
    c.transpose_a = pick(false, true);
    c.transpose_b = pick(false, true);
    c.units_a = pick(0, 0, 1, 2);
    c.units_b = pick(0, 0, 1, 2);
    c.units_c = pick(0, 0, 1, 2);
    expect_operands_with_results(c, pick(1, 2, 3, 4, 6, 8));
  }
}

TEST_CASE("an operand in registers is what one mma.sync after the other takes") {
  // Lane 13 = 4 · 3 + 1 of m16n8k16: a in rows 3 and 11, b in column 3, both at k = 2, 3, 10, 11.
  const GemmPlan plan = Gemm({.m = 16, .n = 8, .k = 16}).plan(1);
  auto at = [&](const Layout& layout, int64_t reg) { return layout.coordinate({reg, 13, 0, 0}); };
  CHECK(at(plan.a, 0) == Coordinate{3, 2});
  CHECK(at(plan.a, 3) == Coordinate{11, 3});
  CHECK(at(plan.a, 6) == Coordinate{11, 10});
  CHECK(at(plan.b, 1) == Coordinate{3, 3});
  CHECK(at(plan.b, 2) == Coordinate{10, 3});
  CHECK(at(plan.c, 3) == Coordinate{11, 3});
  const GemmPlan turned =
      Gemm({.m = 16, .n = 8, .k = 16, .transpose_a = true, .transpose_b = true, .units_b = 1})
          .plan(1);
  CHECK(at(turned.a, 3) == Coordinate{3, 11});
  CHECK(at(turned.b, 2) == Coordinate{0, 3, 10});
  CHECK(turned.b.shape() == Coordinate{1, 8, 16});
}

TEST_CASE("the plan's shape, instruction and warps") {
  const GemmPlan half = Gemm({.m = 48, .n = 40, .k = 24, .units_c = 2}).plan(4);
  CHECK(half.shape.m == 48);
  CHECK(half.shape.n == 40);
  CHECK(half.shape.k == 24);
  CHECK(half.mma);
  CHECK(half.input.k == 16);
  CHECK(half.c.shape() == Coordinate{1, 1, 48, 40});
  CHECK(half.a.padded_shape() == Coordinate{48, 32});  // the rest of 8 in a step's lower half

  const GemmPlan bytes = Gemm({.k = 40, .dtype = I8}).plan(4);
  CHECK(bytes.input.k == 32);
  CHECK(bytes.a.padded_shape() == Coordinate{64, 64});

  const GemmPlan rows = Gemm({.m = 64, .n = 64, .policy = "full_row"}).plan(4);
  CHECK(rows.warps == WarpGrid{4, 1, 1});
  const GemmPlan columns = Gemm({.m = 64, .n = 64, .policy = "full_col"}).plan(4);
  CHECK(columns.warps == WarpGrid{1, 4, 1});
  const GemmPlan square = Gemm({.m = 64, .n = 64}).plan(4);
  CHECK(square.warps == WarpGrid{2, 2, 1});

  // fma: c as mma would have it, any extents.
  const GemmPlan odd =
      Gemm({.m = 27, .n = 13, .k = 5, .dtype = F64, .instruction = "fma", .transpose_a = true})
          .plan(2);
  CHECK_FALSE(odd.mma);
  CHECK(odd.shape.k == 5);
  CHECK(odd.c == mma_accumulator(27, 13, odd.warps));
}

TEST_CASE("what mma can do, and why not") {
  CHECK(Gemm({}).support("sm_80").operands == F16);
  CHECK(Gemm({.dtype = BF16}).support("sm_80").operands == BF16);
  CHECK(Gemm({.dtype = I8}).support("sm_80").operands == I8);
  CHECK(Gemm({.dtype = U8}).support("sm_120").operands == U8);
  CHECK(Gemm({.dtype = E4M3}).support("sm_86").operands == F16);
  CHECK(Gemm({.dtype = E5M2}).support("sm_80").operands == F16);
  CHECK(Gemm({.dtype = E4M3}).support("sm_89").operands == E4M3);
  CHECK(Gemm({.dtype = E5M2}).support("sm_90a").operands == E5M2);

  auto why_not = [](const Case& c) {
    const MmaSupport support = Gemm(c).support("sm_90");
    CHECK_FALSE(support.operands);
    return support.why_not;
  };
  CHECK_THAT(why_not({.dtype = F32}), Contains("tf32"));
  CHECK_THAT(why_not({.dtype = F64}), Contains("f64"));
  CHECK(why_not({.m = 24}) == "24 rows are not a multiple of 16");
  CHECK(why_not({.n = 27}) == "27 columns are not a multiple of 8");
  CHECK(why_not({.k = 20}) == "the depth of 20 is not a multiple of 8");
  CHECK(why_not({.m = 24, .dtype = E4M3}) == "24 rows are not a multiple of 16");
}

}  // namespace
}  // namespace kiln
