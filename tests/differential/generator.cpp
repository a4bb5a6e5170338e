#include "tests/differential/generator.h"

#include "tests/differential/expression.h"

namespace kiln::differential {
namespace {

constexpr int kMaxTrips = 4;

// A tile in scope. Accumulators hold sums of exact products: they may be read and overwritten, but
// are never operands of gemm or reduce.
struct TileInfo {
  Value value;
  Space space;
  DType dtype;
  Shape shape;
  bool accumulator;
};

struct TensorInfo {
  Value value;
  DType dtype;
  int64_t columns;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), kernel_("random"), builder_(kernel_) {}

  Program run() {
    kernel_.fast_math = random_.chance(30);
    rows_ = named(OpCode::Dim, "rows", Type::scalar(I32));
    blocks_ = named(OpCode::Dim, "blocks", Type::scalar(I32));
    block_rows_ = random_.pick({1, 3, 4, 8, 16, 17});
    for (int i = 0, n = static_cast<int>(random_.between(1, 3)); i < n; ++i) add_input(i);
    add_selection_inputs();
    int outputs = static_cast<int>(random_.between(1, 2));
    for (int i = 0; i < outputs; ++i) add_output(i);
    launch();
    int64_t rows = random_.between(0, 40);
    return {std::move(kernel_),
            {{"rows", rows}, {"blocks", (rows + block_rows_ - 1) / block_rows_}}};
  }

 private:
  // ---- the interface ----

  Value named(OpCode code, const std::string& name, Type type, std::vector<Value> operands = {},
              const std::string& role = "") {
    Attrs attrs;
    attrs.set("name", name);
    if (!role.empty()) attrs.set("role", role);
    return kernel_.op(builder_.emit(code, std::move(operands), std::move(attrs), std::move(type)))
        .result;
  }

  void add_input(int i) {
    DType dtype = random_.pick({F16, BF16, F32, F32, I32, I8, U8, Bool, E4M3, E5M2, F64, I64});
    int64_t columns = random_.between(1, 40);
    inputs_.push_back({named(OpCode::Tensor, "in" + std::to_string(i),
                             Type::tensor(dtype, {kDynamic, columns}), {rows_}, "input"),
                       dtype, columns});
  }

  void add_selection_inputs() {
    mask_ =
        named(OpCode::Tensor, "mask", Type::tensor(random_.pick({Bool, I8}), {kDynamic, kMaxTrips}),
              {blocks_}, "input");
    list_ =
        named(OpCode::Tensor, "list", Type::tensor(I32, {kDynamic, kMaxTrips}), {blocks_}, "input");
  }

  void add_output(int i) {
    DType dtype = random_.pick({F16, F32, I32, BF16, I8, F64});
    int64_t columns = random_.between(1, 40);
    outputs_.push_back({named(OpCode::Tensor, "out" + std::to_string(i),
                              Type::tensor(dtype, {kDynamic, columns}), {rows_}, "output"),
                        dtype, columns});
  }

  void launch() {
    RegionId region = builder_.add_region(builder_.emit(OpCode::Launch, {blocks_}));
    block_ = kernel_.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(builder_, region);
    first_row_ = builder_.binary(OpCode::Mul, block_, builder_.constant(I32, block_rows_));
    scalars_ = {block_, first_row_, rows_};
    for (int i = 0, n = static_cast<int>(random_.between(2, 4)); i < n; ++i) add_tile();
    statements(static_cast<int>(random_.between(3, 8)), 2);
    for (const TensorInfo& output : outputs_) write_output(output);
  }

  // Every row of the block is written once, the columns by one tile of their width.
  void write_output(const TensorInfo& output) {
    TileInfo tile = make_tile(Space::Fragment, output.dtype, {block_rows_, output.columns}, false);
    elementwise(tile);
    Value at = builder_.slice(output.value, {first_row_, builder_.constant(I32, 0)},
                              {block_rows_, output.columns});
    builder_.emit(OpCode::Copy, {tile.value, at});
  }

