// Tiles are placed from the largest to the smallest, each at the lowest place that no tile alive
// with it takes: small ones then fill what is left between.
#include "passes/memory_plan_impl.h"

#include <algorithm>
#include <unordered_map>

#include "ir/error.h"
#include "ir/layout/formula.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kChunk = 16;            // bytes that the widest access moves
constexpr int64_t kWidestSwizzle = 1024;  // after which every swizzle repeats

Layout layout_of_shared(const Kernel& kernel, const Op& alloc) {
  if (auto layout = layout_of(alloc))
    return alloc.code == OpCode::Channel
               ? stacked(*layout, alloc.integer("slots"), chunk_of(kernel.type(alloc.result).dtype))
               : *layout;
  throw UserError(alloc.loc, "the shared tile has no layout", "run infer_layouts first");
}

// A swizzle holds for absolute addresses, so its tile starts where the pattern does.
int64_t alignment_of(const Layout& layout, int bytes) {
  if (owner_formula(layout, Resource::Offset).is_sum()) return kChunk;
  for (int panel : {32, 64, 128})
    if (layout.rank() >= 2 && layout == swizzled(layout.shape(), bytes, panel))
      return swizzle_alignment(panel);
  return kWidestSwizzle;
}

class Lifetimes {
 public:
  explicit Lifetimes(const Kernel& kernel) : kernel_(kernel) {}

  std::vector<SharedTile> of(RegionId region) {
    survey(region);
    for (auto& [tile, user] : last_users_) tiles_[tile].last = ends_.at(user);
    return std::move(tiles_);
  }

 private:
  struct Open {
    RegionId region;
    OpId op;  // that is being visited in it
    int64_t position;
  };

  void survey(RegionId region) {
    open_.push_back({region, {}, 0});
    for (OpId id : kernel_.region(region).ops) {
      open_.back().op = id;
      open_.back().position = ++position_;
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Alloc || op.code == OpCode::Channel) add(id);
      for (const Access& access : accesses(kernel_, op)) use(access.base);
      for (RegionId inner : op.regions) survey(inner);
      ends_[id.id] = position_;
    }
    open_.pop_back();
  }

  void add(OpId alloc) {
    const Op& op = kernel_.op(alloc);
    const Type& type = kernel_.type(op.result);
    if (op.code == OpCode::Alloc && type.space != Space::Shared) return;
    const Layout layout = layout_of_shared(kernel_, op);
    const int bytes = static_cast<int>(size_of(type.dtype));
    SharedTile tile{alloc, layout.extent(Resource::Offset) * bytes, alignment_of(layout, bytes)};
    tile.first = tile.last = position_;
    index_[op.result.id] = {tiles_.size(), open_.size() - 1};
    tiles_.push_back(tile);
  }

  void use(Value base) {
    if (const Op* channel = channel_of(kernel_, base)) base = channel->result;
    auto found = index_.find(base.id);
    if (found == index_.end()) return;
    const auto [tile, level] = found->second;
    const Open& user = open_[level];
    if (!last_users_.contains(tile)) tiles_[tile].first = user.position;
    last_users_[tile] = user.op.id;
  }

  const Kernel& kernel_;
  std::vector<SharedTile> tiles_;
  std::vector<Open> open_;  // from the launch's region inwards
  int64_t position_ = 0;
  std::unordered_map<uint32_t, int64_t> ends_;  // by op: its last position
  // By tile's value: its number, and the level of its region in open_.
  std::unordered_map<uint32_t, std::pair<size_t, size_t>> index_;
  std::unordered_map<size_t, uint32_t> last_users_;  // by tile: an op of its region
};

// The lowest place at which the tile does not overlap any of `taken`, which are sorted by offset.
int64_t lowest_place(const SharedTile& tile, const std::vector<const SharedTile*>& taken) {
  int64_t place = 0;
  for (const SharedTile* other : taken) {
    if (place + tile.bytes <= other->offset) break;
    const int64_t after = other->offset + other->bytes;
    if (after > place) place = (after + tile.alignment - 1) / tile.alignment * tile.alignment;
  }
  return place;
}

}  // namespace

int64_t chunk_of(DType dtype) {
  return kChunk / static_cast<int64_t>(size_of(dtype));
}

int64_t shared_bytes(const Kernel& kernel, const Op& alloc) {
  return layout_of_shared(kernel, alloc).extent(Resource::Offset) *
         static_cast<int64_t>(size_of(kernel.type(alloc.result).dtype));
}

SharedPlan shared_plan(const Kernel& kernel, OpId launch) {
  SharedPlan plan{Lifetimes(kernel).of(kernel.op(launch).regions[0])};
  std::vector<SharedTile*> by_size;
  for (SharedTile& tile : plan.tiles) by_size.push_back(&tile);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const SharedTile* a, const SharedTile* b) { return a->bytes > b->bytes; });
  std::vector<const SharedTile*> placed;  // by offset
  for (SharedTile* tile : by_size) {
    std::vector<const SharedTile*> taken;
    std::copy_if(placed.begin(), placed.end(), std::back_inserter(taken),
                 [&](const SharedTile* other) { return tile->alive_with(*other); });
    tile->offset = lowest_place(*tile, taken);
    plan.bytes = std::max(plan.bytes, tile->offset + tile->bytes);
    auto at = std::upper_bound(
        placed.begin(), placed.end(), tile,
        [](const SharedTile* a, const SharedTile* b) { return a->offset < b->offset; });
    placed.insert(at, tile);
  }
  return plan;
}

}  // namespace kiln
