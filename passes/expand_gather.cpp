// gather source, rows → tile    →  parallel (i, j…) tile[i, j…] = source[rows[i], j…]
// scatter tile, rows → tensor   →  parallel (i, j…) tensor[rows[i], j…] = tile[i, j…]
// A load gives 0 outside, where gather asks for its pad: with another pad the loop looks itself. A
// part of a fragment goes through a fragment of its own, which a parallel can index.
#include <cmath>

#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/selected_row.h"

namespace kiln {
namespace {

class Expansion {
 public:
  Expansion(Builder& build, const Op& op) : build_(build), kernel_(build.kernel()), op_(op) {}

  void gather() {
    const Value source = op_.operands[0], destination = op_.operands[2];
    const Value tile = own(destination);
    const double pad = op_.real("pad");
    build_.parallel(Shape(kernel_.type(tile).shape), [&](std::span<const Value> point) {
      const std::vector<Value> index = picked(source, point);
      Value value = build_.load(source, index);
      if (pad != 0 || std::signbit(pad))
        value = build_.select(
            inside(source, index), value,
            build_.constant(convert(Scalar::of_float(F64, pad), kernel_.type(source).dtype)));
      build_.store(value, tile, {point.begin(), point.end()});
    });
    if (tile != destination) build_.emit(OpCode::Copy, {tile, destination});
  }

  void scatter() {
    const Value source = op_.operands[0], destination = op_.operands[2];
    const Value tile = own(source);
    if (tile != source) build_.emit(OpCode::Copy, {source, tile});
    build_.parallel(Shape(kernel_.type(tile).shape), [&](std::span<const Value> point) {
      Value value = build_.load(tile, {point.begin(), point.end()});
      build_.store(value, destination, picked(destination, point));
    });
  }

 private:
  Value own(Value storage) {
    const Type type = kernel_.type(storage);
    if (type.kind != Kind::View || type.space != Space::Fragment) return storage;
    return build_.alloc(Space::Fragment, type.dtype, type.shape);
  }

  Value number(int64_t value) { return build_.constant(I32, value); }

  // Where a point of the tile is in what rows are picked from.
  std::vector<Value> picked(Value all, std::span<const Value> point) {
    const Value rows = op_.operands[1];
    std::vector<Value> at;
    for (int64_t extent : Shape(kernel_.type(rows).shape))
      at.push_back(extent == 1 ? number(0) : point[0]);
    std::vector<Value> index;
    for (size_t axis = point.size(); axis < kernel_.type(all).shape.size(); ++axis)
      index.push_back(number(0));
    index.push_back(build_.load(rows, at));
    index.insert(index.end(), point.begin() + 1, point.end());
    return index;
  }

  // Do the storage and all that it is a part of hold the index? In 64 bits: starts are any number.
  Value inside(Value storage, const std::vector<Value>& index) {
    std::vector<Value> at;
    for (Value position : index) at.push_back(build_.cast(position, I64));
    Value all = build_.constant(Scalar::of_int(Bool, 1));
    const auto require = [&](const char* kind, Value a, Value b) {
      all = build_.binary(OpCode::And, all, build_.compare(kind, a, b));
    };
    for (bool more = true; more;) {
      const Shape shape = kernel_.type(storage).shape;
      const Op slice = kernel_.op(kernel_.def(storage));
      for (size_t axis = 0; axis < shape.size(); ++axis) {
        require("ge", at[axis], build_.constant(I64, 0));
        if (shape[axis] != kDynamic)
          require("lt", at[axis], build_.constant(I64, shape[axis]));
        else if (slice.code != OpCode::Slice)
          require("lt", at[axis], build_.cast(extent_of(build_, storage, axis), I64));
      }
      more = slice.code == OpCode::Slice;
      for (size_t axis = 0; more && axis < shape.size(); ++axis)
        at[axis] = build_.binary(OpCode::Add, at[axis], build_.cast(slice.operands[1 + axis], I64));
      if (more) storage = slice.operands[0];
    }
    return all;
  }

  Builder& build_;
  Kernel& kernel_;
  const Op op_;
};

}  // namespace

void expand_gather(Kernel& kernel) {
  ValueMap names;
  rewrite(kernel, kernel.body, names, [&](Builder& build, OpId id) {
    const OpCode code = kernel.op(id).code;
    if (code == OpCode::Gather) Expansion(build, kernel.op(id)).gather();
    if (code == OpCode::Scatter) Expansion(build, kernel.op(id)).scatter();
    return code == OpCode::Gather || code == OpCode::Scatter;
  });
}

}  // namespace kiln
