// What infer_layouts leaves: the law that a GPU code generator rests on, checked element by element
// and independently of how the pass found its layouts.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ir/layout/conversion.h"
#include "ir/layout/fragments.h"
#include "ir/layout/locality.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/gemm_plan.h"

namespace kiln::testing {

class LayoutLaw {
 public:
  explicit LayoutLaw(const Kernel& kernel) : kernel_(kernel) {}

  // The rules that ops break, one a line; empty if none is broken.
  std::string broken() {
    for (OpId id : kernel_.region(kernel_.body).ops) {
      const Op& launch = kernel_.op(id);
      if (launch.code != OpCode::Launch) continue;
      warps_ = launch.integer("warps");
      walk(kernel_, launch.regions[0], [&](OpId inner) { check(inner); });
    }
    return report_;
  }

 private:
  void require(bool holds, const Op& op, const std::string& rule) {
    if (!holds) report_ += fmt::format("line {}: {}: {}\n", op.loc.line, info(op.code).name, rule);
  }
  bool is_fragment(Value value) const { return kernel_.type(value).space == Space::Fragment; }
  bool is_memory(Value value) const { return !is_fragment(value); }
  bool has(Value tile) const { return tile_layout(kernel_, tile).has_value(); }
  Layout at(Value tile) const { return *tile_layout(kernel_, tile); }

  void check(OpId id) {
    const Op& op = kernel_.op(id);
    const OpInfo& row = info(op.code);
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Value operand = op.operands[i];
      if (!operand || row.operand(i).effect == Effect::None || is_memory(operand)) continue;
      require(kernel_.type(operand).kind == Kind::Tile, op, "names a slice of a fragment");
      if (!has(operand)) return require(false, op, "uses a fragment without a layout");
    }
    switch (op.code) {
      case OpCode::Alloc: return check_alloc(op);
      case OpCode::Parallel: return check_parallel(op);
      case OpCode::Gemm: return check_gemm(op);
      case OpCode::Reduce: return check_reduce(op);
      case OpCode::Copy: return check_copy(op);
      case OpCode::Convert:
        return require(plan_conversion(at(op.operands[0]), at(op.operands[1]), bytes(op)).kind !=
                           Conversion::Kind::Shared,
                       op, "goes through shared memory");
      default: return;
    }
  }

  int bytes(const Op& op) const {
    return static_cast<int>(size_of(kernel_.type(op.operands[0]).dtype));
  }

  void check_alloc(const Op& op) {
    const auto layout = layout_of(op);
    if (!layout) return require(false, op, "has no layout");
    const Type& type = kernel_.type(op.result);
    require(layout->shape() == type.shape, op, "its layout is of another shape");
    if (type.space == Space::Shared) {
      require(layout->is_injective() && layout->registers() == 1 && layout->warps() == 1 &&
                  layout->extent(Resource::Lane) == 1,
              op, "a shared tile's elements have one offset each");
      return;
    }
    check_threads(op, *layout);
    if (type.shape.empty())
      require(*layout == replicated({}, warps_), op, "a variable is every thread's");
  }

  void check_threads(const Op& op, const Layout& layout) {
    require(layout.extent(Resource::Lane) == 32 && layout.warps() == warps_ &&
                layout.extent(Resource::Offset) == 1,
            op, "its layout is of other threads");
  }

  // ---- parallel ----

  void check_parallel(const Op& loop) {
    const auto layout = layout_of(loop);
    if (!layout) return require(false, loop, "has no layout");
    require(layout->shape() == loop.ints("extents"), loop, "its layout is of another shape");
    check_threads(loop, *layout);
    std::set<uint32_t> read, written;
    for (OpId id : kernel_.region(loop.regions[0]).ops) {
      const Op& op = kernel_.op(id);
      if (op.code != OpCode::Load && op.code != OpCode::Store) continue;
      const bool stores = op.code == OpCode::Store;
      const Value tile = op.operands[stores];
      if (is_memory(tile)) {
        (stores ? written : read).insert(base_of(kernel_, tile).id);
      } else if (has(tile)) {
        check_access(loop, *layout, op, tile, stores);
      }
    }
    for (const uint32_t base : read)
      require(!written.contains(base) || layout->is_injective(), loop,
              "updates memory at points that several threads run");
  }

