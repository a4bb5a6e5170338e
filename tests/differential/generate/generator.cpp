#include "tests/differential/generator.h"
#include "passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/differential/generate/body.h"

namespace kiln::differential {
namespace {

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), kernel_("random"), builder_(kernel_) {}

  Program run() {
    if (random_.chance(25)) numbers_ = Numbers::Any;
    kernel_.fast_math = numbers_ == Numbers::Small && random_.chance(60);
    block_rows_ = random_.pick({1, 3, 4, 8, 16, 17});
    choose_dims();
    for (int i = 0, n = static_cast<int>(random_.between(1, 3)); i < n; ++i) add_input();
    for (int i = 0, n = static_cast<int>(random_.between(1, 2)); i < n; ++i) add_stream();
    scope_.mask = add_tensor("mask", random_.pick({Bool, I8}), {blocks_}, {kMaxTrips}, "input");
    scope_.list = add_tensor("list", I32, {blocks_}, {kMaxTrips}, "input");
    for (int i = 0, n = static_cast<int>(random_.between(0, 2)); i < n; ++i) add_param();
    choose_launches();
    add_atomics();
    for (size_t i = 0; i < launches_.size(); ++i) add_launch(i);
    if (random_.chance(30)) leave_out_passes();
    return {std::move(kernel_), std::move(dims_), numbers_ == Numbers::Any};
  }

 private:
  // What a launch writes.
  struct Target {
    TensorInfo tensor;
    std::string role;
  };

  // ---- the interface ----

  Value named(OpCode code, const std::string& name, Type type, std::vector<Value> operands = {},
              const std::string& role = "") {
    Attrs attrs;
    attrs.set("name", name);
    if (!role.empty()) attrs.set("role", role);
    return kernel_.op(builder_.emit(code, std::move(operands), std::move(attrs), std::move(type)))
        .result;
  }

  Value dim(const std::string& name, int64_t value) {
    dims_[name] = value;
    return named(OpCode::Dim, name, Type::scalar(I32));
  }

  // The grid is blocks of rows, then up to two more axes, which tensors have in front.
  void choose_dims() {
    int64_t others = 1;
    for (int i = 0, n = random_.pick({0, 0, 0, 1, 2}); i < n; ++i) {
      const int64_t extent = random_.chance(5) ? 0 : random_.between(1, 3);
      lead_.push_back(dim(fmt::format("lead{}", i), extent));
      others *= std::max<int64_t>(1, extent);
    }
    const int64_t most_blocks = random_.chance(85) ? 3 : 12;
    const int64_t rows = random_.between(0, std::min(40 / others, most_blocks * block_rows_));
    rows_ = dim("rows", rows);
    blocks_ = dim("blocks", (rows + block_rows_ - 1) / block_rows_);
    width_ = dim("width", random_.chance(10) ? 0 : random_.between(1, 40));
  }

  // Extents: `dynamic` ones, then constants.
  TensorInfo add_tensor(const std::string& name, DType dtype, std::vector<Value> dynamic,
                        const Shape& constant, const std::string& role) {
    Shape shape(dynamic.size(), kDynamic);
    shape.insert(shape.end(), constant.begin(), constant.end());
    const bool is_input = role == "input" && numbers_ == Numbers::Small;
    const bool clamped = is_float(dtype) && numbers_ == Numbers::Small;
    return {named(OpCode::Tensor, name, Type::tensor(dtype, shape), std::move(dynamic), role),
            dtype, shape, is_input || clamped ? Range::Small : Range::Wild};
  }

  DType any_dtype() {
    return random_.pick(
        {F16, BF16, F32, F32, I32, I8, U8, Bool, E4M3, E5M2, F64, I64, I16, U16, U32, U64});
  }

  void add_input() {
    std::vector<Value> dynamic = random_.chance(50) ? lead_ : std::vector<Value>{};
    Shape constant;
    if (random_.chance(90)) dynamic.push_back(rows_);
    if (random_.chance(20)) {
      dynamic.push_back(width_);
    } else {
      constant.push_back(random_.chance(30) ? random_.pick({8, 16, 32, 48})
                                            : random_.between(1, 40));
    }
    const std::string name = fmt::format("in{}", scope_.tensors.size());
    scope_.tensors.push_back(add_tensor(name, any_dtype(), dynamic, constant, "input"));
  }

  // Long, in rows of chunks, for loops to fetch ahead.
  void add_stream() {
    if (!length_) length_ = dim("length", random_.chance(70) ? random_.between(0, 40) : 64);
    std::vector<Value> dynamic{length_};
    if (random_.chance(25)) dynamic.insert(dynamic.begin(), blocks_);
    const DType dtype = numbers_ == Numbers::Small
                            ? random_.pick({F16, F16, F16, BF16, F32, E4M3, I8, F64})
                            : random_.pick({I8, I8, U8, F16, F32, I32});
    const std::string name = fmt::format("stream{}", scope_.tensors.size());
    TensorInfo made =
        add_tensor(name, dtype, dynamic, {random_.pick({16, 16, 32, 48, 64})}, "input");
    made.is_stream = true;
    scope_.tensors.push_back(made);
  }

