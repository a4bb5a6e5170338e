// Statements on single elements.
#include <algorithm>

// Element-wise loops, and what they may read.
#include <algorithm>

#include "tests/differential/generate/body.h"

namespace kiln::differential {

Value Body::value_for(DType dtype, const std::vector<Leaf>& leaves, int mixed) {
  if (random_.chance(mixed)) return mixture(dtype, leaves);
  const DType in = random_.chance(70) ? dtype : F32;
  const int depth = static_cast<int>(random_.between(1, 4));
  Value value = expression(builder_, random_, leaves, in, depth, numbers_);
  if (is_float(in) && numbers_ == Numbers::Small) value = clamped(builder_, value);
  return builder_.cast(value, dtype);
}

// A number that depends on each of the leaves, so that a wrong one shows whichever it is.
Value Body::mixture(DType dtype, const std::vector<Leaf>& leaves) {
  Value sum = i32(random_.between(-4, 4));
  for (const Leaf& leaf : leaves) {
    Value value = leaf.storage ? builder_.load(leaf.storage, leaf.index) : leaf.scalar;
    sum = builder_.binary(OpCode::Mul, sum, i32(5));
    sum = builder_.binary(OpCode::Add, sum, builder_.cast(value, I32));
  }
  if (dtype == Bool) sum = builder_.binary(OpCode::And, sum, i32(1));
  if (is_float(dtype)) {
    sum = builder_.binary(OpCode::FloorMod, sum, i32(9));
    sum = builder_.binary(OpCode::Sub, sum, i32(4));
  }
  return builder_.cast(sum, dtype);
}

std::vector<Leaf> Body::scalar_leaves() {
  std::vector<Leaf> leaves;
  for (Value scalar : scope_.scalars) leaves.push_back({{}, {}, scalar});
  for (Value param : scope_.params) leaves.push_back({{}, {}, param});
  for (const TileInfo& tile : scope_.tiles) {
    const bool variable = tile.shape.empty();
    if (!variable && (tile.space == Space::Fragment || !random_.chance(30))) continue;
    Leaf leaf{tile.value, {}, {}};
    for (int64_t extent : tile.shape) leaf.index.push_back(views_.near(-1, extent));
    leaves.push_back(std::move(leaf));
  }
  for (const TileInfo& array : scope_.arrays)
    leaves.push_back({array.value, any_index(array.shape.size(), scope_.scalars), {}});
  if (random_.chance(30)) {
    const TensorInfo& tensor = random_.pick(scope_.tensors);
    leaves.push_back({tensor.value, any_index(tensor.shape.size(), scope_.scalars), {}});
  }
  return leaves;
}

// `stored`: tiles that the loop writes, which are not read here.
std::vector<Leaf> Body::element_leaves(Indices index, const std::vector<TileInfo>& stored) {
  std::vector<Leaf> leaves;
  for (Value i : index) leaves.push_back({{}, {}, i});
  for (Value scalar : scope_.scalars) leaves.push_back({{}, {}, scalar});
  for (Value param : scope_.params) leaves.push_back({{}, {}, param});
  for (const TileInfo& source : scope_.tiles) {
    if (std::any_of(stored.begin(), stored.end(),
                    [&](const TileInfo& tile) { return tile.shares_bytes(source); }))
      continue;
    if (source.space == Space::Shared && random_.chance(40)) {
      leaves.push_back({source.value, any_index(source.shape.size(), index), {}});
    } else if (auto place = owned_index(source, index)) {
      leaves.push_back({source.value, *place, {}});
    }
  }
  if (random_.chance(40)) {
    const TensorInfo& tensor = random_.pick(scope_.tensors);
    leaves.push_back({tensor.value, any_index(tensor.shape.size(), index), {}});
  }
  for (const TileInfo& array : scope_.arrays)
    leaves.push_back({array.value, any_index(array.shape.size(), index), {}});
  return leaves;
}

// As the law of fragments wants them: different indices of the loop, or 0 on an axis of extent 1.
std::optional<std::vector<Value>> Body::owned_index(const TileInfo& source, Indices index) {
  std::vector<Value> place, left(index.begin(), index.end());
  const size_t skipped = left.size() > source.shape.size() ? left.size() - source.shape.size() : 0;
  if (random_.chance(50))
    left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(skipped));
  for (int64_t extent : source.shape) {
    if (extent == 1 && (left.empty() || random_.chance(50))) {
      place.push_back(builder_.constant(I32, 0));
      continue;
    }
    if (left.empty()) return std::nullopt;
    const int64_t last = static_cast<int64_t>(left.size()) - 1;
    auto at = left.begin() + (random_.chance(75) ? 0 : random_.between(0, last));
    place.push_back(*at);
    left.erase(at);
  }
  return place;
}

