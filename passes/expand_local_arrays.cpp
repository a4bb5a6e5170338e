// %a = alloc : local f32[2]  →  %a0, %a1 = alloc : fragment f32[], 0 stored to each
//      load %a, %i           →  select i == 1, load %a1, (select i == 0, load %a0, 0)
//      store %v, %a, %i      →  each of %a0, %a1 = itself, or where i is its place %v
// In a parallel, whose body has no branches, an array is the list of its elements' values. Elements
// that a constant index does not mean are not looked at.
#include <unordered_set>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

struct Array {
  DType dtype;
  Shape shape;
  bool of_point;                // a point's own: elements are values, else variables
  std::vector<Value> elements;  // row by row
};

class Expansion {
 public:
  explicit Expansion(Kernel& kernel) : kernel_(kernel) {
    walk(kernel, kernel.body, [&](OpId id) {
      if (kernel.op(id).code == OpCode::Parallel) bodies_.insert(kernel.op(id).regions[0].id);
    });
  }

  void run() {
    rewrite(kernel_, kernel_.body, names_, [&](Builder& build, OpId id) {
      const Op op = kernel_.op(id);
      switch (op.code) {
        case OpCode::Alloc: return make(build, op);
        case OpCode::Load: return load(build, op);
        case OpCode::Store: return store(build, op);
        default: return false;
      }
    });
  }

 private:
  bool make(Builder& build, const Op& op) {
    const Type type = kernel_.type(op.result);
    if (type.space != Space::Local) return false;
    Array array{type.dtype, type.shape, bodies_.contains(build.region().id), {}};
    // What was never written is anything; a variable that is copied must have been written.
    Value zero = zero_of(build, type.dtype);
    for (int64_t i = 0; i < count(type.shape); ++i) {
      array.elements.push_back(array.of_point ? zero
                                              : build.alloc(Space::Fragment, type.dtype, {}));
      if (!array.of_point) build.store(zero, array.elements.back());
    }
    arrays_.emplace(op.result.id, std::move(array));
    return true;
  }

  bool load(Builder& build, const Op& op) {
    const auto found = arrays_.find(op.operands[0].id);
    if (found == arrays_.end()) return false;
    const Array& array = found->second;
    Value loaded = zero_of(build, array.dtype);
    each_place(build, op, 1, array, [&](size_t element, Value here) {
      loaded = chosen(build, here, read(build, array, element), loaded);
    });
    names_[op.result.id] = loaded;
    return true;
  }

  bool store(Builder& build, const Op& op) {
    const auto found = arrays_.find(op.operands[1].id);
    if (found == arrays_.end()) return false;
    Array& array = found->second;
    Value stored = build.cast(op.operands[0], array.dtype);
    each_place(build, op, 2, array, [&](size_t element, Value here) {
      Value old = here ? read(build, array, element) : Value{};
      Value value = chosen(build, here, stored, old);
      if (array.of_point)
        array.elements[element] = value;
      else
        build.store(value, array.elements[element]);
    });
    return true;
  }

  Value read(Builder& build, const Array& array, size_t i) {
    return array.of_point ? array.elements[i] : build.load(array.elements[i]);
  }
  static Value zero_of(Builder& build, DType dtype) {
    return build.constant(convert(Scalar::of_int(I32, 0), dtype));
  }

  static Value chosen(Builder& build, Value here, Value a, Value otherwise) {
    return here ? build.select(here, a, otherwise) : a;
  }

  // visit(element, here) for each that the indices from operand `first` on may mean. `here`: do
  // they? None if nothing else is possible.
  template <class Visit>
  void each_place(Builder& build, const Op& op, size_t first, const Array& array, Visit&& visit) {
    struct Place {
      size_t element;
      Value here;
    };
    std::vector<Place> places = {{0, {}}};
    for (size_t axis = 0; axis < array.shape.size(); ++axis) {
      const Value index = op.operands[first + axis];
      const std::optional<int64_t> known = constant_int(kernel_, index);
      std::vector<Place> on_axis, longer;
      for (int64_t i = 0; i < array.shape[axis]; ++i)
        if (!known || *known == i)
          on_axis.push_back({static_cast<size_t>(i),
                             known ? Value{} : build.compare("eq", index, build.constant(I32, i))});
      for (const Place& outer : places)
        for (const Place& inner : on_axis) {
          const size_t element =
              outer.element * static_cast<size_t>(array.shape[axis]) + inner.element;
          const bool both = outer.here && inner.here;
          longer.push_back({element, both ? build.binary(OpCode::And, outer.here, inner.here)
                                     : outer.here ? outer.here
                                                  : inner.here});
        }
      places = std::move(longer);
    }
    for (const Place& place : places) visit(place.element, place.here);
  }

  Kernel& kernel_;
  ValueMap names_;
  std::unordered_map<uint32_t, Array> arrays_;  // by value id
  std::unordered_set<uint32_t> bodies_;         // regions of parallels
};

}  // namespace

void expand_local_arrays(Kernel& kernel) {
  Expansion(kernel).run();
}

}  // namespace kiln
