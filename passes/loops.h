// Loops, and what is inside of ops: what several passes look for.
#pragma once

#include <vector>

#include "ir/walk.h"

namespace kiln {

inline bool is_loop(const Op& op) {
  return op.code == OpCode::For || op.code == OpCode::Selected || op.code == OpCode::Loop;
}

// Does the op, or one in its regions, satisfy `holds`?
template <class Holds>
bool any_op(const Kernel& kernel, const Op& op, Holds&& holds) {
  bool found = holds(op);
  for (RegionId region : op.regions)
    walk(kernel, region, [&](OpId id) { found |= holds(kernel.op(id)); });
  return found;
}

// A loop, with the region that it stands in.
struct PlacedLoop {
  RegionId around;
  OpId loop;
};
// The `for` loops of a launch that satisfy `holds`, those inside others first.
template <class Holds>
std::vector<PlacedLoop> loops_of(const Kernel& kernel, OpId launch, Holds&& holds) {
  std::vector<PlacedLoop> found;
  walk_regions(kernel, kernel.op(launch).regions[0], [&](RegionId region) {
    for (OpId id : kernel.region(region).ops)
      if (kernel.op(id).code == OpCode::For && holds(kernel.op(id))) found.push_back({region, id});
  });
  return found;
}

}  // namespace kiln
