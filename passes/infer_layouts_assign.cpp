// Which layout each tile is stored in. Gemms decide first; their fragments' layouts spread over
// loops, reductions and copies to what is computed from them and to what they are computed from;
// what then has none starts as plain vectors, and spreads as well.
#include <algorithm>
#include <tuple>

#include "ir/layout/fragments.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "passes/gemm_plan.h"
#include "passes/infer_layouts_impl.h"

namespace kiln::layouts {
namespace {

class Assignment {
 public:
  Assignment(Tiles& tiles, RegionId body)
      : tiles_(tiles), kernel_(tiles.kernel), body_(body), reshaped_(reshaped_tiles(tiles.kernel)) {
    walk(kernel_, body, [&](OpId id) { collect(id); });
  }

  void run() {
    for (OpId id : ops_)
      if (kernel_.op(id).code == OpCode::Gemm) start_gemm(id, {2});
    for (OpId id : ops_)
      if (kernel_.op(id).code == OpCode::Gemm) start_gemm(id, {0, 1});
    do {
      while (spread()) {
      }
    } while (start_one());
  }

 private:
  void collect(OpId id) {
    const Op& op = kernel_.op(id);
    switch (op.code) {
      case OpCode::Alloc: return start_alloc(id);
      case OpCode::Parallel: loops_.emplace(id.id, uses_of(kernel_, op)); break;
      case OpCode::Gemm:
      case OpCode::Reduce:
      case OpCode::Copy:
      case OpCode::Convert: break;
      default: return;
    }
    ops_.push_back(id);
  }

  int bytes_of(Value tile) const { return static_cast<int>(size_of(kernel_.type(tile).dtype)); }
  bool lacks(Value tile) const { return tiles_.is_fragment(tile) && !tiles_.find(tile); }

  // A layout that is given already stays, if the launch can keep the tile so.
  void start_alloc(OpId id) {
    Op& op = kernel_.op(id);
    const Value tile = op.result;
    const Shape shape = kernel_.type(tile).shape;
    std::optional<Layout> given = layout_of(op);
    if (reshaped_.contains(tile.id)) {
      if (given && *given != row_major(shape))
        decline(op, "a tile that is reshaped has its rows one after another");
      return tiles_.give(tile, row_major(shape));
    }
    if (given) {
      if (const std::string why = why_not_wished(tiles_, op, *given, body_); !why.empty()) {
        decline(op, why);
        given.reset();
      }
    }
    if (given) {
      tiles_.give(tile, *given);
      if (!tiles_.is_fragment(tile)) tiles_.wished.push_back(id);
    } else if (!tiles_.is_fragment(tile)) {
      tiles_.give(tile, shared_tile(shape, bytes_of(tile)));
    } else if (shape.empty()) {
      tiles_.give(tile, replicated({}, tiles_.warps));
    } else {
      fragments_.push_back(tile);
    }
  }

  void start_gemm(OpId id, std::initializer_list<size_t> operands) {
    const Op& gemm = kernel_.op(id);
    const GemmPlan plan = gemm_plan(kernel_, gemm, tiles_.warps);
    const Layout* layouts[] = {&plan.a, &plan.b, &plan.c};
    for (size_t operand : operands)
      if (lacks(gemm.operands[operand]) && (plan.mma || operand == 2))
        tiles_.give(gemm.operands[operand], *layouts[operand]);
  }

  // One round over the ops. True if a fragment got a layout.
  bool spread() {
    bool changed = false;
    for (OpId id : ops_) {
      const Op& op = kernel_.op(id);
      switch (op.code) {
        case OpCode::Parallel: changed |= spread_loop(id); break;
        case OpCode::Reduce: changed |= spread_reduce(op); break;
        case OpCode::Copy:
        case OpCode::Convert:
          changed |= spread_copy(op.operands[0], op.operands[1]);
          changed |= spread_copy(op.operands[1], op.operands[0]);
          break;
        default: break;
      }
    }
    return changed;
  }

