// selected row { body }  →  for i in 0 … end { if chosen(i) { body } }
// The body does not write the row (the law), so reading it as the loop runs is reading it before.
// A tier that scans rows by itself (a producer warp) keeps the op; this is for all others.
#include <algorithm>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

template <class Body>
void loop(Builder& build, Value begin, Value end, int64_t stages, Body&& body) {
  Attrs attrs;
  attrs.set("kind", std::string(stages > 0 ? "pipelined" : "serial"));
  attrs.set("stages", stages);
  Value one = build.constant(I32, 1);
  RegionId region = build.add_region(build.emit(OpCode::For, {begin, end, one}, std::move(attrs)));
  Value index = build.kernel().add_argument(region, Type::scalar(I32));
  Builder::Scope scope(build, region);
  body(index);
}

template <class Body>
void when(Builder& build, Value condition, Body&& body) {
  RegionId region = build.add_region(build.emit(OpCode::If, {condition}));
  Builder::Scope scope(build, region);
  body();
}

// Extent of any storage along an axis, as a value.
Value extent_of(Builder& build, Value storage, size_t axis) {
  const Kernel& kernel = build.kernel();
  const Shape& shape = kernel.type(storage).shape;
  if (shape[axis] != kDynamic) return build.constant(I32, shape[axis]);
  const Op& def = kernel.op(kernel.def(storage));
  if (def.code != OpCode::Slice) {  // a tensor: its operands fill the `?` in order
    auto before = std::count(shape.begin(), shape.begin() + static_cast<int64_t>(axis), kDynamic);
    return def.operands[static_cast<size_t>(before)];
  }
  Value outer = extent_of(build, def.operands[0], axis);
  return build.binary(OpCode::Sub, outer, def.operands[1 + axis]);
}

// The row of one `selected`: positions on its one long axis.
class Row {
 public:
  Row(Builder& build, Value view)
      : build_(build), view_(view), zero_(build.constant(I32, 0)), begin_(zero_) {
    const Shape& shape = build.kernel().type(view).shape;
    auto it = std::find_if(shape.begin(), shape.end(), [](int64_t extent) { return extent != 1; });
    axis_ = it == shape.end() ? shape.size() - 1 : static_cast<size_t>(it - shape.begin());
    end_ = extent_of(build, view, axis_);
  }
  Value begin() const { return begin_; }
  Value end() const { return end_; }

  // What lies outside the tensor reads as 0, which in a mask says "not selected" but in a list
  // would be an index: keeps to the positions that every view of the chain and the base hold.
  void clip() {
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

  void at_most(Value count) {
    if (count) end_ = build_.binary(OpCode::Min, end_, count);
  }

  Value load(Value position) {
    std::vector<Value> index(build_.kernel().type(view_).shape.size(), zero_);
    index[axis_] = position;
    return build_.load(view_, std::move(index));
  }

  // Whether an element before `position` equals `element`.
  Value appeared(Value element, Value position) {
    Value found = build_.alloc(Space::Fragment, Bool, {});
    build_.fill(0, found);
    loop(build_, begin_, position, 0, [&](Value earlier) {
      Value same = build_.compare("eq", load(earlier), element);
      build_.store(build_.binary(OpCode::Or, build_.load(found), same), found);
    });
    return build_.load(found);
  }

 private:
  Builder& build_;
  Value view_;
  size_t axis_ = 0;
  Value zero_, begin_, end_;
};

struct Lowering {
  Kernel& kernel;
  ValueMap& names;

  bool operator()(Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Selected) return false;
    if (kernel.type(op.operands[0]).dtype == I32) {
      list(build, op);
    } else {
      mask(build, op);
    }
    return true;
  }

 private:
  void mask(Builder& build, const Op& op) {
    Row row(build, op.operands[0]);
    row.at_most(op.operand(1));
    Value unset = build.constant(kernel.type(op.operands[0]).dtype, 0);
    loop(build, row.begin(), row.end(), op.integer("stages"), [&](Value index) {
      when(build, build.compare("ne", row.load(index), unset), [&] { body(build, op, index); });
    });
  }

  void list(Builder& build, const Op& op) {
    Row row(build, op.operands[0]);
    row.clip();
    row.at_most(op.operand(2));
    Value zero = build.constant(I32, 0), limit = op.operand(1);
    loop(build, row.begin(), row.end(), op.integer("stages"), [&](Value position) {
      Value index = row.load(position);
      Value valid = build.compare("ge", index, zero);
      if (limit) valid = build.binary(OpCode::And, valid, build.compare("lt", index, limit));
      when(build, valid, [&] {
        Value fresh = build.unary(OpCode::Not, row.appeared(index, position));
        when(build, fresh, [&] { body(build, op, index); });
      });
    });
  }

  // The body itself, its own `selected` lowered, with the selected index in place of its argument.
  void body(Builder& build, const Op& op, Value index) {
    names[kernel.region(op.regions[0]).args[0].id] = index;
    rewrite(kernel, op.regions[0], names, *this);
    move_ops(kernel, op.regions[0], build.region());
  }
};

}  // namespace

void lower_selected(Kernel& kernel) {
  ValueMap names;
  rewrite(kernel, kernel.body, names, Lowering{kernel, names});
}

}  // namespace kiln