  std::vector<int> axes_of(const Op& loop, const Op& access, size_t first) const {
    const std::vector<Value>& own = kernel_.region(loop.regions[0]).args;
    std::vector<int> axes;
    for (size_t i = first; i < access.operands.size(); ++i) {
      const auto it = std::find(own.begin(), own.end(), access.operands[i]);
      axes.push_back(it == own.end() ? kNoAxis : static_cast<int>(it - own.begin()));
    }
    return axes;
  }

  void check_access(const Op& loop, const Layout& layout, const Op& access, Value tile,
                    bool stores) {
    const Layout fragment = at(tile);
    const std::vector<int> axes = axes_of(loop, access, stores ? 2 : 1);
    const auto registers = local_registers(layout, axes, fragment);
    require(registers.has_value(), access, "threads lack elements of the fragment");
    if (!registers || !stores) return;
    std::set<Owner> stored;
    for_each_place(layout, [&](const Owner& place) {
      if (!layout.contains(layout.coordinate(place))) return;
      const int reg = (*registers)[static_cast<size_t>(place.reg)];
      stored.insert({.reg = reg, .lane = place.lane, .warp = place.warp});
    });
    bool all = true;
    for_each_place(fragment, [&](const Owner& place) {
      all &= stored.contains(place) || !fragment.contains(fragment.coordinate(place));
    });
    require(all, access, "some copies of elements are not stored to");
  }

  template <class Visit>
  static void for_each_place(const Layout& layout, Visit&& visit) {
    Owner at;
    for (at.warp = 0; at.warp < layout.warps(); ++at.warp)
      for (at.lane = 0; at.lane < layout.extent(Resource::Lane); ++at.lane)
        for (at.reg = 0; at.reg < layout.registers(); ++at.reg) visit(at);
  }

  // ---- whole tiles ----

  void check_gemm(const Op& op) {
    const GemmPlan plan = gemm_plan(kernel_, op, warps_);
    require(at(op.operands[2]) == plan.c, op, "c is in another layout than its plan's");
    for (size_t i = 0; i < 2; ++i) {
      if (is_memory(op.operands[i])) continue;
      if (!plan.mma) return require(false, op, "fma takes no fragments");
      require(at(op.operands[i]) == (i ? plan.b : plan.a), op,
              fmt::format("operand {} is in another layout than its plan's", i));
    }
  }

  void check_reduce(const Op& op) {
    const Value source = op.operands[0], result = op.operands[1], scratch = op.operand(2);
    if (is_memory(source) || is_memory(result))
      return require(false, op, "reduces fragments to fragments only");
    const int dim = static_cast<int>(op.integer("dim"));
    const auto plan = plan_reduction(at(source), dim);
    if (!plan) return require(false, op, "the source cannot be reduced in its layout");
    const bool keeps = kernel_.type(source).rank() == kernel_.type(result).rank();
    require(at(result) == (keeps ? insert_axis(plan->result, dim) : plan->result), op,
            "the result is in another layout than its plan's");
    require(static_cast<bool>(scratch) == (plan->parts > 1), op, "scratch is for several parts");
    if (!scratch) return;
    const Type& type = kernel_.type(result);
    Shape shape = type.shape;
    shape.insert(shape.begin(), plan->parts);
    const bool wide = type.dtype == F64 || kernel_.type(source).dtype == F64;
    const DType dtype = !is_float(type.dtype) ? type.dtype : wide ? F64 : F32;
    require(kernel_.type(scratch) == Type::tile(Space::Shared, dtype, shape) &&
                at(scratch) == row_major(shape),
            op, "scratch is no row-major tile of all parts");
  }

  // Between fragments: the same registers of the same threads.
  void check_copy(const Op& op) {
    if (is_memory(op.operands[0]) || is_memory(op.operands[1])) return;
    const Layout from = at(op.operands[0]), to = at(op.operands[1]);
    bool same = from.registers() == to.registers();
    if (same)
      for_each_place(to, [&](const Owner& place) {
        const Coordinate source = from.coordinate(place), target = to.coordinate(place);
        same &= !to.contains(target) ||
                (from.contains(source) &&
                 without_units(source, from.shape()) == without_units(target, to.shape()));
      });
    require(same, op, "the two fragments' registers hold different elements");
  }

  static Coordinate without_units(const Coordinate& coordinate, const Coordinate& shape) {
    Coordinate some;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] != 1) some.push_back(coordinate[axis]);
    return some;
  }

  const Kernel& kernel_;
  int64_t warps_ = 0;
  std::string report_;
};

inline std::string broken_layout_law(const Kernel& kernel) {
  return LayoutLaw(kernel).broken();
}

}  // namespace kiln::testing
