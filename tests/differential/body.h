// The statements of a launch.
#pragma once

#include <optional>

#include "tests/differential/expression.h"
#include "tests/differential/scope.h"

namespace kiln::differential {

// Appends statements at the builder's insertion point. Every tile is wholly written where it is
// made, so that nothing reads an element never written.
class Body {
 public:
  Body(Builder& builder, Random& random, Scope scope, Numbers numbers)
      : builder_(builder),
        random_(random),
        scope_(std::move(scope)),
        numbers_(numbers),
        views_(builder, random, scope_) {}

  void add_tile();
  void add_tile(const TileInfo& tile) { scope_.tiles.push_back(tile); }
  void statements(int count, int depth);
  TileInfo make_tile(Space space, DType dtype, Shape shape, Range range = Range::Small);
  // tile[…] = expression of tiles, tensors, indices and scalars, for tiles of one shape.
  void elementwise(const std::vector<TileInfo>& targets);
  // tensor[start + index] = expression, for every index of a box.
  void elementwise(const TensorInfo& tensor, const std::vector<Value>& start, const Shape& extents);
  // What a float of a dtype may store: for the whole block, or in a parallel.
  Value scalar_value(DType dtype) { return value_for(dtype, scalar_leaves()); }
  void fill(Value destination, DType dtype);
  Views& views() { return views_; }

 private:
  using Indices = std::span<const Value>;

  Range best(DType dtype) const;
  Shape shape(size_t rank);
  void initialise(const TileInfo& tile);
  bool load(const TileInfo& tile, Value destination, const Shape& shape);

  void statement(int depth);
  void elementwise_of_any();
  void copy_part();
  void partial_fill();
  void scalar_store();
  void gemm();
  void gemm_into(const TileInfo& c, bool clear);
  Value gemm_operand(DType dtype, int64_t rows, int64_t columns);
  void reduce();
  Value reduce_destination(DType dtype, const Shape& shape);

  Value value_for(DType dtype, const std::vector<Leaf>& leaves);
  std::vector<Leaf> scalar_leaves();
  std::vector<Leaf> element_leaves(Indices index, const std::vector<TileInfo>& stored);
  std::optional<std::vector<Value>> owned_index(const TileInfo& source, Indices index);
  std::vector<Value> any_index(size_t rank, Indices index);
  std::vector<Value> injective_index(const TileInfo& target, Indices index);

  void branch(int depth);
  void region(OpId op, int depth);
  void loop(int depth);
  void selected(int depth);
  Value selected_row(bool is_list);
  void commuting_statements();
  void accumulate(const TileInfo& target);

  Builder& builder_;
  Random& random_;
  Scope scope_;
  Numbers numbers_;
  Views views_;
};

}  // namespace kiln::differential
