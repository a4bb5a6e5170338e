// Which bits of the row swizzle a shared tile: those with which its accesses meet the fewest bank
// conflicts. The usual ones serve rows and what ldmatrix reads, and stay unless all that is done
// with the tile is known and others are better.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "ir/layout/access.h"
#include "ir/layout/fragments.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "passes/infer_layouts_impl.h"

namespace kiln::layouts {
namespace {

constexpr int64_t kVector = 16;  // bytes
constexpr int kPanel = 128;

using RowBits = std::array<int, 3>;
constexpr RowBits kOthers[] = {kSwizzledPairs, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}};

// How all threads go through a tile, in vectors of at most `most` elements along the last axis.
struct Passage {
  Layout walk;
  int64_t most = 1;
};

struct Uses {
  std::vector<Passage> passages;
  bool fixed = false;     // as it is: some are not known, or want it so
  bool rows_too = false;  // a gemm reads eight rows at once besides
};

class Swizzles {
 public:
  Swizzles(Tiles& tiles, RegionId body) : tiles_(tiles), kernel_(tiles.kernel) {
    walk(kernel_, body, [&](OpId id) { survey(id); });
  }

  void run() {
    for (const auto& [tile, uses] : uses_)
      if (may_change(tile, uses)) choose(tile, uses);
  }

 private:
  void survey(OpId id) {
    const Op& op = kernel_.op(id);
    switch (op.code) {
      case OpCode::Copy:
        for (size_t i : {0, 1})
          if (is_tile(op.operands[i])) add_copy(op.operands[i], op.operands[1 - i]);
        return;
      case OpCode::Parallel: return add_loop(op);
      case OpCode::Gemm:
        for (size_t i : {0, 1})
          if (is_tile(op.operands[i]))
            (op.word("instruction") == "fma" ? uses_[op.operands[i]].rows_too
                                             : uses_[op.operands[i]].fixed) = true;
        return;
      case OpCode::Alloc:
      case OpCode::Fill:
      case OpCode::Load:
      case OpCode::Store: return;  // those of loops are looked at with the loop
      default:
        for (Value operand : op.operands)
          if (operand && is_tile(operand)) uses_[operand].fixed = true;
    }
  }

  bool is_tile(Value value) const {
    return kernel_.def_as(value, OpCode::Alloc) && kernel_.type(value).space == Space::Shared &&
           kernel_.type(value).rank() >= 2;
  }
  int bytes_of(Value tile) const { return static_cast<int>(size_of(kernel_.type(tile).dtype)); }

  void add_copy(Value tile, Value other) {
    Uses& uses = uses_[tile];
    const Shape& shape = kernel_.type(tile).shape;
    const int64_t most = kVector / bytes_of(tile);
    if (!tiles_.is_fragment(other))
      uses.passages.push_back({blocked(shape, tiles_.warps, bytes_of(tile)), most});
    else if (kernel_.def_as(other, OpCode::Alloc) && kernel_.type(other).shape == shape)
      uses.passages.push_back({*tiles_.at(other), most});
    else
      uses.fixed = true;
  }

  void add_loop(const Op& loop) {
    const Region& body = kernel_.region(loop.regions[0]);
    for (OpId id : body.ops) {
      const Op& op = kernel_.op(id);
      if (op.code != OpCode::Load && op.code != OpCode::Store) continue;
      const size_t storage = op.code == OpCode::Load ? 0 : 1;
      const Value tile = op.operands[storage];
      if (!is_tile(tile)) continue;
      Axes axes;
      for (size_t i = storage + 1; i < op.operands.size(); ++i) {
        const auto found = std::find(body.args.begin(), body.args.end(), op.operands[i]);
        if (found == body.args.end()) break;
        axes.push_back(static_cast<int>(found - body.args.begin()));
      }
      const Shape& shape = kernel_.type(tile).shape;
      std::set<int> different(axes.begin(), axes.end());
      if (axes.size() < shape.size() || different.size() < axes.size())
        uses_[tile].fixed = true;
      else
        uses_[tile].passages.push_back({owned_by(*layout_of(loop), axes, shape), 1});
    }
  }

  bool may_change(Value tile, const Uses& uses) const {
    const auto& wished = tiles_.wished;
    return !uses.fixed &&
           std::find(wished.begin(), wished.end(), kernel_.def(tile)) == wished.end() &&
           panel_bytes(kernel_.type(tile).shape.back(), bytes_of(tile)) == kPanel &&
           *tiles_.at(tile) == swizzled(kernel_.type(tile).shape, bytes_of(tile), kPanel);
  }

  void choose(Value tile, const Uses& uses) {
    const auto cost = [&](const Layout& layout) {
      int64_t sum = 0;
      for (const Passage& passage : uses.passages) {
        const int last = layout.rank() - 1;
        sum += access_wavefronts(passage.walk, layout, last,
                                 access_width(passage.walk, layout, last, passage.most),
                                 bytes_of(tile));
      }
      return sum;
    };
    Layout best = *tiles_.at(tile);
    const int64_t room = best.extent(Resource::Offset);
    int64_t least = cost(best);
    for (const RowBits& bits : kOthers) {
      if (uses.rows_too && bits != kSwizzledPairs) continue;
      Layout other = swizzled_by(kernel_.type(tile).shape, bytes_of(tile), bits);
      if (other.extent(Resource::Offset) > room) continue;
      const int64_t sum = cost(other);
      if (sum >= least) continue;
      least = sum;
      best = std::move(other);
    }
    if (best != *tiles_.at(tile)) tiles_.give(tile, best);
  }

  Tiles& tiles_;
  Kernel& kernel_;
  std::map<Value, Uses> uses_;  // by tile
};

}  // namespace

void choose_swizzles(Tiles& tiles, RegionId body) {
  Swizzles(tiles, body).run();
}

}  // namespace kiln::layouts