std::vector<Value> Body::any_index(size_t rank, Indices index) {
  std::vector<Value> place;
  for (size_t axis = 0; axis < rank; ++axis) {
    const bool in_order = axis < index.size() && random_.chance(60);
    Value i = in_order ? index[axis] : random_.pick(std::vector<Value>(index.begin(), index.end()));
    if (random_.chance(30)) i = builder_.binary(OpCode::Add, i, views_.small(-2, 3));
    if (random_.chance(10)) i = builder_.binary(OpCode::Mul, i, views_.small(-1, 3));
    if (random_.chance(20)) i = views_.near(-1, 8);
    if (random_.chance(2)) i = views_.far();
    place.push_back(i);
  }
  return place;
}

// Different places for different indices: moved or mirrored.
std::vector<Value> Body::injective_index(const TileInfo& target, Indices index) {
  std::vector<Value> place;
  for (size_t axis = 0; axis < index.size(); ++axis) {
    Value from =
        random_.chance(50) ? builder_.constant(I32, target.shape[axis] - 1) : views_.near(-2, 3);
    const OpCode code = random_.chance(50) ? OpCode::Add : OpCode::Sub;
    place.push_back(builder_.binary(code, from, index[axis]));
  }
  return place;
}

void Body::elementwise_of_any() {
  std::vector<TileInfo> targets{random_.pick(scope_.tiles)};
  const TileInfo other = random_.pick(scope_.tiles);
  if (other.shape == targets[0].shape && !other.shares_bytes(targets[0])) targets.push_back(other);
  elementwise(targets);
}

void Body::elementwise(const std::vector<TileInfo>& targets, int mixed) {
  const TileInfo& tile = targets[0];
  if (tile.shape.empty()) return builder_.store(scalar_value(tile.dtype), tile.value);
  Shape extents = tile.shape;
  if (targets.size() == 1 && tile.space == Space::Shared && random_.chance(25))
    for (int64_t& extent : extents) extent = random_.between(1, extent + 2);
  builder_.parallel(extents, [&](Indices index) {
    std::vector<Leaf> leaves = element_leaves(index, targets);
    std::vector<std::vector<Value>> places;
    for (const TileInfo& target : targets) {
      const bool elsewhere = target.space == Space::Shared && random_.chance(30);
      places.emplace_back(index.begin(), index.end());
      if (elsewhere) {
        places.back() = injective_index(target, index);
      } else {
        leaves.push_back({target.value, places.back(), {}});
      }
    }
    if (random_.chance(12)) own_array(index, leaves);
    for (size_t i = 0; i < targets.size(); ++i) {
      Value value = value_for(targets[i].dtype, leaves, mixed);
      builder_.store(value, targets[i].value, places[i]);
    }
  });
}

void Body::elementwise(const TensorInfo& tensor, const std::vector<Value>& start,
                       const Shape& extents) {
  builder_.parallel(extents, [&](Indices index) {
    std::vector<Value> place;
    for (size_t axis = 0; axis < start.size(); ++axis)
      place.push_back(builder_.binary(OpCode::Add, start[axis], index[axis]));
    Value value = value_for(tensor.dtype, element_leaves(index, {}), kResultsMixed);
    builder_.store(value, tensor.value, place);
  });
}

}  // namespace kiln::differential
