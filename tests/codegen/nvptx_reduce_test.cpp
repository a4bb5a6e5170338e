// reduce and convert on a GPU: how threads combine, and that ptxas keeps everything in registers.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/layout/conversion.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/tile_layout.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Value fragment(Program& p, DType dtype, const Layout& layout) {
  Value tile = p.b.alloc(Space::Fragment, dtype, layout.shape());
  set_layout(p.kernel.op(p.kernel.def(tile)), layout);
  return tile;
}

Op& launch_of(Program& p) {
  for (OpId id : p.kernel.region(p.kernel.body).ops)
    if (p.kernel.op(id).code == OpCode::Launch) return p.kernel.op(id);
  throw std::logic_error("no launch");
}

// y = x reduced along `dim`, with x held as `layout`.
Kernel reduction(const Layout& layout, int64_t dim, const std::string& kind, DType from, DType to,
                 bool clear = true, bool keep = false) {
  Program p("reduce");
  Shape shape = layout.shape(), rest = shape;
  keep ? void(rest[static_cast<size_t>(dim)] = 1) : void(rest.erase(rest.begin() + dim));
  Value x = p.tensor("x", from, shape), y = p.tensor("y", to, rest, clear ? "output" : "inout");
  p.launch([&] {
    Value tile = fragment(p, from, layout);
    Value result = p.b.alloc(Space::Fragment, to, rest);
    p.copy(x, tile);
    if (!clear) p.copy(y, result);
    Attrs attrs;
    attrs.set("kind", kind);
    attrs.set("dim", dim);
    attrs.set("clear", clear);
    p.b.emit(OpCode::Reduce, {tile, result}, attrs);
    p.copy(result, y);
  });
  launch_of(p).attrs.set("warps", layout.warps());
  return p.kernel;
}

// y = x, held as `from` and then as `to`.
Kernel conversion(const Layout& from, const Layout& to, DType dtype) {
  Program p("convert");
  Value x = p.tensor("x", dtype, from.shape()), y = p.tensor("y", dtype, from.shape(), "output");
  p.launch([&] {
    Value a = fragment(p, dtype, from), b = fragment(p, dtype, to);
    p.copy(x, a);
    p.b.emit(OpCode::Convert, {a, b});
    p.copy(b, y);
  });
  launch_of(p).attrs.set("warps", from.warps());
  return p.kernel;
}

}  // namespace

TEST_CASE("reduce: rows of an accumulator need two exchanges a row", "[nvptx]") {
  const GpuCode code =
      compile_for(reduction(mma_accumulator(64, 64, {4, 1, 1}), 1, "max", F32, F32), "sm_80");
  CHECK(occurrences(code.ptx, "shfl.sync.bfly") == 4);  // two rows
  CHECK(occurrences(code.ptx, "bar.sync") == 0);
  CHECK(occurrences(code.ptx, "shared") == 0);
  CHECK(assembly_fault(code.ptx, "sm_80") == "");
}

TEST_CASE("reduce: warps combine through shared memory", "[nvptx]") {
  for (const auto& [grid, dim] :
       {std::pair(WarpGrid{2, 2, 1}, int64_t{1}), {{4, 1, 1}, 0}, {{1, 4, 1}, 1}}) {
    const GpuCode code =
        compile_for(reduction(mma_accumulator(64, 64, grid), dim, "sum", F16, F16), "sm_80");
    CHECK(occurrences(code.ptx, "shfl.sync.bfly") > 0);
    CHECK(occurrences(code.ptx, "bar.sync") >= 1);
    CHECK(occurrences(code.ptx, "st.shared") > 0);
    CHECK(occurrences(code.ptx, "ld.shared") > 0);
    CHECK(assembly_fault(code.ptx, "sm_80") == "");
  }
}

TEST_CASE("reduce: every kind and dtype assembles", "[nvptx]") {
  int turn = 0;
  for (DType dtype : kAllDTypes)
    for (const char* kind : {"max", "min", "sum", "absmax", "and", "or", "xor"}) {
      const std::string word = kind;
      const bool bits = word == "and" || word == "or" || word == "xor";
      if (bits ? is_float(dtype) : dtype == Bool) continue;
      INFO(kind << " " << name(dtype));
      const char* target = ++turn % 2 ? "sm_80" : "sm_90";
      const GpuCode code = compile_for(reduction(mma_accumulator(16, 40, {1, 1, 4}), turn % 2, kind,
                                                 dtype, dtype, turn % 3 == 0, turn % 5 == 0),
                                       target);
      CHECK(occurrences(code.ptx, ".local") == 0);
      if (turn % 4 == 0) CHECK(assembly_fault(code.ptx, target) == "");
    }
}

TEST_CASE("reduce: floats below f32 are rounded once", "[nvptx]") {
  const GpuCode code =
      compile_for(reduction(mma_accumulator(16, 64, {1, 1, 1}), 1, "sum", F16, F16), "sm_80");
  CHECK(occurrences(code.ptx, "add.f32") + occurrences(code.ptx, "add.rn.f32") == 2 * 15 + 2 * 2);
  CHECK(occurrences(code.ptx, "cvt.rn.f16") == 2);
}

