// A parallel's layout, and what its fragments need: each is used in place if every thread has its
// elements there, else through a fragment in the layout that the loop owns, else through a shared
// tile, in which any thread finds any element.
#include <algorithm>

#include "ir/layout/fragments.h"
#include "ir/layout/tile_layout.h"
#include "passes/infer_layouts_impl.h"

namespace kiln::layouts {
namespace {

constexpr int kScalars = 16;  // bytes at which blocked() gives neighbouring lanes single elements

Axes axes_of(const Kernel& kernel, const Op& access, size_t first, const std::vector<Value>& own) {
  Axes axes;
  for (size_t i = first; i < access.operands.size(); ++i) {
    const auto found = std::find(own.begin(), own.end(), access.operands[i]);
    axes.push_back(found == own.end() ? kNoAxis : static_cast<int>(found - own.begin()));
  }
  axes.resize(kernel.type(access.operands[first - 1]).shape.size(), kNoAxis);
  return axes;
}

// All uses of a fragment that must see one copy of it: of one that is stored all, of one that is
// only read those through the same axes.
struct Group {
  enum class How { InPlace, Converted, Shared };
  Value tile;
  std::vector<Use> uses;
  bool loads = false, stores = false;
  How how = How::InPlace;
  Ref layout = nullptr;  // of the converted fragment

  const Axes& axes() const {
    for (const Use& use : uses)
      if (use.stores) return use.axes;
    return uses.front().axes;
  }
};

std::vector<Group> groups_of(const LoopUses& uses) {
  const auto is_stored = [&](Value tile) {
    return std::any_of(uses.fragments.begin(), uses.fragments.end(),
                       [&](const Use& use) { return use.stores && use.tile == tile; });
  };
  std::vector<Group> groups;
  for (const Use& use : uses.fragments) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& other) {
      return other.tile == use.tile && (is_stored(use.tile) || other.uses[0].axes == use.axes);
    });
    if (group == groups.end()) group = groups.insert(group, Group{use.tile, {}});
    group->uses.push_back(use);
    (use.stores ? group->stores : group->loads) = true;
  }
  return groups;
}

class Loop {
 public:
  Loop(Tiles& tiles, OpId loop)
      : tiles_(tiles),
        loop_(loop),
        extents_(tiles.kernel.op(loop).ints("extents")),
        uses_(uses_of(tiles.kernel, tiles.kernel.op(loop))),
        groups_(groups_of(uses_)) {}

  void legalise(Builder& build) {
    plan(cheapest());
    if (updates_memory() && !layout_->is_injective())
      plan(tiles_.pool(one_owner(extents_, tiles_.warps)));
    std::vector<Value> stand_ins;
    for (const Group& group : groups_) stand_ins.push_back(prepare(build, group));
    set_layout(tiles_.kernel.op(loop_), *layout_);
    tiles_.kernel.region(build.region()).ops.push_back(loop_);
    for (size_t i = 0; i < groups_.size(); ++i) finish(build, groups_[i], stand_ins[i]);
  }

 private:
  bool fits(const Group& group, Ref loop, Ref fragment) {
    return std::all_of(group.uses.begin(), group.uses.end(), [&](const Use& use) {
      return use.stores ? tiles_.pool.writes_all(loop, use.axes, fragment)
                        : tiles_.pool.local(loop, use.axes, fragment).has_value();
    });
  }

  // Bytes that move because they are not in place.
  int64_t cost(Ref loop) {
    int64_t bytes = 0;
    for (const Group& group : groups_) {
      if (fits(group, loop, tiles_.at(group.tile))) continue;
      const Type& type = tiles_.kernel.type(group.tile);
      bytes += count(type.shape) * static_cast<int64_t>(size_of(type.dtype)) *
               (group.loads + group.stores);
    }
    return bytes;
  }

  Ref cheapest() {
    Ref best = nullptr;
    int64_t least = 0;
    for (Ref candidate : loop_candidates(tiles_, extents_, uses_)) {
      if (uses_.rereads_memory && !candidate->is_injective()) continue;
      const int64_t moved = cost(candidate);
      if (best && moved >= least) continue;
      best = candidate;
      least = moved;
      if (moved == 0) break;
    }
    return best ? best : tiles_.pool(one_owner(extents_, tiles_.warps));
  }

