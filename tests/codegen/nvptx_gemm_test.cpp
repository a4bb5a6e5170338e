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
  Space a_space = Space::Shared, b_space = Space::Shared;
  std::string policy = "square";

  DType out() const { return is_int(in) ? I32 : in == F64 ? F64 : F32; }
  std::string text() const {
    return fmt::format("{}x{}x{} {}{}{}{}{}{} {}", m, n, k, name(in),
                       transpose_a ? ", a transposed" : "", transpose_b ? ", b transposed" : "",
                       clear ? ", clear" : "", a_space == Space::Fragment ? ", a in registers" : "",
                       b_space == Space::Fragment ? ", b in registers" : "", policy);
  }
};

// y[i, j] = c[i] + a[i] · b[j], a block for each of 2 x 2 products.
Kernel kernel_of(const Case& test) {
  Program p("gemm");
  const Shape shape_a = test.transpose_a ? Shape{test.k, test.m} : Shape{test.m, test.k};
  const Shape shape_b = test.transpose_b ? Shape{test.n, test.k} : Shape{test.k, test.n};
  Value ga = p.tensor("a", test.in, {2, shape_a[0], shape_a[1]});
  Value gb = p.tensor("b", test.in, {2, shape_b[0], shape_b[1]});
  Value gc = p.tensor("c", test.out(), {2, test.m, test.n});
  Value gy = p.tensor("y", test.out(), {2, 2, test.m, test.n}, "output");
  p.launch({p.index(2), p.index(2)}, [&](std::span<const Value> block) {
    Value zero = p.index(0);
    Value a = p.b.alloc(test.a_space, test.in, shape_a);
    Value b = p.b.alloc(test.b_space, test.in, shape_b);
    Value c = p.b.alloc(Space::Fragment, test.out(), {test.m, test.n});
    const auto part = [&](Value tensor, Value i, const Shape& shape) {
      return p.b.slice(tensor, {i, zero, zero}, {1, shape[0], shape[1]});
    };
    p.copy(part(ga, block[0], shape_a), a);
    p.copy(part(gb, block[1], shape_b), b);
    p.copy(part(gc, block[0], {test.m, test.n}), c);
    Attrs attrs;
    attrs.set("transpose_a", test.transpose_a);
    attrs.set("transpose_b", test.transpose_b);
    attrs.set("clear", test.clear);
    attrs.set("policy", test.policy);
    p.b.emit(OpCode::Gemm, {a, b, c}, attrs);
    p.copy(c, p.b.slice(gy, {block[0], block[1], zero, zero}, {1, 1, test.m, test.n}));
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
    Kernel kernel = kernel_of(test);
    kernel.without = "stage_stores";  // whose loads are of what goes out
    const Compiled compiled = compile(kernel, "sm_80");
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
  p.kernel.without = "stage_stores";  // whose loads are of what goes out
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

namespace {

Case random_case(Random& random, bool mma) {
  Case test{random(1, 40), random(1, 40), random(1, 40)};
  if (mma) {
    test = {16 * random(1, 5), 8 * random(1, 10), 8 * random(1, 9)};
    test.in = random.of({F16, BF16, I8, U8, E4M3, E5M2});
    if (size_of(test.in) == 1 && random.coin()) test.k = 32 * random(1, 3);
  } else {
    test.in = random.of({F16, BF16, F32, F64, I8, U8, E4M3, E5M2});
  }
  test.transpose_a = random.coin();
  test.transpose_b = random.coin();
  test.clear = random.coin();
  test.a_space = random(0, 2) ? Space::Shared : Space::Fragment;
  test.b_space = random(0, 3) ? Space::Shared : Space::Fragment;
  test.policy = random.of<std::string>({"square", "full_row", "full_col"});
  return test;
}

// A part of a shared tile [stages, …] that begins anywhere, known at compile time or not, and
// sometimes sticks out.
struct Part {
  Shape base, start;
  int dynamic = 0;  // bit i: the start along axis i is computed

  Part(Random& random, const Shape& extents) : dynamic(static_cast<int>(random(0, 7))) {
    base = {random(1, 2)};
    start = {random(0, base[0] - 1)};
    for (int64_t extent : extents) {
      const int64_t unit = random.of<int64_t>({0, 1, 2, 8, 16, extent, extent});
      start.push_back(unit * random(0, 1));
      int64_t all = start.back() + extent;
      if (random(0, 2) == 0) all += random(0, 8);
      if (random(0, 5) == 0) all = std::max<int64_t>(1, all - random(0, 20));
      if (random(0, 9) == 0) start.back() = -random(0, 8);
      base.push_back(all);
    }
  }
  Value slice(Program& p, Value tile, Value block, const Shape& extents) const {
    std::vector<Value> index;
    for (size_t axis = 0; axis < start.size(); ++axis) {
      index.push_back(p.index(start[axis]));
      if ((dynamic >> axis & 1) == 0) continue;
      const int64_t unit = start[axis] ? start[axis] & -start[axis] : 16;
      Value zero = p.b.binary(OpCode::FloorMod, block, p.index(1));
      Value units = p.b.binary(OpCode::Add, zero, p.index(start[axis] / unit));
      index.back() = p.b.binary(OpCode::Mul, units, p.index(unit));
    }
    return p.b.slice(tile, index, {1, extents[0], extents[1]});
  }
};

Kernel parts_kernel(const Case& test, const Part& of_a, const Part& of_b) {
  Program p("parts");
  const Shape shape_a = test.transpose_a ? Shape{test.k, test.m} : Shape{test.m, test.k};
  const Shape shape_b = test.transpose_b ? Shape{test.n, test.k} : Shape{test.k, test.n};
  Value ga = p.tensor("a", test.in, of_a.base), gb = p.tensor("b", test.in, of_b.base);
  Value gy = p.tensor("y", test.out(), {test.m, test.n}, "output");
  p.launch({p.index(1)}, [&](std::span<const Value> block) {
    Value a = p.b.alloc(Space::Shared, test.in, of_a.base);
    Value b = p.b.alloc(Space::Shared, test.in, of_b.base);
    Value c = p.b.alloc(Space::Fragment, test.out(), {test.m, test.n});
    p.copy(ga, a);
    p.copy(gb, b);
    p.b.fill(1, c);
    Attrs attrs;
    attrs.set("transpose_a", test.transpose_a);
    attrs.set("transpose_b", test.transpose_b);
    p.b.emit(OpCode::Gemm,
             {of_a.slice(p, a, block[0], shape_a), of_b.slice(p, b, block[0], shape_b), c}, attrs);
    p.copy(c, gy);
  });
  return p.kernel;
}

}  // namespace

TEST_CASE("gemm: random ones are exact", "[nvptx]") {
  Random random;
  for (int i = 0; i < 40; ++i) {
    const Case test = random_case(random, i % 3 != 0);
    const std::string target = random.target();
    INFO(test.text() << " for " << target);
    CHECK(emulation_fault(kernel_of(test), target, random.check()) == "");
  }
}

TEST_CASE("gemm: random parts of shared tiles", "[nvptx]") {
  Random random;
  for (int i = 0; i < 40; ++i) {
    Case test = random_case(random, i % 3 != 0);
    const int64_t most = test.in == F64 ? 16 : 32;  // both tiles are to fit any target
    for (int64_t* extent : {&test.m, &test.n, &test.k}) *extent = std::min(*extent, most);
    const Part a(random, test.transpose_a ? Shape{test.k, test.m} : Shape{test.m, test.k});
    const Part b(random, test.transpose_b ? Shape{test.n, test.k} : Shape{test.k, test.n});
    const std::string target = random.target();
    INFO(test.text() << " for " << target << ": a at " << str(a.start) << " of " << str(a.base)
                     << ", b at " << str(b.start) << " of " << str(b.base));
    CHECK(emulation_fault(parts_kernel(test, a, b), target, random.check()) == "");
  }
}
