// What ops touch of the memory that a block's threads share: shared tiles and tensors.
#pragma once

#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// One access. Of a shared tile all its bytes count, of a tensor all of it.
struct Touch {
  Value base;
  bool writes = false;
  bool ordered = false;        // by a copy with `group = next`: what comes after waits for it
  int64_t begin = 0, end = 0;  // bytes of shared memory; equal for a tensor

  // Can two threads that make these accesses in any order see different results?
  bool conflicts_with(const Touch& other) const {
    if (base == other.base && (ordered || other.ordered)) return false;
    const bool overlap = base == other.base || (begin < other.end && other.begin < end);
    return overlap && (writes || other.writes);
  }
  auto operator<=>(const Touch&) const = default;
};

// The accesses of one launch that can conflict: tensors that are only read are left out.
class MemoryUse {
 public:
  MemoryUse(const Kernel& kernel, RegionId launch);

  // Of a whole parallel; of any other op without what its regions touch.
  const std::vector<Touch>& touches(OpId op);

  // Does `op` write different elements of `tensor` in any two rounds of the loop around it?
  bool writes_apart(OpId op, Value tensor, OpId loop);

 private:
  const Kernel& kernel_;
  std::unordered_map<uint32_t, std::pair<int64_t, int64_t>> bytes_;  // of shared tiles
  std::vector<bool> written_;                                        // by value id
  std::unordered_map<uint32_t, std::vector<Touch>> touches_;         // by op
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, bool> apart_;   // by op, tensor and loop
};

}  // namespace kiln
