#include "ir/walk.h"

namespace kiln {

Value mapped(const ValueMap& map, Value value) {
  auto it = map.find(value.id);
  return it == map.end() ? value : it->second;
}

OpId clone_op(Kernel& kernel, OpId source, RegionId into, ValueMap& map) {
  const Op original = kernel.op(source);
  std::vector<Value> operands;
  for (Value operand : original.operands) operands.push_back(mapped(map, operand));
  OpId copy = kernel.new_op(original.code, original.loc, std::move(operands), original.attrs);
  if (original.result)
    map[original.result.id] = kernel.set_result(copy, Type(kernel.type(original.result)));
  kernel.region(into).ops.push_back(copy);
  for (RegionId region : original.regions) {
    RegionId inner = kernel.new_region();
    for (Value arg : std::vector<Value>(kernel.region(region).args))
      map[arg.id] = kernel.add_argument(inner, Type(kernel.type(arg)));
    clone_body(kernel, region, inner, map);
    kernel.op(copy).regions.push_back(inner);
  }
  return copy;
}

void clone_body(Kernel& kernel, RegionId from, RegionId into, ValueMap& map) {
  for (OpId op : std::vector<OpId>(kernel.region(from).ops)) clone_op(kernel, op, into, map);
}

void replace_uses(Kernel& kernel, const ValueMap& map) {
  if (map.empty()) return;
  walk(kernel, kernel.body, [&](OpId id) {
    for (Value& operand : kernel.op(id).operands)
      while (operand && map.contains(operand.id)) operand = map.at(operand.id);
  });
}

std::vector<int> use_counts(const Kernel& kernel) {
  std::vector<int> counts(kernel.value_count());
  walk(kernel, kernel.body, [&](OpId id) {
    for (Value operand : kernel.op(id).operands)
      if (operand) ++counts[operand.id];
  });
  return counts;
}

const Op* first_late_op(const Kernel& kernel) {
  const Op* found = nullptr;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (!found && op.code >= OpCode::Roles && op.code <= OpCode::NextTile) found = &op;
  });
  return found;
}

std::unordered_set<uint32_t> reshaped_tiles(const Kernel& kernel) {
  std::unordered_set<uint32_t> tiles;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Reshape) tiles.insert(base_of(kernel, op.result).id);
  });
  return tiles;
}

std::vector<Access> accesses(const Kernel& kernel, const Op& op) {
  std::vector<Access> found;
  const OpInfo& row = info(op.code);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    Effect effect = row.operand(i).effect;
    if (!op.operands[i] || effect == Effect::None) continue;
    // Through a view, `w:` writes only the part that the view covers.
    bool part = kernel.type(op.operands[i]).kind == Kind::View;
    if (part && effect == Effect::Write) effect = Effect::Update;
    found.push_back({base_of(kernel, op.operands[i]), effect});
  }
  return found;
}

std::vector<Access> accesses_deep(const Kernel& kernel, const Op& op) {
  std::vector<Access> found = accesses(kernel, op);
  for (RegionId region : op.regions)
    walk(kernel, region, [&](OpId id) {
      for (const Access& access : accesses(kernel, kernel.op(id))) found.push_back(access);
    });
  return found;
}

}  // namespace kiln