  void add_param() {
    const DType dtype = any_dtype();
    Value param =
        named(OpCode::Param, fmt::format("p{}", scope_.params.size()), Type::scalar(dtype));
    scope_.params.push_back(param);
    if (dtype == I32) scope_.scalars.push_back(param);
  }

  // Each target has the rows of the grid; the last launch writes an output.
  void choose_launches() {
    const int launches = random_.pick({1, 1, 1, 2, 3});
    int made = 0;
    for (int i = 0; i < launches; ++i) {
      launches_.emplace_back();
      const int targets = static_cast<int>(random_.between(1, 2));
      for (int j = 0; j < targets; ++j, ++made) {
        const bool last = i + 1 == launches && j == 0;
        const std::string role =
            random_.pick({"output", "inout", launches > 1 && !last ? "workspace" : "output"});
        std::vector<Value> dynamic = lead_;
        dynamic.push_back(rows_);
        const int64_t width =
            random_.chance(35) ? random_.pick({8, 16, 32}) : random_.between(1, 40);
        launches_.back().push_back(
            {add_tensor(fmt::format("out{}", made), any_dtype(), dynamic, {width}, role), role});
      }
    }
  }

  // Tensors of which launches use one for atomics, and those after it read.
  void add_atomics() {
    for (int i = 0, n = random_.pick({0, 1, 1, 2}); i < n; ++i) {
      const DType dtype = random_.pick({I32, I32, U32, I64, U64, F32, F32, F64});
      const std::string name = fmt::format("atomic{}", i);
      AtomicTensor made;
      if (random_.chance(35)) {  // each block has its rows
        std::vector<Value> dynamic = lead_;
        dynamic.push_back(rows_);
        made = {add_tensor(name, dtype, dynamic, {random_.between(1, 20)}, "inout"), "", {}, 0};
        made.rows = block_rows_;
      } else {
        made.tensor = random_.chance(30)
                          ? add_tensor(name, dtype, {width_}, {}, "inout")
                          : add_tensor(name, dtype, {}, {random_.between(1, 40)}, "inout");
        made.kind = is_float(dtype)
                        ? random_.pick({numbers_ == Numbers::Small ? "add" : "max", "max", "min"})
                        : random_.pick({"add", "max", "min", "and", "or", "xor"});
      }
      if (is_float(dtype)) made.tensor.range = Range::Wild;
      atomics_.push_back(std::move(made));
    }
  }

  // ---- launches ----

  void add_launch(size_t number) {
    const std::vector<Target>& targets = launches_[number];
    std::vector<Value> grid{blocks_};
    grid.insert(grid.end(), lead_.begin(), lead_.end());
    Attrs attrs;
    if (random_.chance(30)) attrs.set("rasterize", random_.between(1, 4));
    if (random_.chance(20)) attrs.set("warps", random_.pick({1, 2, 3, 4, 6, 8, 16}));
    RegionId region = builder_.add_region(builder_.emit(OpCode::Launch, grid, std::move(attrs)));
    std::vector<Value> block;
    for (size_t axis = 0; axis < grid.size(); ++axis)
      block.push_back(kernel_.add_argument(region, Type::scalar(I32)));
    {
      Builder::Scope inside(builder_, region);
      first_row_ = builder_.binary(OpCode::Mul, block[0], builder_.constant(I32, block_rows_));
      lead_index_.assign(block.begin() + 1, block.end());
      Scope scope = scope_;
      scope.scalars.insert(scope.scalars.begin(), block.begin(), block.end());
      scope.scalars.push_back(first_row_);
      scope.scalars.push_back(rows_);
      for (size_t i = 0; i < atomics_.size(); ++i) {
        AtomicTensor& to = atomics_[i];
        if (to.kind.empty()) to.start = own_start(), to.start.pop_back();
        if (launch_of(i) == number) scope.atomics.push_back(to);
      }
      for (const Target& target : targets) {
        if (target.role != "inout" || !random_.chance(85)) continue;
        AtomicTensor own{target.tensor, "", own_start(), block_rows_};
        own.start.pop_back();
        scope.owned.push_back(std::move(own));
      }
      Body body(builder_, random_, std::move(scope), numbers_);
      fill_launch(body, targets);
    }
    // What this launch wrote, later ones may read.
    for (const Target& target : targets)
      if (target.role != "output") scope_.tensors.push_back(target.tensor);
    for (size_t i = 0; i < atomics_.size(); ++i)
      if (launch_of(i) == number) scope_.tensors.push_back(atomics_[i].tensor);
  }
  size_t launch_of(size_t atomic) const { return atomic % launches_.size(); }

