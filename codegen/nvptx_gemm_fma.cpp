// gemm in plain arithmetic, of any shape and precision: a loop over k; a thread loads the rows of a
// and columns of b that its elements of c need, a few steps of k at once, and every element sees k
// in ascending order, with one rounding a step.
#include <algorithm>

#include "codegen/nvptx_gemm_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "codegen/nvptx_shared_impl.h"
#include "ir/error.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

constexpr int64_t kMostSteps = 4;  // of k in a round of the loop

// a or b: the thread's rows or columns, its `lines`.
class FmaOperand {
 public:
  // `lines` is a layout of one axis: that of the operand's axis `line_axis`.
  FmaOperand(Emitter& emitter, Value storage, Layout lines, int line_axis, int k_axis, DType to)
      : e(emitter),
        b(emitter.b),
        place_(e.place(storage)),
        lines_(std::move(lines)),
        line_axis_(line_axis),
        k_axis_(k_axis),
        to_(to) {}

  // [step][line] of `steps` steps from k on.
  std::vector<Values> load(Val k, int64_t steps) {
    std::vector<Values> loaded(static_cast<size_t>(steps),
                               Values(static_cast<size_t>(lines_.registers())));
    const Place at = part_of(b, place_, k_axis_, k, steps);
    if (!at.surely_inside())
      by_elements(at, loaded);
    else if (steps > 1 && view_vector(at, k_axis_) >= steps)
      along_k(at, loaded);
    else
      along_lines(at, loaded);
    for (Values& step : loaded)
      for (Val& value : step) value = cast(b, value, place_.dtype, to_);
    return loaded;
  }

 private:
  // A layout over the operand's view: the lines, and `steps` steps of k in registers after them.
  Layout walk(int64_t steps) const {
    Layout layout = insert_axis(lines_, k_axis_ > line_axis_ ? 1 : 0);
    while (layout.rank() < static_cast<int>(place_.axes.size())) layout = insert_axis(layout, 0);
    return layout.repeat(Resource::Reg, steps, k_axis_).crop(cropped(layout.shape(), steps));
  }
  Coordinate cropped(Coordinate shape, int64_t steps) const {
    shape[static_cast<size_t>(k_axis_)] = steps;
    return shape;
  }

  Values read(Val address, int64_t count) {
    llvm::Type* type = b.memory_type(place_.dtype);
    const llvm::Align align(static_cast<uint64_t>(count) * size_of(place_.dtype));
    if (count == 1) return {b.ir.CreateAlignedLoad(type, address, align)};
    Val vector = b.ir.CreateAlignedLoad(
        llvm::FixedVectorType::get(type, static_cast<unsigned>(count)), address, align);
    Values elements;
    for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i)
      elements.push_back(b.ir.CreateExtractElement(vector, i));
    return elements;
  }

  void along_k(const Place& at, std::vector<Values>& loaded) {
    const auto steps = static_cast<int64_t>(loaded.size());
    SharedAddresses addresses(e, at, walk(1), k_axis_, steps);
    for (int64_t line = 0; line < lines_.registers(); ++line) {
      const Values values = read(addresses(line), steps);
      for (size_t step = 0; step < values.size(); ++step)
        loaded[step][static_cast<size_t>(line)] = values[step];
    }
  }

  void along_lines(const Place& at, std::vector<Values>& loaded) {
    const auto steps = static_cast<int64_t>(loaded.size());
    int64_t width = std::min({view_vector(at, line_axis_), vector_width(lines_, 0),
                              int64_t{16} / static_cast<int64_t>(size_of(at.dtype))});
    while (at.axes[static_cast<size_t>(line_axis_)].size % width != 0) width /= 2;
    SharedAddresses addresses(e, at, in_vectors(walk(steps), line_axis_, width), line_axis_, width);
    const int64_t lines = lines_.registers();
    for (int64_t step = 0; step < steps; ++step)
      for (int64_t line = 0; line < lines; line += width) {
        const Values values = read(addresses((step * lines + line) / width), width);
        std::copy(values.begin(), values.end(), loaded[static_cast<size_t>(step)].begin() + line);
      }
  }

  // A view that may stick out of its tile: zeros there.
  void by_elements(const Place& at, std::vector<Values>& loaded) {
    const auto steps = static_cast<int64_t>(loaded.size());
    const Layout all = walk(steps);
    for (int64_t reg = 0; reg < all.registers(); ++reg) {
      const Values c = e.coordinate(all, reg);
      loaded[static_cast<size_t>(reg / lines_.registers())]
            [static_cast<size_t>(reg % lines_.registers())] =
                e.read(at, c, b.both(e.in_tile(all, c), e.inside(at, c)));
    }
  }

  Emitter& e;
  Builder& b;
  Place place_;
  Layout lines_;
  int line_axis_, k_axis_;
  DType to_;
};

Val multiply_add(Builder& b, DType dtype, Val x, Val y, Val sum) {
  if (!is_float(dtype)) return b.ir.CreateAdd(b.ir.CreateMul(x, y), sum);
  return b.call(llvm::Intrinsic::fma, {x, y, sum}, {b.value_type(dtype)});
}

// For each register of c, the register of `lines` that has its coordinate.
std::vector<size_t> lines_of(const Layout& c, size_t axis, const Layout& lines) {
  std::vector<size_t> result;
  for (int64_t reg = 0; reg < c.registers(); ++reg)
    result.push_back(static_cast<size_t>(lines.owner({c.coordinate({.reg = reg})[axis]}).reg));
  return result;
}

}  // namespace

Values fma_gemm(Emitter& e, const Op& op, const GemmPlan& plan, Values c) {
  Builder& b = e.b;
  const auto [m, n, depth] = plan.shape;
  const Layout tile = mma_accumulator(m, n, plan.warps);
  const Layout rows = reduce_axis(tile, 1), columns = reduce_axis(tile, 0);
  const std::vector<size_t> row_of = lines_of(tile, 0, rows),
                            column_of = lines_of(tile, 1, columns);

  const DType dtype = e.kernel().type(op.operands[2]).dtype;
  const auto operand = [&](size_t index, const Layout& lines, bool k_is_last) {
    const int last = e.kernel().type(op.operands[index]).rank() - 1;
    return FmaOperand(e, op.operands[index], lines, k_is_last ? last - 1 : last,
                      k_is_last ? last : last - 1, dtype);
  };
  FmaOperand from_a = operand(0, rows, !op.flag("transpose_a"));
  FmaOperand from_b = operand(1, columns, op.flag("transpose_b"));
  const auto advance = [&](Val k, int64_t steps, Values sums) {
    const std::vector<Values> x = from_a.load(k, steps), y = from_b.load(k, steps);
    for (size_t step = 0; step < x.size(); ++step)
      for (size_t reg = 0; reg < sums.size(); ++reg)
        sums[reg] =
            multiply_add(b, dtype, x[step][row_of[reg]], y[step][column_of[reg]], sums[reg]);
    return sums;
  };

  const auto bytes = static_cast<int64_t>(size_of(e.kernel().type(op.operands[0]).dtype));
  const int64_t steps = std::min(kMostSteps, 16 / bytes), rounds = depth / steps;
  if (rounds > 0)
    c = b.loop(b.i32(0), b.i32(rounds), b.i32(1), std::move(c), [&](Val round, const Values& sums) {
      return advance(b.ir.CreateMul(round, b.i32(steps)), steps, sums);
    });
  for (int64_t k = rounds * steps; k < depth; ++k) c = advance(b.i32(k), 1, std::move(c));
  return c;
}

}  // namespace kiln::nvptx
