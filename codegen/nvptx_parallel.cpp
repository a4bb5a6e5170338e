// parallel: the loop's layout says which points a thread runs, one a register. The body is emitted
// once for each register, so that fragments stay in registers and constants reach the addresses;
// loops without fragments, over more points than is good for code, run a real loop.
#include <algorithm>
#include <numeric>

#include "codegen/nvptx_walk_impl.h"
#include "ir/error.h"
#include "ir/layout/locality.h"

namespace kiln::nvptx {
namespace {

constexpr int64_t kStraight = 256;  // points of a thread without a loop
constexpr int64_t kInFlight = 8;    // of them whose loads come before the first one's stores

// The operand that is the storage of a load or store; none of other ops.
std::optional<size_t> storage_operand(const Op& op) {
  if (op.code == OpCode::Load) return 0;
  if (op.code == OpCode::Store) return 1;
  return std::nullopt;
}

// For each index of an access, the axis of the loop that it is; kNoAxis for the constant 0.
std::vector<int> loop_axes(const Op& op, size_t storage, const std::vector<Value>& args) {
  std::vector<int> axes;
  for (size_t i = storage + 1; i < op.operands.size(); ++i) {
    const auto found = std::ranges::find(args, op.operands[i]);
    axes.push_back(found == args.end() ? kNoAxis : static_cast<int>(found - args.begin()));
  }
  return axes;
}

// Where a loop finds its registers in fragments of a layout, indexed by these axes of the loop.
struct Local {
  Layout tile;
  std::vector<int> axes, registers;
};

// Does a point read memory after it has written some? Then its stores cannot wait.
bool reads_after_writing(const Kernel& kernel, const Region& body) {
  bool written = false;
  for (OpId id : body.ops) {
    const Op& op = kernel.op(id);
    const std::optional<size_t> storage = storage_operand(op);
    if (!storage || kernel.type(op.operands[*storage]).space == Space::Fragment) continue;
    if (op.code == OpCode::Store) written = true;
    if (op.code == OpCode::Load && written) return true;
  }
  return false;
}

}  // namespace

void Emitter::emit_parallel(const Op& op) {
  const std::string& text = op.word("layout");
  if (text.empty()) throw InternalError(op.loc, "the parallel has no layout");
  const std::shared_ptr<const Layout> loop = layout(text);
  const Region& body = kernel_.region(op.regions[0]);

  Point point;
  point.first = first_copy(*this, *loop);
  bool fragments = false;
  std::vector<Local> local;  // most accesses of a loop are to tiles of one layout
  for (OpId id : body.ops) {
    const Op& access = kernel_.op(id);
    const std::optional<size_t> storage = storage_operand(access);
    if (!storage || !is_fragment(access.operands[*storage])) continue;
    fragments = true;
    const std::vector<int> axes = loop_axes(access, *storage, body.args);
    const Layout& tile = *fragment(access.operands[*storage]).layout;
    auto found = std::ranges::find_if(
        local, [&](const auto& known) { return known.tile == tile && known.axes == axes; });
    if (found == local.end()) {
      auto registers = local_registers(*loop, axes, tile);
      if (!registers) throw InternalError(access.loc, "a thread lacks elements of a fragment");
      found = local.insert(local.end(), {tile, axes, std::move(*registers)});
    }
    point.registers.emplace(&access, found->registers);
  }

  point.defers = !reads_after_writing(kernel_, body);

  Walk walk(*this, *loop);
  const auto run = [&](const Values& coordinate, Val valid) {
    point.valid = valid;
    for (size_t axis = 0; axis < coordinate.size(); ++axis) set(body.args[axis], coordinate[axis]);
    emit_region(op.regions[0]);
  };
  const auto finish = [&] {
    for (const auto& store : std::exchange(point.stores, {})) store();
  };
  point_ = &point;
  if (!fragments && walk.steps() > kStraight) {
    const int64_t together = std::gcd(walk.steps(), kInFlight);
    b.loop(b.i32(0), b.i32(walk.steps()), b.i32(together), [&](Val first) {
      for (int64_t i = 0; i < together; ++i) {
        const Values coordinate = walk.coordinate(b.ir.CreateAdd(first, b.i32(i)));
        run(coordinate, walk.in_tile(coordinate));
      }
      finish();
    });
  } else {
    for (point.reg = 0; point.reg < walk.steps(); ++point.reg) {
      const Values coordinate = walk.coordinate(point.reg);
      run(coordinate, walk.in_tile(point.reg, coordinate));
      if ((point.reg + 1) % kInFlight == 0) finish();
    }
    finish();
  }
  point_ = nullptr;
}

Val Emitter::load_register(const Op& op) {
  const Fragment& from = fragment(op.operands[0]);
  if (!point_) return from.registers.at(0);  // of rank 0
  const int reg = point_->registers.at(&op)[static_cast<size_t>(point_->reg)];
  if (reg < 0) return b.zero(from.dtype);
  // Where the loop is larger than the fragment, threads beyond its end read 0.
  Val value = from.registers[static_cast<size_t>(reg)];
  const Shape& extents = from.layout->shape();
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    const Value index = op.operands[1 + axis];
    if (ranges_.of(index).high < extents[axis]) continue;
    Val beyond = b.ir.CreateICmpSGE(scalar(index), b.i32(extents[axis]));
    value = b.ir.CreateSelect(beyond, b.zero(from.dtype), value);
  }
  return value;
}

void Emitter::store_register(const Op& op, Val value) {
  Fragment& to = fragment(op.operands[1]);
  if (!point_) {  // of rank 0
    std::ranges::fill(to.registers, value);
    return;
  }
  const int reg = point_->registers.at(&op)[static_cast<size_t>(point_->reg)];
  if (reg >= 0) to.registers[static_cast<size_t>(reg)] = value;
}

}  // namespace kiln::nvptx