  void fill_launch(Body& body, const std::vector<Target>& targets) {
    for (int i = 0, n = static_cast<int>(random_.between(2, 4)); i < n; ++i) body.add_tile();
    for (const Target& target : targets)
      if (target.role == "inout") read_own_rows(body, target.tensor);
    const bool schedules = random_.chance(30);
    body.statements(static_cast<int>(random_.between(schedules ? 1 : 3, schedules ? 4 : 7)), 2);
    if (schedules) body.schedule(2);
    for (const Target& target : targets) write(body, target.tensor);
  }

  std::vector<Value> own_start() {
    std::vector<Value> start = lead_index_;
    start.push_back(first_row_);
    start.push_back(builder_.constant(I32, 0));
    return start;
  }
  Shape own_extents(const TensorInfo& tensor) const {
    Shape extents(lead_.size(), 1);
    extents.push_back(block_rows_);
    extents.push_back(tensor.shape.back());
    return extents;
  }

  void read_own_rows(Body& body, const TensorInfo& tensor) {
    TileInfo tile = body.make_tile(random_.pick({Space::Shared, Space::Fragment}), tensor.dtype,
                                   {block_rows_, tensor.shape.back()});
    Value rows = builder_.slice(tensor.value, own_start(), own_extents(tensor));
    builder_.emit(OpCode::Copy, {rows, tile.value});
    body.add_tile(tile);
  }

  // Every element of the block's rows: all from one tile, or from a loop, or filled and then a part
  // from a tile.
  void write(Body& body, const TensorInfo& tensor) {
    const Shape extents = own_extents(tensor);
    const std::vector<Value> start = own_start();
    if (random_.chance(25)) {
      body.elementwise(tensor, start, extents);
    } else {
      Value view = builder_.slice(tensor.value, start, extents);
      Shape shape{extents[extents.size() - 2], extents.back()};
      if (random_.chance(25)) {
        body.fill(view, tensor.dtype);
        std::vector<Value> at(lead_.size(), builder_.constant(I32, 0));
        Shape part(lead_.size(), 1);
        for (int64_t& extent : shape) {
          const int64_t size = random_.between(1, extent);
          at.push_back(body.views().small(0, extent - size));
          part.push_back(extent = size);
        }
        view = builder_.slice(view, at, part);
      }
      TileInfo tile =
          body.make_tile(random_.pick({Space::Shared, Space::Fragment}), tensor.dtype, shape);
      body.fill(tile.value, tile.dtype);
      body.elementwise({tile}, Body::kResultsMixed);
      builder_.emit(OpCode::Copy, {tile.value, view});
    }
    if (random_.chance(20)) write_element(body, tensor);
    if (random_.chance(15)) scatter_rows(body, tensor);
  }

  // Some of the block's rows once more.
  void scatter_rows(Body& body, const TensorInfo& tensor) {
    const int64_t count = random_.pick({1, 3, 8});
    TileInfo tile = body.make_tile(random_.pick({Space::Shared, Space::Fragment}), tensor.dtype,
                                   {count, tensor.shape.back()});
    body.fill(tile.value, tile.dtype);
    body.elementwise({tile});
    Value numbers = body.distinct_rows(count, block_rows_);
    Value rows = builder_.slice(tensor.value, own_start(), own_extents(tensor));
    builder_.emit(OpCode::Scatter, {tile.value, numbers, rows});
  }

  void write_element(Body& body, const TensorInfo& tensor) {
    std::vector<Value> at = lead_index_;
    Value row = body.views().traced(0, block_rows_ - 1);
    at.push_back(builder_.binary(OpCode::Add, first_row_, row));
    at.push_back(body.views().traced(-1, tensor.shape.back()));
    builder_.store(body.scalar_value(tensor.dtype), tensor.value, at);
  }

  // As the kernel's user may wish: any passes that are not needed.
  void leave_out_passes() {
    const int percent = random_.pick({15, 15, 15, 60, 100});
    for (const Pass& pass : all_passes()) {
      if (!pass.optional || !random_.chance(percent)) continue;
      kernel_.without += (kernel_.without.empty() ? "" : " ") + std::string(pass.name);
    }
  }

  Random random_;
  Kernel kernel_;
  Builder builder_;
  Numbers numbers_ = Numbers::Small;
  std::map<std::string, int64_t> dims_;
  Value rows_, blocks_, width_, length_;
  std::vector<Value> lead_;
  int64_t block_rows_ = 1;
  Scope scope_;  // what all launches share
  std::vector<std::vector<Target>> launches_;
  std::vector<AtomicTensor> atomics_;
  Value first_row_;                // of the launch under construction
  std::vector<Value> lead_index_;  // likewise
};

}  // namespace

Program generate(uint64_t seed) {
  return Generator(seed).run();
}

}  // namespace kiln::differential
