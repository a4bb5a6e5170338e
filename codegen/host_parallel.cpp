// parallel: the innermost axis that is not 1 becomes the lanes of vectors, the others loops around
// it. Scalars that all lanes share stay scalars; the loop's index stays "first lane + k" as long as
// only uniform values are added to it, so that accesses along the last axis are whole-vector ones.
#include <algorithm>
#include <bit>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"

namespace kiln::host {

void Emitter::emit_parallel(const Op& op) {
  const std::vector<int64_t>& extents = op.ints("extents");
  const RegionId body = op.regions[0];
  const std::vector<Value>& args = kernel_.region(body).args;
  size_t inner = extents.empty() ? 0 : extents.size() - 1;
  while (inner > 0 && extents[inner] == 1) --inner;
  const int64_t count = extents.empty() ? 1 : extents[inner];
  const int lanes =
      count == 1
          ? 1
          : static_cast<int>(std::clamp<uint64_t>(std::bit_ceil(static_cast<uint64_t>(count)), 4,
                                                  static_cast<uint64_t>(b.target.lanes)));

  auto vectors = [&] {
    auto at = [&](Val index, int active) {
      if (!extents.empty())
        set(args[inner], {b.ir.CreateTrunc(index, b.ir.getInt32Ty()), lanes > 1});
      emit_lanes(body, lanes, active);
    };
    const int64_t whole = count / lanes * lanes;
    b.loop(b.i64(0), b.i64(whole), b.i64(lanes), [&](Val index) { at(index, lanes); });
    if (whole < count) at(b.i64(whole), static_cast<int>(count - whole));
  };
  std::function<void(size_t)> nest = [&](size_t axis) {
    if (axis >= extents.size()) return vectors();
    if (axis == inner) return nest(axis + 1);
    b.loop(b.i64(0), b.i64(extents[axis]), b.i64(1), [&](Val index) {
      set(args[axis], {b.ir.CreateTrunc(index, b.ir.getInt32Ty())});
      nest(axis + 1);
    });
  };
  nest(0);
}

void Emitter::emit_lanes(RegionId region, int lanes, int active) {
  for (OpId id : kernel_.region(region).ops) {
    const Op& op = kernel_.op(id);
    if (op.code == OpCode::Load) {
      set(op.result, {load(place(op.operands[0]), indices(op, 1), lanes, active)});
    } else if (op.code == OpCode::Store) {
      emit_store(op, lanes, active);
    } else if (op.code == OpCode::Atomic) {
      emit_atomic(op, lanes, active);
    } else if (op.code == OpCode::DeviceAssert) {
      continue;
    } else if (info(op.code).pure && op.code != OpCode::Slice && op.code != OpCode::Every) {
      emit_pure(op, lanes);
    } else {
      emit_op(op);
    }
  }
}

// index + uniform and index − uniform.
Element Emitter::shifted_index(const Op& op) {
  if (op.code != OpCode::Add && op.code != OpCode::Sub) return {};
  Element x = element(op.operands[0]), y = element(op.operands[1]);
  if (x.linear && y.uniform())
    return {op.code == OpCode::Add ? b.ir.CreateAdd(x.value, y.value)
                                   : b.ir.CreateSub(x.value, y.value),
            true};
  if (op.code == OpCode::Add && x.uniform() && y.linear)
    return {b.ir.CreateAdd(x.value, y.value), true};
  return {};
}

void Emitter::emit_pure(const Op& op, int lanes) {
  if (op.code == OpCode::Const) return;  // made where it is used
  if (Element shifted = shifted_index(op); shifted.value) return set(op.result, shifted);
  bool uniform = true;
  for (Value operand : op.operands) uniform &= element(operand).uniform();
  std::vector<Val> in;
  for (Value operand : op.operands)
    in.push_back(uniform ? scalar(operand) : vector(element(operand), lanes));
  const Value typed = op.code == OpCode::Select ? op.operands[1] : op.operands[0];
  set(op.result, {apply(b, op, kernel_.type(typed).dtype, kernel_.type(op.result).dtype, in)});
}

}  // namespace kiln::host
