// Sort, cumsum and arg_reduce: one line along the axis after the other. cumsum adds floats in
// double, from the first to the last, and rounds each sum once.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "ir/interp_impl.h"

namespace kiln::interp {
namespace {

Scalar zero(DType dtype) {
  return convert(Scalar::of_int(I32, 0), dtype);
}

// The elements of a tile, [outer][axis][inner], as a line for every outer and inner.
class Lines {
 public:
  Lines(const Op& op, const View& view, std::vector<Scalar> cells) : cells_(std::move(cells)) {
    const auto dim = static_cast<size_t>(op.integer("dim"));
    extent_ = view.extents[dim];
    for (size_t axis = dim + 1; axis < view.extents.size(); ++axis) inner_ *= view.extents[axis];
  }
  static Lines of(const Op& op, const View& view) {
    return Lines(op, view, gather(op, view, zero(view.base->type.dtype)));
  }
  static Lines to_fill(const Op& op, const View& view) {
    return Lines(op, view, std::vector<Scalar>(static_cast<size_t>(count(view.extents))));
  }

  int64_t extent() const { return extent_; }
  int64_t number() const { return static_cast<int64_t>(cells_.size()) / extent_; }
  Scalar& at(int64_t line, int64_t position) {
    return cells_[static_cast<size_t>((line / inner_ * extent_ + position) * inner_ +
                                      line % inner_)];
  }
  void convert_to(DType dtype) {
    for (Scalar& cell : cells_) cell = convert(cell, dtype);
  }
  void write(const View& view) const { scatter(view, cells_); }

 private:
  int64_t extent_, inner_ = 1;
  std::vector<Scalar> cells_;
};

bool is_nan(const Scalar& value) {
  return is_float(value.dtype) && std::isnan(value.f);
}

bool above(const Scalar& a, const Scalar& b) {
  const Scalar in[] = {a, b};
  return apply(OpCode::Compare, Bool, Comparison::Gt, in).i != 0;
}

}  // namespace

void run_arg_reduce(const Interpreter& at, const Op& op) {
  const bool largest = op.word("kind") == "max";
  Lines source = Lines::of(op, at.view(op.operands[0]));
  std::vector<Scalar> found;  // lines are numbered as the destination's elements are
  for (int64_t line = 0; line < source.number(); ++line) {
    int64_t best = -1;
    for (int64_t i = 0; i < source.extent(); ++i) {
      const Scalar& element = source.at(line, i);
      if (is_nan(element)) continue;
      const bool better = best < 0 || (largest ? above(element, source.at(line, best))
                                               : above(source.at(line, best), element));
      if (better) best = i;
    }
    found.push_back(Scalar::of_int(I32, best));
  }
  scatter(at.view(op.operands[1]), found);
}

void run_cumsum(const Interpreter& at, const Op& op) {
  const DType dtype = at.dtype(op.operands[0]), work_type = is_float(dtype) ? F64 : dtype;
  Lines cells = Lines::of(op, at.view(op.operands[0]));
  cells.convert_to(work_type);
  const int64_t last = cells.extent() - 1;
  auto place = [&](int64_t step) { return op.flag("reverse") ? last - step : step; };
  for (int64_t line = 0; line < cells.number(); ++line)
    for (int64_t step = 1; step <= last; ++step) {
      Scalar& sum = cells.at(line, place(step));
      const Scalar in[] = {cells.at(line, place(step - 1)), sum};
      sum = apply(OpCode::Add, work_type, Comparison::Eq, in);
    }
  cells.convert_to(at.dtype(op.operands[1]));
  cells.write(at.view(op.operands[1]));
}

void run_sort(const Interpreter& at, const Op& op) {
  Lines keys = Lines::of(op, at.view(op.operands[0]));
  Lines order = Lines::to_fill(op, at.view(op.operands[1])), sorted = order;
  std::optional<Lines> values;
  if (op.operand(3)) values = Lines::of(op, at.view(op.operands[3]));
  std::vector<int64_t> positions(static_cast<size_t>(keys.extent()));
  for (int64_t line = 0; line < keys.number(); ++line) {
    std::iota(positions.begin(), positions.end(), 0);
    std::stable_sort(positions.begin(), positions.end(), [&](int64_t a, int64_t b) {
      const Scalar &x = keys.at(line, a), &y = keys.at(line, b);
      return is_nan(x) || is_nan(y) ? is_nan(y) && !is_nan(x) : above(x, y);
    });
    for (int64_t i = 0; i < order.extent(); ++i) {
      const int64_t position = positions[static_cast<size_t>(i)];
      order.at(line, i) = values ? values->at(line, position) : Scalar::of_int(I32, position);
      sorted.at(line, i) = keys.at(line, position);
    }
  }
  order.write(at.view(op.operands[1]));
  if (op.operand(2)) sorted.write(at.view(op.operands[2]));
}

}  // namespace kiln::interp
