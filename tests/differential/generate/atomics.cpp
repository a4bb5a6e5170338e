// Atomics: of kinds that commute wherever several points meet in an element; an old value is used
// only where nothing else comes between.
#include "tests/differential/generate/body.h"

namespace kiln::differential {

// Any that commutes: in any order over the numbers that there may be.
std::string Body::atomic_kind(DType dtype) {
  if (is_float(dtype))
    return is_small() ? random_.pick({"add", "max", "min"}) : random_.pick({"max", "min"});
  return random_.pick({"add", "max", "min", "and", "or", "xor"});
}

void Body::atomics() {
  if (!scope_.atomics.empty() && random_.chance(50)) return atomics_in_tensor();
  atomics_in_tile();
}

// A shared tile of its own: sums of small numbers, or what is small still.
void Body::atomics_in_tile() {
  const DType dtype = random_.pick({I32, I32, U32, I64, U64, F32, F32, F64});
  const Shape extents = random_.chance(60) ? Shape{random_.pick({1, 3, 8, 17, 33})}
                                           : Shape{random_.pick({1, 2, 5}), random_.pick({4, 9})};
  TileInfo target = make_tile(Space::Shared, dtype, extents, Range::Sum);
  fill(target.value, dtype);
  for (int i = 0, n = static_cast<int>(random_.between(1, 2)); i < n; ++i) {
    if (random_.chance(25)) {
      atomic_of_block(target);
    } else {
      const Shape points = random_.chance(30) ? extents : shape(random_.pick({1u, 2u}));
      atomics_over(points, target, random_.chance(15) ? "exchange" : atomic_kind(dtype));
    }
  }
  scope_.tiles.push_back(target);
}

// Points of a parallel meet in elements of the tile. Of an exchange all give one value; or each has
// an element of its own, and then what was there before is kept.
void Body::atomics_over(const Shape& extents, const TileInfo& target, const std::string& kind) {
  const bool apart = extents == target.shape && random_.chance(60);
  const bool exchange = kind == "exchange";
  TileInfo kept;
  if (apart && random_.chance(70)) {
    kept = make_tile(any_space(), target.dtype, extents, Range::Sum);
    fill(kept.value, kept.dtype);
  }
  Value same = exchange && !apart ? value_for(target.dtype, scalar_leaves()) : Value{};
  builder_.parallel(extents, [&](Indices index) {
    std::vector<Value> place;
    if (apart) {
      place = random_.chance(50) ? injective_index(target, index)
                                 : std::vector<Value>(index.begin(), index.end());
    } else {
      place = any_index(target.shape.size(), index);
      for (size_t axis = 0; axis < place.size(); ++axis)
        if (random_.chance(70))
          place[axis] = builder_.binary(OpCode::FloorMod, place[axis], i32(target.shape[axis]));
    }
    const std::vector<TileInfo> untouched =
        kept.value ? std::vector{target, kept} : std::vector{target};
    Value value = same ? same : value_for(target.dtype, element_leaves(index, untouched));
    Value old = builder_.atomic(kind.c_str(), value, target.value, place);
    if (kept.value) builder_.store(old, kept.value, std::vector<Value>(index.begin(), index.end()));
  });
  if (kept.value) scope_.tiles.push_back(kept);
}

// One for the block, whose old value the block uses.
void Body::atomic_of_block(const TileInfo& target) {
  std::vector<Value> place;
  for (int64_t extent : target.shape) place.push_back(views_.near(0, extent));
  const std::string kind = random_.chance(30) ? "exchange" : atomic_kind(target.dtype);
  Value value = value_for(target.dtype, scalar_leaves());
  Value old = builder_.atomic(kind.c_str(), value, target.value, place);
  if (target.dtype == I32 && random_.chance(70)) scope_.scalars.push_back(old);
  if (random_.chance(50)) return;
  TileInfo kept = make_tile(Space::Fragment, target.dtype, {}, Range::Sum);
  builder_.store(old, kept.value);
  scope_.tiles.push_back(kept);
}

void Body::atomics_in_tensor() {
  const AtomicTensor to = random_.pick(scope_.atomics);
  if (to.kind.empty()) return atomic_rows(to);
  const DType dtype = to.tensor.dtype;
  if (random_.chance(20)) {
    Value value = value_for(dtype, scalar_leaves());
    builder_.atomic(to.kind.c_str(), value, to.tensor.value,
                    any_index(to.tensor.shape.size(), scope_.scalars));
    return;
  }
  builder_.parallel(shape(random_.pick({1u, 1u, 2u})), [&](Indices index) {
    Value value = value_for(dtype, element_leaves(index, {}));
    std::vector<Value> place = any_index(to.tensor.shape.size(), index);
    if (to.tensor.shape.back() != kDynamic && random_.chance(80))
      place.back() = builder_.binary(OpCode::FloorMod, place.back(), i32(to.tensor.shape.back()));
    builder_.atomic(to.kind.c_str(), value, to.tensor.value, place);
  });
}

// Every point has an element of the block's own rows.
void Body::atomic_rows(const AtomicTensor& to) {
  const int64_t width = to.tensor.shape.back();
  TileInfo kept = make_tile(any_space(), to.tensor.dtype, {to.rows, width}, Range::Wild);
  fill(kept.value, kept.dtype);
  const std::string kind = random_.chance(40) ? "exchange" : atomic_kind(to.tensor.dtype);
  builder_.parallel(kept.shape, [&](Indices index) {
    std::vector<Value> place = to.start;
    place.back() = builder_.binary(OpCode::Add, place.back(), index[0]);
    place.push_back(index[1]);
    Value value = value_for(to.tensor.dtype, element_leaves(index, {kept}));
    Value old = builder_.atomic(kind.c_str(), value, to.tensor.value, place);
    builder_.store(old, kept.value, {index[0], index[1]});
  });
  scope_.tiles.push_back(kept);
}

}  // namespace kiln::differential
