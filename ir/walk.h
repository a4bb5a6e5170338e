// Walking, copying and editing regions.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "ir/kernel.h"

namespace kiln {

// Calls visit(OpId) for every op of the region and of its regions, an op before its regions. The
// visitor may edit the lists of ops: each is read before its ops are visited.
template <class Visit>
void walk(const Kernel& kernel, RegionId region, Visit&& visit) {
  for (OpId id : std::vector<OpId>(kernel.region(region).ops)) {
    visit(id);
    for (RegionId inner : std::vector<RegionId>(kernel.op(id).regions)) walk(kernel, inner, visit);
  }
}
// Calls visit(RegionId) for the region and all inside it, inner ones first.
template <class Visit>
void walk_regions(const Kernel& kernel, RegionId region, Visit&& visit) {
  for (OpId id : std::vector<OpId>(kernel.region(region).ops))
    for (RegionId inner : std::vector<RegionId>(kernel.op(id).regions))
      walk_regions(kernel, inner, visit);
  visit(region);
}

using ValueMap = std::unordered_map<uint32_t, Value>;  // by id
Value mapped(const ValueMap& map, Value value);        // value itself if the map has no entry

// Appends a deep copy of an op, operands replaced through `map`, to `into`; `map` gains its results
// and its regions' arguments.
OpId clone_op(Kernel& kernel, OpId op, RegionId into, ValueMap& map);
// Appends copies of all ops of `from` to `into`.
void clone_body(Kernel& kernel, RegionId from, RegionId into, ValueMap& map);

// Replaces operands everywhere; chains in the map (a→b, b→c) are followed.
void replace_uses(Kernel& kernel, const ValueMap& map);

std::vector<int> use_counts(const Kernel& kernel);  // by value id, over the ops reachable from body

// The first op of the late IR (ops.def), in whose kernels everything is scheduled; null if none.
const Op* first_late_op(const Kernel& kernel);

// Tiles that have other shapes or dtypes as well, by value id.
std::unordered_set<uint32_t> reshaped_tiles(const Kernel& kernel);

// What an op does to the storage it names, views and reshapes resolved to their base.
struct Access {
  Value base;
  Effect effect;
};
std::vector<Access> accesses(const Kernel& kernel, const Op& op);       // the op alone
std::vector<Access> accesses_deep(const Kernel& kernel, const Op& op);  // and its regions

}  // namespace kiln
