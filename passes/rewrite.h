// Rebuilding regions op by op, in program order: the frame of passes that replace ops.
#pragma once

#include "ir/builder.h"
#include "ir/walk.h"

namespace kiln {

// A value's final name; chains in the map are followed.
inline Value renamed(const ValueMap& names, Value value) {
  for (auto it = names.find(value.id); it != names.end(); it = names.find(value.id))
    value = it->second;
  return value;
}

// Offers every op of the region, operands already renamed, to `replace(builder, id)`. True: what
// the builder appended stands for it (its result has an entry in `names`). False: the op stays, and
// its regions are rebuilt likewise.
template <class Replace>
void rewrite(Kernel& kernel, RegionId region, ValueMap& names, Replace&& replace) {
  std::vector<OpId> ops;
  ops.swap(kernel.region(region).ops);
  Builder build(kernel, region);
  for (OpId id : ops) {
    Op& op = kernel.op(id);
    for (Value& operand : op.operands) operand = renamed(names, operand);
    build.loc = op.loc;
    if (replace(build, id)) continue;
    kernel.region(region).ops.push_back(id);
    for (RegionId inner : std::vector<RegionId>(op.regions)) rewrite(kernel, inner, names, replace);
  }
}

// Appends the ops of `from` to `into`, leaving `from` empty.
inline void move_ops(Kernel& kernel, RegionId from, RegionId into) {
  std::vector<OpId> ops;
  ops.swap(kernel.region(from).ops);
  auto& target = kernel.region(into).ops;
  target.insert(target.end(), ops.begin(), ops.end());
}

}  // namespace kiln
