// Rounds of a loop write apart if on some axis the place moves on by at least its own width each
// round: there it is a multiple of the loop's index, plus what the loop does not change, plus
// indices of a parallel, whose extents are known. Places that wrap around in i32 are not thought
// of: the rounds that meet again are more than a million apart.
#include "passes/memory_use_impl.h"

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

#include "ir/walk.h"
#include "passes/memory_plan_impl.h"

namespace kiln {
namespace {

// A sum of terms, coefficient times value. Constants are left out: they do not change.
class Linear {
 public:
  std::map<uint32_t, int64_t> terms;  // coefficients by value id

  void add(const Kernel& kernel, Value value, int64_t factor = 1) {
    if (constant_int(kernel, value)) return;
    const OpId def = kernel.def(value);
    if (def && left_-- > 0) {
      const Op& op = kernel.op(def);
      if (op.code == OpCode::Add || op.code == OpCode::Sub) {
        add(kernel, op.operands[0], factor);
        return add(kernel, op.operands[1], op.code == OpCode::Add ? factor : -factor);
      }
      for (size_t i : {0, 1}) {
        if (op.code != OpCode::Mul) break;
        auto by = constant_int(kernel, op.operands[1 - i]);
        if (by && std::abs(*by) < kLargest / (std::abs(factor) + 1))
          return add(kernel, op.operands[i], factor * *by);
      }
    }
    terms[value.id] += factor;
  }

 private:
  static constexpr int64_t kLargest = int64_t{1} << 31;  // coefficients beyond are not followed
  int left_ = 64;                                        // ops to look through
};

struct AxisPlace {
  Linear start;
  int64_t width = 1;
};

// Where an op puts elements of a tensor. None if a size is not known.
std::vector<AxisPlace> place_of(const Kernel& kernel, Value storage, const Op* store) {
  const Shape& shape = kernel.type(storage).shape;
  std::vector<AxisPlace> axes(shape.size());
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (store) {
      axes[axis].start.add(kernel, store->operands[2 + axis]);
    } else if (shape[axis] == kDynamic) {
      return {};
    } else {
      axes[axis].width = shape[axis];
    }
  }
  while (const Op* slice = kernel.def_as(storage, OpCode::Slice)) {
    for (size_t axis = 0; axis < axes.size(); ++axis)
      axes[axis].start.add(kernel, slice->operands[1 + axis]);
    storage = slice->operands[0];
  }
  if (kernel.def_as(storage, OpCode::Every)) return {};
  return axes;
}

// The values that a loop changes: its index, all that its body makes. For indices of a parallel
// inside, their extents.
struct Changing {
  std::unordered_set<uint32_t> values;
  std::unordered_map<uint32_t, int64_t> extents;

  Changing(const Kernel& kernel, const Op& loop) { add(kernel, loop); }
  void add(const Kernel& kernel, const Op& op) {
    for (RegionId region : op.regions) {
      const std::vector<Value>& args = kernel.region(region).args;
      for (size_t i = 0; i < args.size(); ++i) {
        values.insert(args[i].id);
        if (op.code == OpCode::Parallel) extents[args[i].id] = op.ints("extents")[i];
      }
      for (OpId id : kernel.region(region).ops) {
        if (Value result = kernel.op(id).result) values.insert(result.id);
        add(kernel, kernel.op(id));
      }
    }
  }
};

bool moves_on(const AxisPlace& axis, const Changing& changing, Value index, int64_t step) {
  int64_t width = axis.width, stride = 0;
  for (const auto& [value, factor] : axis.start.terms) {
    if (value == index.id) {
      stride = std::abs(factor) * step;
    } else if (auto extent = changing.extents.find(value); extent != changing.extents.end()) {
      width += std::abs(factor) * (extent->second - 1);
    } else if (changing.values.contains(value)) {
      return false;
    }
  }
  return stride >= width;
}

bool rounds_write_apart(const Kernel& kernel, const Op& op, Value tensor, const Op& loop) {
  if (loop.code == OpCode::Loop) return false;  // it counts nothing
  std::vector<AxisPlace> place;
  int writes = 0;
  auto look = [&](const Op& writer) {
    for (size_t i = 0; i < writer.operands.size(); ++i) {
      const Effect effect = info(writer.code).operand(i).effect;
      if (!writer.operands[i] || effect == Effect::None || effect == Effect::Read) continue;
      if (base_of(kernel, writer.operands[i]) != tensor) continue;
      const bool element = writer.code == OpCode::Store || writer.code == OpCode::Atomic;
      place = place_of(kernel, writer.operands[i], element ? &writer : nullptr);
      ++writes;
    }
  };
  look(op);
  for (RegionId region : op.regions) walk(kernel, region, [&](OpId id) { look(kernel.op(id)); });
  if (writes != 1) return false;
  const Changing changing(kernel, loop);
  const Value index = kernel.region(loop.regions[0]).args[0];
  const int64_t step =
      loop.code == OpCode::For ? constant_int(kernel, loop.operands[2]).value_or(1) : 1;
  for (const AxisPlace& axis : place)
    if (moves_on(axis, changing, index, step)) return true;
  return false;
}

}  // namespace

MemoryUse::MemoryUse(const Kernel& kernel, RegionId launch)
    : kernel_(kernel), written_(kernel.value_count(), false) {
  walk(kernel, launch, [&](OpId id) {
    const Op& op = kernel.op(id);
    for (const Access& access : accesses(kernel, op))
      if (access.effect != Effect::Read) written_[access.base.id] = true;
    if (op.code != OpCode::Alloc || kernel.type(op.result).space != Space::Shared) return;
    const int64_t offset = op.integer("offset");
    // Before it is placed, a tile overlaps no other.
    bytes_[op.result.id] = {offset, offset < 0 ? offset : offset + shared_bytes(kernel, op)};
  });
}

const std::vector<Touch>& MemoryUse::touches(OpId id) {
  auto [entry, is_new] = touches_.try_emplace(id.id);
  std::vector<Touch>& found = entry->second;
  if (!is_new) return found;
  const Op& op = kernel_.op(id);
  const bool whole = op.code == OpCode::Parallel;
  for (const Access& access : whole ? accesses_deep(kernel_, op) : accesses(kernel_, op)) {
    const Space space = kernel_.type(access.base).space;
    if (space == Space::Fragment || (space == Space::Global && !written_[access.base.id])) continue;
    Touch touch{access.base, access.effect != Effect::Read};
    touch.ordered = touch.writes && op.code == OpCode::Copy && op.word("group") == "next";
    if (space == Space::Shared) std::tie(touch.begin, touch.end) = bytes_.at(access.base.id);
    found.push_back(touch);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool MemoryUse::writes_apart(OpId op, Value tensor, OpId loop) {
  auto [entry, is_new] = apart_.try_emplace({op.id, tensor.id, loop.id}, false);
  if (is_new) entry->second = rounds_write_apart(kernel_, kernel_.op(op), tensor, kernel_.op(loop));
  return entry->second;
}

}  // namespace kiln
