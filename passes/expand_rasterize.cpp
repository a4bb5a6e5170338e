// launch X, Y {rasterize = R} do |x, y|  →  launch X, Y do |x, y| with other x, y in its body
//
// Blocks start in the order of x + X·y. The grid is cut into panels of R rows along y, the last one
// of what is left; the n-th block of a panel of H rows works as x = n / H, y = first row + n % H:
// blocks that run at one time share rows and columns of the grid. With X = 4, R = 2, Y = 3:
//
//             x = 0   1   2   3
//     y = 0       0   2   4   6
//     y = 1       1   3   5   7
//     y = 2       8   9  10  11     a panel of one row
//
// As x < X, the panel of a block is y / R and n = (y % R)·X + x, so nothing is larger than R·X.
// Where that is no i32, blocks keep their order.
#include <limits>

#include "ir/builder.h"
#include "ir/walk.h"
#include "passes/passes.h"

namespace kiln {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

struct Block {
  Value x, y;
};

Block in_panels(Builder& build, Value columns, Value rows, Block block, int64_t panel) {
  const auto op = [&](OpCode code, Value a, Value b) { return build.binary(code, a, b); };
  const auto known_rows = constant_int(build.kernel(), rows);
  const Value width = build.constant(I32, panel);
  const Value first = op(OpCode::Mul, op(OpCode::FloorDiv, block.y, width), width);
  const Value below = op(OpCode::Sub, block.y, first);
  const bool even = known_rows && *known_rows % panel == 0;  // every panel is as wide
  const Value height = even ? width : op(OpCode::Min, width, op(OpCode::Sub, rows, first));
  const Value nth = op(OpCode::Add, op(OpCode::Mul, below, columns), block.x);
  Value x = op(OpCode::FloorDiv, nth, height);
  Value y = op(OpCode::Add, first, op(OpCode::FloorMod, nth, height));
  // They are inside; where panels differ in height, only this lets later passes see it.
  const auto inside = [&](Value index, Value extent) {
    const auto known = constant_int(build.kernel(), extent);
    return known && !even ? op(OpCode::Min, index, build.constant(I32, *known - 1)) : index;
  };
  x = inside(x, columns);
  y = inside(y, rows);
  const Value fits = build.compare("le", columns, build.constant(I32, kMost / panel));
  return {build.select(fits, x, block.x), build.select(fits, y, block.y)};
}

// A watch names the block that it is in by the index that the block started with.
bool has_watch(const Kernel& kernel, const Op& launch) {
  bool found = false;
  walk(kernel, launch.regions[0], [&](OpId id) { found |= kernel.op(id).code == OpCode::Watch; });
  return found;
}

void expand(Kernel& kernel, OpId id) {
  const int64_t panel = kernel.op(id).integer("rasterize");
  kernel.op(id).attrs.erase("rasterize");
  const std::vector<Value> grid = kernel.op(id).operands;
  if (panel <= 1 || grid.size() < 2) return;  // one row after another is the order that they have
  if (has_watch(kernel, kernel.op(id))) return;
  // The body's own indices become others, from which its old ones are computed first.
  const RegionId body = kernel.op(id).regions[0];
  const std::vector<Value> old = kernel.region(body).args;
  std::vector<OpId> ops;
  ops.swap(kernel.region(body).ops);
  Builder build(kernel, body);
  build.loc = kernel.op(id).loc;
  Block started{kernel.new_value(Type::scalar(I32)), kernel.new_value(Type::scalar(I32))};
  const Block block = in_panels(build, grid[0], grid[1], started, panel);
  Region& region = kernel.region(body);
  region.args[0] = started.x;
  region.args[1] = started.y;
  region.ops.insert(region.ops.end(), ops.begin(), ops.end());
  replace_uses(kernel, {{old[0].id, block.x}, {old[1].id, block.y}});
}

}  // namespace

void expand_rasterize(Kernel& kernel) {
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops))
    if (kernel.op(id).code == OpCode::Launch && kernel.op(id).integer("rasterize") != 0)
      expand(kernel, id);
}

}  // namespace kiln
