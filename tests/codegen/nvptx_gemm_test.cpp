// gemm on a GPU: the instructions chosen for shapes, dtypes, transposes and views, and that ptxas
// keeps them in registers.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/walk.h"
#include "passes/gemm_plan.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

struct Case {
  int64_t m, n, k;
  DType in = F16;
  bool transpose_a = false, transpose_b = false, clear = false;
  Space a_space = Space::Shared;

  DType out() const { return is_int(in) ? I32 : in == F64 ? F64 : F32; }
  std::string text() const {
    return fmt::format("{}x{}x{} {}{}{}{}{}", m, n, k, name(in),
                       transpose_a ? ", a transposed" : "", transpose_b ? ", b transposed" : "",
                       clear ? ", clear" : "",
                       a_space == Space::Fragment ? ", a in registers" : "");
  }
};

// y = c + a · b of one block.
Kernel kernel_of(const Case& test) {
  Program p("gemm");
  const Shape shape_a = test.transpose_a ? Shape{test.k, test.m} : Shape{test.m, test.k};
  const Shape shape_b = test.transpose_b ? Shape{test.n, test.k} : Shape{test.k, test.n};
  Value ga = p.tensor("a", test.in, shape_a), gb = p.tensor("b", test.in, shape_b);
  Value gc = p.tensor("c", test.out(), {test.m, test.n});
  Value gy = p.tensor("y", test.out(), {test.m, test.n}, "output");
  p.launch([&] {
    Value a = p.b.alloc(test.a_space, test.in, shape_a);
    Value b = p.b.alloc(Space::Shared, test.in, shape_b);
    Value c = p.b.alloc(Space::Fragment, test.out(), {test.m, test.n});
    p.copy(ga, a);
    p.copy(gb, b);
    p.copy(gc, c);
    Attrs attrs;
    attrs.set("transpose_a", test.transpose_a);
    attrs.set("transpose_b", test.transpose_b);
    attrs.set("clear", test.clear);
    p.b.emit(OpCode::Gemm, {a, b, c}, attrs);
    p.copy(c, gy);
  });
  return p.kernel;
}

struct Compiled {
  GpuCode code;
  GemmPlan plan;
  // Of mma.sync that one warp runs.
  int64_t instructions() const {
    const auto [m, n, k] = plan.shape;
    return m / 16 / plan.warps.m * (n / 8 / plan.warps.n) * ((k + plan.input.k - 1) / plan.input.k);
  }
};

Compiled compile(const Kernel& kernel, const std::string& target) {
  const Kernel low = lowered(kernel, target);
  Compiled compiled{compile_ptx(low), {}};
  walk(low, low.body, [&](OpId id) {
    if (low.op(id).code == OpCode::Gemm)
      compiled.plan = gemm_plan(low, low.op(id), compiled.code.launches[0].threads / 32);
  });
  return compiled;
}

void check_mma(const Case& test, const std::string& target) {
  INFO(test.text() << " for " << target);
  const Compiled compiled = compile(kernel_of(test), target);
  const std::string& ptx = compiled.code.ptx;
  INFO(ptx);
  REQUIRE(compiled.plan.mma);
  CHECK(static_cast<int64_t>(occurrences(ptx, "mma.sync")) == compiled.instructions());
  if (size_of(test.in) == 2) CHECK(occurrences(ptx, "ldmatrix") > 0);
  CHECK(occurrences(ptx, ".local") == 0);
  CHECK(assembly_fault(ptx, target) == "");
}

}  // namespace

TEST_CASE("mma: dtypes and transposes", "[nvptx]") {
  for (DType in : {F16, BF16, I8, U8, E4M3, E5M2})
    for (int transposes = 0; transposes < 4; ++transposes)
      check_mma({64, 48, 80, in, transposes % 2 != 0, transposes / 2 != 0}, "sm_89");
  check_mma({64, 64, 64, E4M3, false, true}, "sm_80");
  check_mma({64, 64, 64, E5M2}, "sm_90");
}

TEST_CASE("mma: every width that is a multiple of 8, rows of 16 and depths of 8", "[nvptx]") {
  for (int64_t n = 8; n <= 256; n += 56) check_mma({64, n, 64, F16}, "sm_90");
  for (int64_t n = 16; n <= 256; n += 80) check_mma({64, n, 64, BF16, false, true}, "sm_80");
  for (int64_t m : {16, 48, 80, 128}) check_mma({m, 40, 32, F16, m % 32 == 16}, "sm_80");
  for (int64_t k : {8, 24, 40, 120}) check_mma({32, 64, k, BF16, false, k % 16 == 0}, "sm_80");
  for (int64_t k : {8, 24, 40, 120}) check_mma({32, 64, k, I8, false, true}, "sm_80");
}

