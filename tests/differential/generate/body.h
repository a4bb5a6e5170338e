// The statements of a launch. One class in several files, a concept each: tiles, elements, gemm,
// rows, structure, pipelines, schedules, atomics, gather, softmax.
#pragma once

#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include "tests/differential/generate/expression.h"
#include "tests/differential/generate/scope.h"
#include "tests/differential/generate/views.h"

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

  static constexpr int kMixed = 10, kResultsMixed = 60;

  void add_tile();
  void add_tile(const TileInfo& tile) { scope_.tiles.push_back(tile); }
  void statements(int count, int depth);
  void schedule(int depth);  // a loop that fetches ahead
  TileInfo make_tile(Space space, DType dtype, Shape shape, Range range = Range::Small);
  // tile[…] = expression of tiles, tensors, indices and scalars, for tiles of one shape.
  // `mixed`: percent of expressions in which all of these have a part.
  void elementwise(const std::vector<TileInfo>& targets, int mixed = kMixed);
  // tensor[start + index] = expression, for every index of a box.
  void elementwise(const TensorInfo& tensor, const std::vector<Value>& start, const Shape& extents);
  // What a float of a dtype may store: for the whole block, or in a parallel.
  Value scalar_value(DType dtype) { return value_for(dtype, scalar_leaves()); }
  void fill(Value destination, DType dtype);
  // Different rows from 0 to `rows`, some of them −1: a tile for gather or scatter.
  Value distinct_rows(int64_t count, int64_t rows);
  Views& views() { return views_; }

 private:
  using Indices = std::span<const Value>;

  // Takes what statements add to the scope away again at the end of a region.
  class Inner {
   public:
    explicit Inner(Scope& scope)
        : scope_(scope),
          tiles_(scope.tiles.size()),
          arrays_(scope.arrays.size()),
          scalars_(scope.scalars.size()) {}
    ~Inner() {
      scope_.tiles.resize(tiles_);
      scope_.arrays.resize(arrays_);
      scope_.scalars.resize(scalars_);
    }
    Inner(const Inner&) = delete;

   private:
    Scope& scope_;
    size_t tiles_, arrays_, scalars_;
  };

  bool is_small() const { return numbers_ == Numbers::Small; }
  Value i32(int64_t value) { return builder_.constant(I32, value); }

  // Tiles.
  Range best(DType dtype) const;
  Shape shape(size_t rank);
  DType any_dtype() { return kAllDTypes[random_.between(0, std::ssize(kAllDTypes) - 1)]; }
  Space any_space() { return random_.pick({Space::Shared, Space::Fragment}); }
  void wish_layout(Value tile);
  void initialise(const TileInfo& tile);
  bool load(const TileInfo& tile, Value destination, const Shape& shape);
  void copy_part();
  void partial_fill();
  void scalar_store();

  // Elements.
  void elementwise_of_any();
  Value value_for(DType dtype, const std::vector<Leaf>& leaves, int mixed = kMixed);
  Value mixture(DType dtype, const std::vector<Leaf>& leaves);
  std::vector<Leaf> scalar_leaves();
  std::vector<Leaf> element_leaves(Indices index, const std::vector<TileInfo>& stored);
  std::optional<std::vector<Value>> owned_index(const TileInfo& source, Indices index);
  std::vector<Value> any_index(size_t rank, Indices index);
  std::vector<Value> injective_index(const TileInfo& target, Indices index);

  // Arrays and tiles under another type.
  void add_array();
  void array_store();
  void own_array(Indices index, std::vector<Leaf>& leaves);
  Shape array_shape();
  void reshape();
  void reinterpret();
  TileInfo reshaped(const TileInfo& tile, DType dtype);
  Shape shape_of(int64_t elements);

  // Gemm.
  void gemm();
  void gemm_into(const TileInfo& c, bool clear);
  Value gemm_operand(DType dtype, int64_t rows, int64_t columns);

  // Rows.
  void reduce();
  void lines();
  TileInfo source_of_lines();
  int64_t any_axis(const Shape& shape);
  void arg_reduce(const Part& part, int64_t dim);
  void cumsum(TileInfo source);
  void sort(DType dtype, const Part& part, int64_t dim);
  Value row_destination(DType dtype, const Shape& shape);

  // Gather and scatter.
  void gather();
  void scatter();
  Value row_numbers(int64_t count, const std::function<Value(Value)>& number);

  // Atomics.
  void atomics();
  void atomics_in_tile();
  void atomics_in_tensor();
  void atomics_over(const Shape& extents, const TileInfo& target, const std::string& kind);
  void atomic_of_block(const TileInfo& target);
  void atomic_rows(const AtomicTensor& to);
  std::string atomic_kind(DType dtype);

  // Softmax.
  struct Softmax;
  void softmax();
  void softmax_step(const Softmax& it);
  void softmax_finish(const Softmax& it);
  void round_down(const TileInfo& tile, double offset, double most);

  // What programs say.
  void device_assert();
  void watch();
  Value condition_that_holds(const std::vector<Leaf>& leaves);

  // Structure.
  void statement(int depth);
  void branch(int depth);
  void region(OpId op, int depth);
  void loop(int depth);
  std::string wished_schedule(bool ahead = false);
  OpId for_op(const std::string& kind, int64_t stages, int64_t trips = kMaxTrips,
              bool ahead = false);
  void loop_with_exits(int depth);
  void exit_if(Value rounds, int64_t most, bool surely, int depth);
  void selected(int depth);
  OpId selected_op(bool ordered, bool wide = false, bool ahead = false);
  Value selected_row(bool is_list);
  Value wide_row(bool is_list);
  void commuting_statements();
  void accumulate(const TileInfo& target);

  // Pipelines: loops that move tiles through few buffers.
  struct Buffers {
    std::vector<TileInfo> shared, sums;
  };
  void pipeline(int depth);
  void pipeline_loop(const Buffers& buffers, int depth);
  void pipeline_step(const Buffers& buffers, Value& row, int depth);
  void fetch(const TileInfo& buffer, Value row);
  void use(const Buffers& buffers);

  // Schedules: loops that fetch ahead what their rounds copy.
  struct Schedule;
  struct Fetched;
  void choose_fetched(Schedule& it);
  bool choose_tile(Schedule& it, bool chain);
  std::vector<TensorInfo> sources_of_tiles(bool chain, std::optional<DType> like);
  void make_chain(Schedule& it);
  bool multiplies(DType dtype, Range range) const;
  void schedule_loop(const Schedule& it, int depth, int most_rounds);
  OpId far_loop();
  void schedule_round(const Schedule& it, Value index, int depth);
  void count_on(const Schedule& it, Value index);
  bool fetch_group(const Schedule& it, size_t first, size_t count, Value index, int guards);
  bool fetch_guarded(const Schedule& it, size_t first, size_t count, Value index, int guards);
  void fetch_and_use(const Schedule& it, size_t first, size_t count, Value index);
  void fetch_whole(const Schedule& it, const Fetched& fetched, Value index);
  Value row_of_round(const Schedule& it, Value index, int64_t rows);
  Value guard_of_round(const Schedule& it, Value index);
  void use_fetched(const Schedule& it, const Fetched& fetched);
  void add_fetched(const Fetched& fetched);
  void multiply_self(const Fetched& fetched);
  void multiply_twice(const Schedule& it);

  // The block's own rows of a tensor.
  void store_own_rows();
  void load_own_rows();
  Value own_view(const AtomicTensor& own, const Shape& sizes);

  Builder& builder_;
  Random& random_;
  Scope scope_;
  Numbers numbers_;
  Views views_;
};

}  // namespace kiln::differential