  // ---- tiles ----

  TileInfo make_tile(Space space, DType dtype, Shape shape, bool accumulator) {
    Value value = builder_.alloc(space, dtype, shape);
    return {value, space, dtype, std::move(shape), accumulator};
  }

  int64_t extent() { return random_.pick({1, 2, 3, 5, 8, 16, 17, 24, 32, 33}); }

  void add_tile() {
    DType dtype = random_.pick({F32, F32, F16, BF16, I32, I8, U8, Bool, F64, I64, I16, E4M3});
    Shape shape{extent(), extent()};
    if (random_.chance(25)) shape.pop_back();
    TileInfo tile =
        make_tile(random_.chance(50) ? Space::Shared : Space::Fragment, dtype, shape, false);
    initialise(tile);
    tiles_.push_back(tile);
  }

  void initialise(const TileInfo& tile) {
    if (tile.shape.size() == 2 && random_.chance(60)) return load(tile);
    builder_.fill(
        static_cast<double>(tile.dtype == Bool ? random_.between(0, 1) : random_.between(0, 3)),
        tile.value);
  }

  Value small(int64_t low, int64_t high) {
    return builder_.constant(I32, random_.between(low, high));
  }

  // A part of an input, which may stick out at any end.
  void load(const TileInfo& tile) {
    const TensorInfo& input = random_.pick(inputs_);
    Value row = random_.chance(70) ? first_row_ : small(-5, 45);
    Value view = builder_.slice(input.value, {row, small(-3, 8)}, tile.shape);
    Attrs attrs;
    if (random_.chance(50))
      attrs.set("pad", static_cast<double>(random_.between(0, input.dtype == Bool ? 1 : 3)));
    builder_.emit(OpCode::Copy, {view, tile.value}, std::move(attrs));
  }

  // ---- statements ----

  void statements(int count, int depth) {
    for (int i = 0; i < count; ++i) statement(depth);
  }

  void statement(int depth) {
    size_t tiles = tiles_.size();
    switch (random_.between(0, depth > 0 ? 12 : 7)) {
      case 0: return add_tile();
      case 1: return tile_copy();
      case 2: return reduce();
      case 3: return gemm();
      case 4: return gemm();
      case 5: return partial_fill();
      case 6:
      case 7: return elementwise(random_.pick(tiles_));
      case 8: branch(depth); break;
      case 9: selected(depth); break;
      default: loop(depth); break;
    }
    tiles_.resize(tiles);  // tiles made inside are gone
  }

  void tile_copy() {
    const TileInfo to = random_.pick(tiles_);
    if (to.shape.size() == 2 && random_.chance(50)) return load(to);
    const TileInfo from = random_.pick(tiles_);
    if (from.accumulator || from.value == to.value || from.shape.size() != to.shape.size()) return;
    if (from.space == Space::Fragment) {  // used whole
      if (from.shape == to.shape) builder_.emit(OpCode::Copy, {from.value, to.value});
      return;
    }
    std::vector<Value> index;
    for (size_t axis = 0; axis < to.shape.size(); ++axis) index.push_back(small(-2, 4));
    Value view = builder_.slice(from.value, index, part_of(from.shape, to.shape));
    if (kernel_.type(view).shape != to.shape) return;
    builder_.emit(OpCode::Copy, {view, to.value});
  }

  // Static slices must fit their base, so the wish is cut to it.
  static Shape part_of(const Shape& base, const Shape& wish) {
    Shape part = wish;
    for (size_t axis = 0; axis < base.size(); ++axis) part[axis] = std::min(base[axis], wish[axis]);
    return part;
  }

  void partial_fill() {
    const TileInfo tile = random_.pick(tiles_);
    Value target = tile.value;
    if (tile.space == Space::Shared && random_.chance(60)) {
      Shape part = tile.shape;
      std::vector<Value> index;
      for (int64_t& extent : part) {
        int64_t size = random_.between(1, extent);
        index.push_back(small(0, extent - size));
        extent = size;
      }
      target = builder_.slice(tile.value, index, part);
    }
    builder_.fill(static_cast<double>(random_.between(0, tile.dtype == Bool ? 1 : 3)), target);
  }