TEST_CASE("mma: 16-bit operands come by ldmatrix alone, four matrices at once", "[nvptx]") {
  for (int transposes = 0; transposes < 4; ++transposes) {
    const Case test{128, 64, 64, F16, transposes % 2 != 0, transposes / 2 != 0};
    INFO(test.text());
    const Compiled compiled = compile(kernel_of(test), "sm_80");
    const std::string& ptx = compiled.code.ptx;
    const WarpGrid& warps = compiled.plan.warps;
    // Of an instruction's a, and of two instructions' b.
    const int64_t loads = 4 * (128 / 16 / warps.m) + 4 * (64 / 16 / warps.n);
    CHECK(static_cast<int64_t>(occurrences(ptx, "ldmatrix")) == loads);
    CHECK(static_cast<int64_t>(occurrences(ptx, "m8n8.x4")) == loads);
    CHECK(occurrences(ptx, "ld.shared") == 0);
    CHECK((occurrences(ptx, ".trans") > 0) == (test.transpose_a || !test.transpose_b));
  }
}

TEST_CASE("fma: f32, f64 and shapes that mma has none of", "[nvptx]") {
  for (const Case& test :
       {Case{64, 64, 32, F32}, Case{64, 64, 32, F32, true, true}, Case{64, 32, 32, F64},
        Case{5, 27, 19, F16}, Case{30, 32, 64, E4M3, false, true}, Case{33, 40, 7, U8, true}})
    for (const char* target : {"sm_80", "sm_90"}) {
      INFO(test.text() << " for " << target);
      const Compiled compiled = compile(kernel_of(test), target);
      CHECK_FALSE(compiled.plan.mma);
      CHECK(occurrences(compiled.code.ptx, "mma.sync") == 0);
      CHECK(assembly_fault(compiled.code.ptx, target) == "");
    }
}

namespace {

// c += a · b with b a part of a shared tile [3, 128, 64] that begins at (i, row, column), i known
// when it runs.
std::string product_with_part(int64_t row, int64_t column, Shape part, bool transpose_b) {
  Program p("parts");
  const int64_t k = transpose_b ? part[2] : part[1], n = transpose_b ? part[1] : part[2];
  Value ga = p.tensor("a", F16, {64, k}), gb = p.tensor("b", F16, {3, 128, 64});
  Value gy = p.tensor("y", F32, {3, 64, n}, "output");
  p.launch({p.index(3)}, [&](std::span<const Value> block) {
    Value stage = p.b.binary(OpCode::FloorMod, block[0], p.index(3));
    Value a = p.b.alloc(Space::Shared, F16, {64, k}),
          b = p.b.alloc(Space::Shared, F16, {3, 128, 64});
    Value c = p.b.alloc(Space::Fragment, F32, {64, n});
    p.copy(ga, a);
    p.copy(gb, b);
    Attrs attrs;
    attrs.set("clear", true);
    attrs.set("transpose_b", transpose_b);
    p.b.emit(OpCode::Gemm, {a, p.b.slice(b, {stage, p.index(row), p.index(column)}, part), c},
             attrs);
    p.copy(c, p.b.slice(gy, {block[0], p.index(0), p.index(0)}, {1, 64, n}));
  });
  const std::string ptx = compile_for(p.kernel, "sm_80").ptx;
  CHECK(assembly_fault(ptx, "sm_80") == "");
  return ptx;
}

}  // namespace

TEST_CASE("mma: parts of shared tiles", "[nvptx]") {
  // Whole chunks of 16 bytes, at a block's own stage.
  for (const std::string& ptx :
       {product_with_part(64, 0, {1, 64, 64}, false), product_with_part(0, 32, {1, 64, 32}, false),
        product_with_part(16, 8, {1, 32, 16}, true), product_with_part(0, 0, {1, 128, 64}, true)}) {
    CHECK(occurrences(ptx, "ldmatrix") > 0);
    CHECK(occurrences(ptx, "ld.shared") == 0);
  }
  // Columns that begin within a chunk.
  const std::string ptx = product_with_part(0, 4, {1, 64, 48}, false);
  CHECK(occurrences(ptx, "ldmatrix") == 2 * 4);  // a alone
  CHECK(occurrences(ptx, "ld.shared.b16") > 0);
  const std::string by_words = product_with_part(0, 2, {1, 64, 48}, true);
  CHECK(occurrences(by_words, "ld.shared.b16") == 0);
  CHECK(occurrences(by_words, "ld.shared.b32") > 0);
  // Beyond the tile's end there are zeros.
  CHECK(occurrences(product_with_part(96, 0, {1, 64, 64}, false), "ld.shared") > 0);
}