  // A loop runs where one of its fragments is, and the others join it there.
  bool spread_loop(OpId id) {
    const LoopUses& uses = loops_.at(id.id);
    if (std::none_of(uses.fragments.begin(), uses.fragments.end(),
                     [&](const Use& use) { return lacks(use.tile); }))
      return false;
    const std::vector<Ref> found = loop_candidates(tiles_, kernel_.op(id).ints("extents"), uses);
    if (found.size() < 2) return false;  // blocked() alone
    bool changed = false;
    for (const Use& use : uses.fragments) {
      if (!lacks(use.tile)) continue;
      tiles_.give(use.tile, owned_by(*found.front(), use.axes, kernel_.type(use.tile).shape));
      changed = true;
    }
    return changed;
  }

  bool spread_reduce(const Op& reduce) {
    const Value source = reduce.operands[0], result = reduce.operands[1];
    if (!lacks(result) || !tiles_.is_fragment(source) || lacks(source)) return false;
    const bool keeps = kernel_.type(source).rank() == kernel_.type(result).rank();
    const auto layout = reduced(*tiles_.at(source), reduce.integer("dim"), keeps);
    if (layout) tiles_.give(result, *layout);
    return layout.has_value();
  }

  bool spread_copy(Value from, Value to) {
    if (!lacks(to) || !tiles_.is_fragment(from) || lacks(from)) return false;
    const auto layout = reshaped(*tiles_.at(from), kernel_.type(to).shape);
    if (layout) tiles_.give(to, *layout);
    return layout.has_value();
  }

  // Gives one more fragment a layout of its own: one that is reduced before others, then the one
  // with the most axes, then the largest. False if all have one.
  bool start_one() {
    std::erase_if(fragments_, [&](Value tile) { return !lacks(tile); });
    if (fragments_.empty()) return false;
    const auto rank = [&](Value tile) {
      const Shape& shape = kernel_.type(tile).shape;
      return std::tuple(reduced_axis(tile) != kNoAxis, shape.size(), count(shape));
    };
    const Value tile = *std::max_element(fragments_.begin(), fragments_.end(),
                                         [&](Value a, Value b) { return rank(a) < rank(b); });
    tiles_.give(tile, first_layout(tile));
    return true;
  }

  Layout first_layout(Value tile) {
    const Shape shape = kernel_.type(tile).shape;
    if (const int axis = reduced_axis(tile); axis != kNoAxis)
      return whole_lines(shape, axis, tiles_.warps, bytes_of(tile));
    // Part of a loop in which no fragment has all axes: the loop's own.
    for (OpId id : ops_) {
      const auto loop = loops_.find(id.id);
      if (loop == loops_.end()) continue;
      for (const Use& use : loop->second.fragments) {
        const Shape& extents = kernel_.op(id).ints("extents");
        if (use.tile != tile || without_units(extents).size() <= without_units(shape).size())
          continue;
        return owned_by(*loop_candidates(tiles_, extents, loop->second).front(), use.axes, shape);
      }
    }
    return blocked(shape, tiles_.warps, bytes_of(tile));
  }

  int reduced_axis(Value tile) const {
    for (OpId id : ops_) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Reduce && op.operands[0] == tile)
        return static_cast<int>(op.integer("dim"));
    }
    return kNoAxis;
  }

  Tiles& tiles_;
  Kernel& kernel_;
  const RegionId body_;
  const std::unordered_set<uint32_t> reshaped_;
  std::vector<OpId> ops_;                         // that relate tiles, in program order
  std::unordered_map<uint32_t, LoopUses> loops_;  // by op id
  std::vector<Value> fragments_;                  // that had no layout
};

}  // namespace

void assign_layouts(Tiles& tiles, RegionId body) {
  Assignment(tiles, body).run();
}

}  // namespace kiln::layouts
