#include "ir/error.h"
#include "passes/infer_layouts_impl.h"
#include "passes/passes.h"

namespace kiln {
namespace {

using namespace layouts;

// A loop over a single point of no axes becomes one over an axis of 1, which threads can share.
void name_single_points(Kernel& kernel, RegionId body) {
  walk(kernel, body, [&](OpId id) {
    Op& op = kernel.op(id);
    if (op.code != OpCode::Parallel || !op.ints("extents").empty()) return;
    op.attrs.set("extents", Shape{1});
    kernel.add_argument(op.regions[0], Type::scalar(I32));
  });
}

void legalise(Tiles& tiles, RegionId body) {
  Kernel& kernel = tiles.kernel;
  ValueMap names;  // no result gets another name
  rewrite(kernel, body, names, [&](Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    switch (op.code) {
      case OpCode::Parallel: legalise_parallel(tiles, build, id); return true;
      case OpCode::Gemm: legalise_gemm(tiles, build, id); return true;
      case OpCode::Reduce: legalise_reduce(tiles, build, id); return true;
      case OpCode::Copy:
      case OpCode::Convert:
        if (!tiles.is_fragment(op.operands[0]) || !tiles.is_fragment(op.operands[1])) return false;
        tiles.move(build, op.operands[0], op.operands[1]);
        return true;
      default: return false;
    }
  });
}

}  // namespace

void infer_layouts(Kernel& kernel) {
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops)) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Launch) continue;
    const int64_t warps = op.integer("warps");
    if (warps < 1)
      throw UserError(op.loc, "infer_layouts: the launch has no warps yet",
                      "run choose_instructions first");
    const RegionId body = op.regions[0];
    name_single_points(kernel, body);
    Tiles tiles(kernel, warps);
    assign_layouts(tiles, body);
    legalise(tiles, body);
    choose_swizzles(tiles, body);
    fit_wishes(tiles, id);
  }
}

}  // namespace kiln