  void plan(Ref layout) {
    layout_ = layout;
    for (Group& group : groups_) decide(group);
  }

  void decide(Group& group) {
    const Ref stored = tiles_.at(group.tile);
    const Type& type = tiles_.kernel.type(group.tile);
    const int bytes = static_cast<int>(size_of(type.dtype));
    group.how = Group::How::InPlace;
    if (fits(group, layout_, stored)) return;
    group.layout = tiles_.pool(owned_by(*layout_, group.axes(), type.shape));
    const bool converts = fits(group, layout_, group.layout) &&
                          (!group.loads || tiles_.pool.in_registers(stored, group.layout, bytes)) &&
                          (!group.stores || tiles_.pool.in_registers(group.layout, stored, bytes));
    group.how = converts ? Group::How::Converted : Group::How::Shared;
  }

  // Does the loop write memory that it reads? Then two threads must not run one point.
  bool updates_memory() const {
    return uses_.rereads_memory ||
           std::any_of(groups_.begin(), groups_.end(), [](const Group& group) {
             return group.how == Group::How::Shared && group.loads && group.stores;
           });
  }

  // The tile that the loop uses instead.
  Value prepare(Builder& build, const Group& group) {
    if (group.how == Group::How::InPlace) return group.tile;
    const Type type = tiles_.kernel.type(group.tile);
    const bool converted = group.how == Group::How::Converted;
    Value other = converted ? tiles_.fragment(build, type.dtype, type.shape, *group.layout)
                            : tiles_.shared(build, type.dtype, type.shape);
    if (group.loads) {
      converted ? tiles_.move(build, group.tile, other) : tiles_.copy(build, group.tile, other);
    }
    for (const Use& use : group.uses) tiles_.kernel.op(use.op).operands[use.operand()] = other;
    return other;
  }

  void finish(Builder& build, const Group& group, Value other) {
    if (!group.stores || other == group.tile) return;
    group.how == Group::How::Converted ? tiles_.move(build, other, group.tile)
                                       : tiles_.copy(build, other, group.tile);
  }

  Tiles& tiles_;
  const OpId loop_;
  const Shape extents_;
  const LoopUses uses_;
  std::vector<Group> groups_;
  Ref layout_ = nullptr;
};

}  // namespace

LoopUses uses_of(const Kernel& kernel, const Op& parallel) {
  const Region& body = kernel.region(parallel.regions[0]);
  LoopUses uses;
  std::vector<Value> read, written;
  for (OpId id : body.ops) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Atomic) {
      for (auto* touched : {&read, &written}) touched->push_back(base_of(kernel, op.operands[1]));
    }
    if (op.code != OpCode::Load && op.code != OpCode::Store) continue;
    const bool stores = op.code == OpCode::Store;
    const Value storage = op.operands[stores ? 1 : 0];
    if (kernel.type(storage).space == Space::Fragment) {
      uses.fragments.push_back(
          {id, storage, axes_of(kernel, op, stores ? 2 : 1, body.args), stores});
    } else {
      (stores ? written : read).push_back(base_of(kernel, storage));
    }
  }
  uses.rereads_memory = std::any_of(read.begin(), read.end(), [&](Value base) {
    return std::find(written.begin(), written.end(), base) != written.end();
  });
  return uses;
}

std::vector<Ref> loop_candidates(Tiles& tiles, const Shape& extents, const LoopUses& uses) {
  std::vector<Ref> found;
  const auto add = [&](Layout layout) {
    const Ref ref = tiles.pool(std::move(layout));
    if (std::find(found.begin(), found.end(), ref) == found.end()) found.push_back(ref);
  };
  for (const bool stored : {true, false})
    for (const Use& use : uses.fragments) {
      const Ref fragment = use.stores == stored ? tiles.find(use.tile) : nullptr;
      if (!fragment) continue;
      if (auto layout = loop_over(*fragment, use.axes, extents)) add(*std::move(layout));
    }
  add(blocked(extents, tiles.warps, kScalars));
  return found;
}

void legalise_parallel(Tiles& tiles, Builder& build, OpId loop) {
  Loop(tiles, loop).legalise(build);
}

}  // namespace kiln::layouts
