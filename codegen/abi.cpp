#include "codegen/abi.h"

#include <algorithm>
#include <set>

#include "codegen/bulk_copy_impl.h"
#include "codegen/host_impl.h"
#include "ir/walk.h"

namespace kiln {

std::vector<OpId> interface_of(const Kernel& kernel, const Op& launch) {
  const std::vector<OpId>& body = kernel.region(kernel.body).ops;
  const std::set<OpId> top(body.begin(), body.end());
  std::set<OpId> needed;
  std::vector<Value> pending;
  for (RegionId region : launch.regions)
    walk(kernel, region, [&](OpId id) {
      const Op& op = kernel.op(id);
      pending.insert(pending.end(), op.operands.begin(), op.operands.end());
    });
  while (!pending.empty()) {
    Value value = pending.back();
    pending.pop_back();
    OpId def = value ? kernel.def(value) : OpId{};
    if (!def || !top.contains(def) || !needed.insert(def).second) continue;
    const Op& op = kernel.op(def);
    pending.insert(pending.end(), op.operands.begin(), op.operands.end());
  }
  std::vector<OpId> ordered;
  std::copy_if(body.begin(), body.end(), std::back_inserter(ordered),
               [&](OpId id) { return needed.contains(id); });
  return ordered;
}

std::vector<Slot> slots_of(const Kernel& kernel, const Op& launch) {
  std::vector<Slot> slots;
  // Maps are a GPU's; a kernel for none need not have the layouts that they are made of.
  std::vector<BulkOp> copies;
  if (!kernel.target.empty()) copies = bulk_ops(kernel, launch);
  for (BulkOp& copy : copies)
    if (std::find(slots.begin(), slots.end(), copy.slot) == slots.end())
      slots.push_back(std::move(copy.slot));
  const std::vector<Slot> others = host::slots_without_maps(kernel, launch);
  slots.insert(slots.end(), others.begin(), others.end());
  return slots;
}

std::vector<Slot> host::slots_without_maps(const Kernel& kernel, const Op& launch) {
  std::vector<Slot> slots;
  for (OpId id : interface_of(kernel, launch)) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Dim) slots.push_back({Slot::Kind::Dim, op.word("name")});
    if (op.code == OpCode::Param) slots.push_back({Slot::Kind::Param, op.word("name")});
    if (op.code != OpCode::Tensor) continue;
    slots.push_back({Slot::Kind::Pointer, op.word("name")});
    for (int axis = 0; axis + 1 < kernel.type(op.result).rank(); ++axis)
      slots.push_back({Slot::Kind::Stride, op.word("name"), axis});
  }
  return slots;
}

}  // namespace kiln