  void gemm() {
    bool integers = random_.chance(20);
    DType in = integers ? random_.pick({I8, U8}) : random_.pick({F16, BF16, F32, E4M3});
    int64_t m = extent(), n = extent(), k = extent();
    bool transpose_a = random_.chance(25), transpose_b = random_.chance(40);
    TileInfo a = make_tile(random_.pick({Space::Shared, Space::Fragment}), in,
                           transpose_a ? Shape{k, m} : Shape{m, k}, false);
    TileInfo b = make_tile(Space::Shared, in, transpose_b ? Shape{n, k} : Shape{k, n}, false);
    load(a);
    load(b);
    if (random_.chance(40)) elementwise(b);
    TileInfo c = make_tile(Space::Fragment, integers ? I32 : F32, {m, n}, true);
    Attrs attrs;
    attrs.set("transpose_a", transpose_a);
    attrs.set("transpose_b", transpose_b);
    attrs.set("policy", std::string(random_.pick({"square", "full_row", "full_col"})));
    bool clear = random_.chance(40);
    attrs.set("clear", clear);
    if (!clear) builder_.fill(static_cast<double>(random_.between(0, 3)), c.value);
    builder_.emit(OpCode::Gemm, {a.value, b.value, c.value}, attrs);
    tiles_.insert(tiles_.end(), {a, b, c});
  }

  void reduce() {
    const TileInfo source = random_.pick(tiles_);
    if (source.accumulator || source.dtype == Bool) return;
    int64_t dim = random_.between(0, static_cast<int64_t>(source.shape.size()) - 1);
    Shape shape = source.shape;
    if (random_.chance(30)) {
      shape[static_cast<size_t>(dim)] = 1;
    } else {
      shape.erase(shape.begin() + dim);
    }
    std::string kind = random_.pick({"max", "min", "sum", "absmax"});
    if (is_int(source.dtype) && random_.chance(40)) kind = random_.pick({"and", "or", "xor"});
    DType dtype = is_float(source.dtype) && kind == "sum" ? F32 : source.dtype;
    if (shape.empty()) shape = {1}, dim = 0;
    TileInfo destination = make_tile(Space::Fragment, dtype, shape, true);
    bool clear = random_.chance(60);
    if (!clear) builder_.fill(1.0, destination.value);
    Attrs attrs;
    attrs.set("kind", kind);
    attrs.set("dim", dim);
    attrs.set("clear", clear);
    builder_.emit(OpCode::Reduce, {source.value, destination.value}, attrs);
    tiles_.push_back(destination);
  }

  // tile(i, j) = clamp(expression of tiles, indices and scalars)
  void elementwise(const TileInfo& tile) {
    builder_.parallel(tile.shape, [&](std::span<const Value> index) {
      std::vector<Leaf> leaves;
      for (Value i : index) leaves.push_back({{}, {}, i});
      for (Value scalar : scalars_) leaves.push_back({{}, {}, scalar});
      for (const TileInfo& source : tiles_) {
        // A shared tile is also read elsewhere than it is written: only if it is another tile.
        bool anywhere = source.space == Space::Shared && source.value != tile.value;
        if (auto place = owned_index(source, tile, index))
          leaves.push_back({source.value, *place, {}});
        if (anywhere && random_.chance(30))
          leaves.push_back({source.value, odd_index(source, index), {}});
      }
      if (random_.chance(30)) {
        const TensorInfo& input = random_.pick(inputs_);
        leaves.push_back({input.value, {index[0], index.back()}, {}});
      }
      Value value = expression(builder_, random_, leaves, random_.chance(70) ? tile.dtype : F32,
                               static_cast<int>(random_.between(1, 4)));
      if (is_float(kernel_.type(value).dtype)) value = clamped(builder_, value);
      builder_.store(builder_.cast(value, tile.dtype), tile.value,
                     std::vector<Value>(index.begin(), index.end()));
    });
  }

