// A kernel: the arenas that own its values, ops and regions, and the region that is its body.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "ir/op.h"

namespace kiln {

// Copying a kernel copies its arenas; handles stay valid in the copy. Ops that no region lists any
// more stay in the arena, unseen by walks and text.
class Kernel {
 public:
  std::string name;
  bool fast_math = false;  // arithmetic may be contracted and approximated (pass fast_math)
  std::string target;      // the GPU a lowered kernel is for, "sm_90a"; empty before
  std::string without;     // passes that are left out, "simplify make_async"; never of results
  std::string note;        // what its author has to say in `kiln explain`; never of results
  RegionId body;           // top level: dims, params, tensors, launches

  explicit Kernel(std::string name = "");

  Op& op(OpId id) { return ops_[id.id]; }
  const Op& op(OpId id) const { return ops_[id.id]; }
  Region& region(RegionId id) { return regions_[id.id]; }
  const Region& region(RegionId id) const { return regions_[id.id]; }
  const Type& type(Value value) const { return values_[value.id].type; }
  OpId def(Value value) const { return values_[value.id].def; }  // none for a region's argument
  // The op that defines `value` if it is a `code`, else null.
  const Op* def_as(Value value, OpCode code) const;
  size_t value_count() const { return values_.size(); }

  Value new_value(Type type, OpId def = {});
  OpId new_op(OpCode code, Loc loc, std::vector<Value> operands, Attrs attrs = {});
  Value set_result(OpId op, Type type);
  RegionId new_region();
  Value add_argument(RegionId region, Type type);

 private:
  struct ValueInfo {
    Type type;
    OpId def;
  };
  std::vector<ValueInfo> values_;
  std::deque<Op> ops_;
  std::deque<Region> regions_;
};

// Number literals of ops.
Scalar constant_value(const Kernel& kernel, const Op& constant);         // of a Const
std::optional<Scalar> constant_of(const Kernel& kernel, Value value);    // if a Const defines it
std::optional<int64_t> constant_int(const Kernel& kernel, Value value);  // if an integer Const does

// The tensor or tile that a view or reshape, through any number of them, reads and writes.
Value base_of(const Kernel& kernel, Value storage);
// The tensor, tile or reshape that a view is a part of: its dtype and its axes.
Value whole_of(const Kernel& kernel, Value storage);

// The op `channel` of a slot (what push_begin, pop and held give); null for other storage.
const Op* channel_of(const Kernel& kernel, Value slot);

}  // namespace kiln
