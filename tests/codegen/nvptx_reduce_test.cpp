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
GpuCode reduced(const Layout& layout, int64_t dim, const std::string& kind, DType from, DType to,
                bool clear = true, bool keep = false, const std::string& target = "sm_80") {
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
  return compile_for(p.kernel, target);
}

// y = x, held as `from` and then as `to`.
GpuCode converted(const Layout& from, const Layout& to, DType dtype) {
  Program p("convert");
  Value x = p.tensor("x", dtype, from.shape()), y = p.tensor("y", dtype, from.shape(), "output");
  p.launch([&] {
    Value a = fragment(p, dtype, from), b = fragment(p, dtype, to);
    p.copy(x, a);
    p.b.emit(OpCode::Convert, {a, b});
    p.copy(b, y);
  });
  launch_of(p).attrs.set("warps", from.warps());
  return compile_for(p.kernel, "sm_80");
}

}  // namespace

TEST_CASE("reduce: rows of an accumulator need two exchanges a row", "[nvptx]") {
  const GpuCode code = reduced(mma_accumulator(64, 64, {4, 1, 1}), 1, "max", F32, F32);
  CHECK(occurrences(code.ptx, "shfl.sync.bfly") == 4);  // two rows
  CHECK(occurrences(code.ptx, "bar.sync") == 0);
  CHECK(occurrences(code.ptx, "shared") == 0);
  CHECK(assembly_fault(code.ptx, "sm_80") == "");
}

TEST_CASE("reduce: warps combine through shared memory", "[nvptx]") {
  for (const auto& [grid, dim] :
       {std::pair(WarpGrid{2, 2, 1}, int64_t{1}), {{4, 1, 1}, 0}, {{1, 4, 1}, 1}}) {
    const GpuCode code = reduced(mma_accumulator(64, 64, grid), dim, "sum", F16, F16);
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
      const GpuCode code = reduced(mma_accumulator(16, 40, {1, 1, 4}), turn % 2, kind, dtype, dtype,
                                   turn % 3 == 0, turn % 5 == 0, target);
      CHECK(occurrences(code.ptx, ".local") == 0);
      if (turn % 4 == 0) CHECK(assembly_fault(code.ptx, target) == "");
    }
}

TEST_CASE("reduce: floats below f32 are rounded once", "[nvptx]") {
  const GpuCode code = reduced(mma_accumulator(16, 64, {1, 1, 1}), 1, "sum", F16, F16);
  CHECK(occurrences(code.ptx, "add.f32") + occurrences(code.ptx, "add.rn.f32") == 2 * 15 + 2 * 2);
  CHECK(occurrences(code.ptx, "cvt.rn.f16") == 2);
}

TEST_CASE("convert: an accumulator is the next gemm's operand at no cost", "[nvptx]") {
  const Layout from = mma_accumulator(64, 32, {4, 1, 1});
  const Layout to = mma_operand_a(64, 32, kMma16BitK16, {4, 1, 1});
  const GpuCode code = converted(from, to, F16);
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
  const GpuCode code = converted(from, to, F16);
  CHECK(occurrences(code.ptx, "shfl.sync.idx") == 2);  // four halves
  CHECK(assembly_fault(code.ptx, "sm_80") == "");
  CHECK(occurrences(converted(from, to, F32).ptx, "shfl.sync.idx") == 4);
  CHECK(occurrences(converted(from, to, F64).ptx, "shfl.sync.idx") == 8);
}
