// op(slice of a fragment)  →  shared tile = the fragment; op(the same slice of the shared tile);
//                             and if the op writes it: the fragment = the shared tile
// The whole fragment goes both ways: what the slice leaves out must be kept, and which thread has
// which part of the slice is known only when the program runs.
#include <algorithm>
#include <unordered_set>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

// A slice that is all of what it slices.
bool is_whole(const Kernel& kernel, const Op& slice) {
  const Shape& base = kernel.type(slice.operands[0]).shape;
  const Shape& view = kernel.type(slice.result).shape;
  for (size_t axis = 0; axis < base.size(); ++axis) {
    const bool all = view[axis] == base[axis] || view[axis] == kDynamic;
    if (!all || constant_int(kernel, slice.operands[1 + axis]) != 0) return false;
  }
  return true;
}

class Detour {
 public:
  explicit Detour(Kernel& kernel) : kernel_(kernel) {
    walk(kernel, kernel.body, [&](OpId id) {
      const Op& op = kernel.op(id);
      if (is_fragment_slice(op) && !is_whole(kernel, op))
        sliced_.insert(base_of(kernel, op.result).id);
    });
  }

  void run() {
    rewrite(kernel_, kernel_.body, names_,
            [&](Builder& build, OpId id) { return replace(build, id); });
  }

 private:
  struct Staged {
    Value fragment, shared;
    bool written = false;
  };

  bool is_fragment_slice(const Op& op) const {
    return op.code == OpCode::Slice && kernel_.type(op.result).space == Space::Fragment;
  }
  bool is_fragment_view(Value value) const {
    const Op* slice = value ? kernel_.def_as(value, OpCode::Slice) : nullptr;
    return slice && is_fragment_slice(*slice);
  }

  bool replace(Builder& build, OpId id) {
    Op& op = kernel_.op(id);
    if (op.code == OpCode::Alloc && sliced_.contains(op.result.id)) {
      // Copied whole before all of it may be written: the rest must be something.
      kernel_.region(build.region()).ops.push_back(id);
      build.fill(0, op.result);
      return true;
    }
    if (is_fragment_slice(op)) {
      if (is_whole(kernel_, op)) names_[op.result.id] = op.operands[0];
      return true;  // other slices are made again where they are used
    }
    if (std::none_of(op.operands.begin(), op.operands.end(),
                     [&](Value operand) { return is_fragment_view(operand); }))
      return false;
    detour(build, id);
    return true;
  }

  void detour(Builder& build, OpId id) {
    std::vector<Value> operands = kernel_.op(id).operands;
    std::vector<Staged> staged;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!is_fragment_view(operands[i])) continue;
      const Effect effect = info(kernel_.op(id).code).operand(i).effect;
      Staged& tile = stage(build, staged, base_of(kernel_, operands[i]));
      tile.written |= effect == Effect::Write || effect == Effect::Update;
      operands[i] = same_slice(build, operands[i], tile);
    }
    kernel_.op(id).operands = std::move(operands);
    kernel_.region(build.region()).ops.push_back(id);
    for (const Staged& tile : staged)
      if (tile.written) build.emit(OpCode::Copy, {tile.shared, tile.fragment});
  }

  // The shared tile of a fragment, for one op: filled when it is first asked for.
  Staged& stage(Builder& build, std::vector<Staged>& staged, Value fragment) {
    for (Staged& tile : staged)
      if (tile.fragment == fragment) return tile;
    const Type type = kernel_.type(fragment);
    Value shared = build.alloc(Space::Shared, type.dtype, type.shape);
    build.emit(OpCode::Copy, {fragment, shared});
    staged.push_back({fragment, shared});
    return staged.back();
  }

  Value same_slice(Builder& build, Value view, const Staged& tile) {
    const Op* slice = kernel_.def_as(view, OpCode::Slice);
    if (!slice) return tile.shared;
    Value base = same_slice(build, slice->operands[0], tile);
    return build.slice(base, {slice->operands.begin() + 1, slice->operands.end()},
                       Shape(kernel_.type(view).shape));
  }

  Kernel& kernel_;
  ValueMap names_;
  std::unordered_set<uint32_t> sliced_;  // fragments, by value id
};

}  // namespace

void slices_through_shared(Kernel& kernel) {
  Detour(kernel).run();
}

}  // namespace kiln