TEST_CASE("convert: an accumulator is the next gemm's operand at no cost", "[nvptx]") {
  const Layout from = mma_accumulator(64, 32, {4, 1, 1});
  const Layout to = mma_operand_a(64, 32, kMma16BitK16, {4, 1, 1});
  Kernel kernel = conversion(from, to, F16);
  kernel.without = "stage_stores";
  const GpuCode code = compile_for(kernel, "sm_80");
  CHECK(occurrences(code.ptx, "shfl") == 0);
  CHECK(occurrences(code.ptx, "shared") == 0);
}

TEST_CASE("convert: halves that go together share a shuffle", "[nvptx]") {
  // Lane 2k has the first half of a row and lane 2k + 1 the second; then the rows change places.
  const Layout from = Layout(2)
                          .repeat(Resource::Reg, 4, 1)
                          .repeat(Resource::Lane, 2, 1)
                          .repeat(Resource::Lane, 16, 0);
  const Layout to = Layout(2)
                        .repeat(Resource::Reg, 4, 1)
                        .repeat(Resource::Lane, 16, 0)
                        .repeat(Resource::Lane, 2, 1);
  const Conversion plan = plan_conversion(from, to, 2);
  REQUIRE(plan.kind == Conversion::Kind::Shuffle);
  const GpuCode code = compile_for(conversion(from, to, F16), "sm_80");
  CHECK(occurrences(code.ptx, "shfl.sync.idx") == 2);  // four halves
  CHECK(assembly_fault(code.ptx, "sm_80") == "");
  CHECK(occurrences(compile_for(conversion(from, to, F32), "sm_80").ptx, "shfl.sync.idx") == 4);
  CHECK(occurrences(compile_for(conversion(from, to, F64), "sm_80").ptx, "shfl.sync.idx") == 8);
}

namespace {

// Any layout of a tile, over so many warps.
Layout random_layout(Random& random, const Shape& shape, int64_t warps, int bytes) {
  const int64_t rows = (shape[0] + 15) / 16, columns = (shape[1] + 7) / 8;
  switch (random(0, 4)) {
    case 0: {
      const auto policy = random.of({WarpPolicy::Rows, WarpPolicy::Columns, WarpPolicy::Square});
      return mma_accumulator(shape[0], shape[1], split_warps(policy, rows, columns, warps));
    }
    case 1: return blocked(shape, warps, bytes);
    case 2: return permute_axes(blocked({shape[1], shape[0]}, warps, bytes), {1, 0});
    case 3:
      return mma_operand_a(shape[0], shape[1], bytes == 1 ? kMma8Bit : kMma16BitK16,
                           split_warps(WarpPolicy::Rows, rows, 1, warps));
    default: return replicated(shape, warps);
  }
}

}  // namespace

TEST_CASE("reduce: random layouts, kinds and dtypes", "[nvptx]") {
  Random random;
  for (int i = 0; i < 80; ++i) {
    const DType from = kAllDTypes[static_cast<size_t>(random(0, 14))];
    const bool bits = from == Bool || (is_int(from) && random.coin());
    const auto kind = bits ? random.of<std::string>({"and", "or", "xor"})
                           : random.of<std::string>({"max", "min", "sum", "absmax"});
    const DType to = is_float(from) && random.coin() ? random.of({F16, BF16, F32, F64}) : from;
    const Shape shape{random(1, 40), random(1, 60)};
    const Layout layout = random_layout(random, shape, random.of<int64_t>({1, 2, 4, 8}),
                                        static_cast<int>(size_of(from)));
    if (layout.registers() > 200) continue;
    Check check = random.check();
    check.tolerance = 0;  // exact, but which of −0 and 0 is larger depends on the order
    // Also elements of one sign: padding must not take part. Small types hold small sums exactly.
    const int64_t sign = random(-1, 1);
    check.options.low = sign > 0 ? 3 : -4;
    check.options.high = sign < 0 ? -3 : 4;
    if (kind == "sum" && std::min(size_of(from), size_of(to)) < 4) {
      check.options.low = 0;
      check.options.high = 1;
    } else if (kind != "sum" && is_float(from) && random.coin()) {
      check.options.specials = 0.5;
    }
    const bool clear = random.coin(), keep = random.coin();
    const int64_t dim = random(0, 1);
    const std::string target = random.target();
    INFO(kind << " of " << name(from) << " in " << name(to) << ", dim " << dim << ", clear "
              << clear << ", keep " << keep << ", " << target << "\n"
              << str(layout));
    CHECK(emulation_fault(reduction(layout, dim, kind, from, to, clear, keep), target, check) ==
          "");
  }
}

TEST_CASE("convert: random layouts and dtypes", "[nvptx]") {
  Random random;
  for (int done = 0; done < 40;) {
    const DType dtype = kAllDTypes[static_cast<size_t>(random(0, 14))];
    const int64_t warps = random.of<int64_t>({1, 2, 4});
    const Shape shape{random(1, 40), random(1, 40)};
    const auto bytes = static_cast<int>(size_of(dtype));
    const Layout from = random_layout(random, shape, warps, bytes);
    const Layout to = random_layout(random, shape, warps, bytes);
    if (std::max(from.registers(), to.registers()) > 200) continue;
    if (plan_conversion(from, to, bytes).kind == Conversion::Kind::Shared) continue;
    ++done;
    const std::string target = random.target();
    INFO(name(dtype) << ", " << target << "\n" << str(from) << "\n" << str(to));
    CHECK(emulation_fault(conversion(from, to, dtype), target, random.check()) == "");
  }
}
