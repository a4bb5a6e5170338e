#include "passes/selected_row.h"

#include <algorithm>

namespace kiln {
namespace {

// (min(end, extent) − first + step − 1) / step, and 0 where `first` is negative.
Value extent_of_every(Builder& build, const Op& every) {
  const Value first = every.operands[1], zero = build.constant(I32, 0);
  const int64_t step = every.integer("step");
  Value end =
      build.binary(OpCode::Min, every.operands[2],
                   extent_of(build, every.operands[0], static_cast<size_t>(every.integer("axis"))));
  Value rest = build.binary(OpCode::Sub, end, first);
  Value steps =
      build.binary(OpCode::FloorDiv, build.binary(OpCode::Sub, rest, build.constant(I32, 1)),
                   build.constant(I32, step));
  Value any =
      build.binary(OpCode::And, build.compare("ge", first, zero), build.compare("lt", first, end));
  return build.select(any, build.binary(OpCode::Add, steps, build.constant(I32, 1)), zero);
}

}  // namespace

Value extent_of(Builder& build, Value storage, size_t axis) {
  const Kernel& kernel = build.kernel();
  const Shape& shape = kernel.type(storage).shape;
  if (shape[axis] != kDynamic) return build.constant(I32, shape[axis]);
  const Op def = kernel.op(kernel.def(storage));
  if (def.code == OpCode::Every)
    return static_cast<size_t>(def.integer("axis")) == axis
               ? extent_of_every(build, def)
               : extent_of(build, def.operands[0], axis);
  if (def.code != OpCode::Slice) {  // a tensor: its operands fill the `?` in order
    auto before = std::count(shape.begin(), shape.begin() + static_cast<int64_t>(axis), kDynamic);
    return def.operands[static_cast<size_t>(before)];
  }
  Value outer = extent_of(build, def.operands[0], axis);
  return build.binary(OpCode::Sub, outer, def.operands[1 + axis]);
}

SelectedRow::SelectedRow(Builder& build, Value view)
    : build_(build), view_(view), zero_(build.constant(I32, 0)), begin_(zero_) {
  const Shape& shape = build.kernel().type(view).shape;
  auto it = std::find_if(shape.begin(), shape.end(), [](int64_t extent) { return extent != 1; });
  axis_ = it == shape.end() ? shape.size() - 1 : static_cast<size_t>(it - shape.begin());
  end_ = extent_of(build, view, axis_);
}

void SelectedRow::clip() {
  const Kernel& kernel = build_.kernel();
  std::vector<Value> origin(kernel.type(view_).shape.size(), zero_);  // of the view, in `outer`
  Value exists;
  for (const Op* slice = kernel.def_as(view_, OpCode::Slice); slice;
       slice = kernel.def_as(slice->operands[0], OpCode::Slice)) {
    Value outer = slice->operands[0];
    for (size_t axis = 0; axis < origin.size(); ++axis) {
      Value extent = extent_of(build_, outer, axis);
      Value start = build_.binary(OpCode::Add, origin[axis], slice->operands[1 + axis]);
      origin[axis] = start;
      if (axis == axis_) {
        begin_ = build_.binary(OpCode::Max, begin_, build_.unary(OpCode::Neg, start));
        end_ = build_.binary(OpCode::Min, end_, build_.binary(OpCode::Sub, extent, start));
      } else {
        Value from = build_.compare("ge", start, zero_);
        Value inside = build_.binary(OpCode::And, from, build_.compare("lt", start, extent));
        exists = exists ? build_.binary(OpCode::And, exists, inside) : inside;
      }
    }
  }
  if (exists) end_ = build_.select(exists, end_, zero_);
}

void SelectedRow::at_most(Value count) {
  if (count) end_ = build_.binary(OpCode::Min, end_, count);
}

Value SelectedRow::load(Value position) {
  std::vector<Value> index(build_.kernel().type(view_).shape.size(), zero_);
  index[axis_] = position;
  return build_.load(view_, std::move(index));
}

}  // namespace kiln