  // Loop indices for the axes of `source`, as the law of fragments wants them, if the extents fit.
  std::optional<std::vector<Value>> owned_index(const TileInfo& source, const TileInfo& target,
                                                std::span<const Value> index) {
    std::vector<Value> place;
    size_t next = 0;
    for (int64_t extent : source.shape) {
      if (extent == 1) {
        place.push_back(builder_.constant(I32, 0));
        continue;
      }
      while (next < target.shape.size() && target.shape[next] != extent) ++next;
      if (next == target.shape.size()) return std::nullopt;
      place.push_back(index[next++]);
    }
    return place;
  }

  std::vector<Value> odd_index(const TileInfo& source, std::span<const Value> index) {
    std::vector<Value> place;
    for (size_t axis = 0; axis < source.shape.size(); ++axis) {
      Value i = random_.pick(std::vector<Value>(index.begin(), index.end()));
      place.push_back(random_.chance(50) ? i : builder_.binary(OpCode::Add, i, small(-2, 3)));
    }
    return place;
  }

  // ---- structure ----

  void branch(int depth) {
    std::vector<Leaf> leaves;
    for (Value scalar : scalars_) leaves.push_back({{}, {}, scalar});
    Value condition = expression(builder_, random_, leaves, Bool, 2);
    OpId op = builder_.emit(OpCode::If, {condition});
    for (int i = 0, n = random_.chance(50) ? 2 : 1; i < n; ++i) {
      Builder::Scope scope(builder_, builder_.add_region(op));
      size_t tiles = tiles_.size();
      statements(static_cast<int>(random_.between(1, 3)), depth - 1);
      tiles_.resize(tiles);
    }
  }

  void body(OpId op, int depth) {
    RegionId region = builder_.add_region(op);
    scalars_.push_back(kernel_.add_argument(region, Type::scalar(I32)));
    Builder::Scope scope(builder_, region);
    statements(static_cast<int>(random_.between(1, 3)), depth - 1);
    scalars_.pop_back();
  }

  void loop(int depth) {
    std::string kind = random_.pick({"serial", "unroll", "pipelined"});
    Attrs attrs;
    attrs.set("kind", kind);
    if (kind == "pipelined") attrs.set("stages", random_.between(0, 4));
    int64_t begin = random_.between(-1, 2), step = random_.between(1, 2);
    Value end = small(begin - 1, begin + kMaxTrips);
    if (kind != "unroll" && random_.chance(40))  // known only at run time
      end = builder_.binary(OpCode::Min, builder_.binary(OpCode::Add, block_, small(-1, 1)),
                            small(1, begin + kMaxTrips));
    Value from = builder_.constant(I32, begin), by = builder_.constant(I32, step);
    body(builder_.emit(OpCode::For, {from, end, by}, attrs), depth);
  }

  void selected(int depth) {
    bool is_list = random_.chance(50);
    Value row = builder_.slice(is_list ? list_ : mask_, {block_, builder_.constant(I32, 0)},
                               {1, kMaxTrips});
    std::vector<Value> operands{row};
    if (random_.chance(70)) operands.push_back(small(0, kMaxTrips + 1));
    if (is_list && operands.size() == 2 && random_.chance(50))
      operands.push_back(small(0, kMaxTrips));
    Attrs attrs;
    attrs.set("stages", random_.between(0, 3));
    attrs.set("ordered", true);  // sums are exact, but stores are not commutative
    body(builder_.emit(OpCode::Selected, operands, attrs), depth);
  }

  Random random_;
  Kernel kernel_;
  Builder builder_;
  Value rows_, blocks_, block_, first_row_, mask_, list_;
  int64_t block_rows_ = 1;
  std::vector<TensorInfo> inputs_, outputs_;
  std::vector<TileInfo> tiles_;
  std::vector<Value> scalars_;
};

}  // namespace

Program generate(uint64_t seed) {
  return Generator(seed).run();
}

}  // namespace kiln::differential
