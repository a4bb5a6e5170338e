// Structure: launches, loops, branches, storage. Blocks run one after the other, each region's ops
// in order. A `selected` loop collects its indices before its first iteration.
#include "ir/interp.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/error.h"
#include "ir/interp_impl.h"
#include "ir/report.h"
#include "ir/walk.h"

namespace kiln::interp {

// Contents of a new workspace: not a number in every float format, −1, true.
static constexpr std::byte kPoison{0xFF};

Interpreter::Interpreter(const Kernel& kernel, const Bindings& bindings,
                         const InterpOptions& options)
    : kernel_(kernel),
      options_(options),
      top_(kernel, bindings.dims, bindings.params),
      scalars_(kernel.value_count()),
      views_(kernel.value_count()),
      storages_(kernel.value_count()),
      reshaped_(reshaped_tiles(kernel)),
      random_(options.seed),
      work_(options.async, random_) {
  for (OpId id : kernel_.region(kernel_.body).ops) {
    const Op& op = kernel_.op(id);
    if (op.code == OpCode::Tensor) {
      bind(op, bindings);
    } else if (op.result) {
      scalars_[op.result.id] = top_.scalar(op.result);
    }
    for (RegionId region : op.regions) decode(region);
  }
}

void Interpreter::decode(RegionId region) {
  if (code_.size() <= region.id) code_.resize(region.id + 1);
  std::vector<Inst> code;
  for (OpId id : kernel_.region(region).ops) {
    const Op& op = kernel_.op(id);
    Inst inst{&op, op.result ? dtype(op.result) : I32, Comparison::Eq, {}};
    if (op.code == OpCode::Compare) inst.comparison = comparison_of(op);
    if (op.code == OpCode::Const) inst.constant = constant_value(kernel_, op);
    if (op.code == OpCode::Parallel) {
      ParallelPlan plan{op.ints("extents"), {}};
      for (const Access& access : accesses_deep(kernel_, op))
        if (access.effect != Effect::Read && kernel_.type(access.base).space != Space::Local)
          plan.stored.push_back(access.base);
      plans_.emplace(&op, std::move(plan));
    }
    code.push_back(inst);
    for (RegionId inner : op.regions) decode(inner);
  }
  code_[region.id] = std::move(code);
}

// What the runtime checks more fully before it gets here; a mistake must not become a wild access.
static void check_binding(const Op& op, const Type& type, const Shape& shape,
                          const Memory& memory) {
  const std::string& name = op.word("name");
  if (memory.dtype != type.dtype)
    throw UserError(op.loc, fmt::format("tensor '{}': expected {}, got {}", name,
                                        kiln::name(type.dtype), kiln::name(memory.dtype)));
  if (memory.shape != shape)
    throw UserError(op.loc, fmt::format("tensor '{}': expected shape {}, got {}", name, str(shape),
                                        str(memory.shape)));
  if (memory.strides.size() != shape.size())
    throw UserError(op.loc, fmt::format("tensor '{}': expected {} strides, got {}", name,
                                        shape.size(), memory.strides.size()));
  if (!memory.data && count(shape) > 0)
    throw UserError(op.loc, fmt::format("tensor '{}': expected memory for {} elements, got none",
                                        name, count(shape)));
}

static std::vector<std::byte> poisoned(const std::string& name, size_t bytes) {
  try {
    return std::vector<std::byte>(bytes, kPoison);
  } catch (const std::exception&) {
    throw DeviceError(fmt::format("no memory for the {} bytes of workspace '{}'", bytes, name));
  }
}

void Interpreter::bind(const Op& op, const Bindings& bindings) {
  const std::string& name = op.word("name");
  const Type& type = kernel_.type(op.result);
  Shape shape = top_.shape(op);
  Memory memory;
  if (op.word("role") == "workspace") {
    workspaces_.push_back(poisoned(name, static_cast<size_t>(count(shape)) * size_of(type.dtype)));
    memory = Memory::contiguous(workspaces_.back().data(), type.dtype, shape);
  } else {
    auto found = bindings.tensors.find(name);
    if (found == bindings.tensors.end())
      throw UserError(op.loc, fmt::format("tensor '{}' is not bound: expected {} of shape {}", name,
                                          kiln::name(type.dtype), str(shape)));
    memory = found->second;
    check_binding(op, type, shape, memory);
  }
  auto storage = std::make_unique<Storage>();
  storage->type = type;
  storage->extents = shape;
  storage->strides = memory.strides;
  // Never null, so that it tells tensors from tiles; an empty tensor is not accessed.
  storage->bytes = memory.data ? static_cast<std::byte*>(memory.data)
                               : reinterpret_cast<std::byte*>(storage.get());
  views_[op.result.id] = View::whole(*storage);
  storages_[op.result.id] = std::move(storage);
}

void Interpreter::run() {
  for (OpId id : kernel_.region(kernel_.body).ops)
    if (kernel_.op(id).code == OpCode::Launch) run_launch(kernel_.op(id));
  if (failed_.op) throw assertion_error(failed_.op->loc, failed_.op->word("text"), failed_.block);
}

void Interpreter::run_launch(const Op& op) {
  const std::vector<int64_t> grid = top_.grid(op);
  const std::vector<Value>& args = kernel_.region(op.regions[0]).args;
  blocks_ = grid[0] * grid[1] * grid[2];
  for (int64_t i = 0; i < blocks_; ++i) {
    int64_t block = options_.reverse_blocks ? blocks_ - 1 - i : i;
    int64_t index[] = {block % grid[0], block / grid[0] % grid[1], block / (grid[0] * grid[1])};
    for (size_t axis = 0; axis < args.size(); ++axis) set_i32(args[axis], index[axis]);
    block_ = {index[0], index[1], index[2]};
    start_block();
    run_scope(op.regions[0]);
    end_agent();
    for (const auto& [id, channel] : channels_) check_drained(*channel);
  }
}

void Interpreter::run_region(RegionId region) {
  for (const Inst& inst : code_[region.id]) run_inst(inst);
}

void Interpreter::run_inst(const Inst& inst) {
  const Op& op = *inst.op;
  switch (op.code) {
    case OpCode::Const: scalars_[op.result.id] = inst.constant; return;
    case OpCode::For: return run_for(op);
    case OpCode::Selected: return run_selected(op);
    case OpCode::If: {
      size_t branch = integer(op.operands[0]) ? 0 : 1;
      if (branch < op.regions.size()) run_scope(op.regions[branch]);
      return;
    }
    case OpCode::Parallel: return run_parallel(op);
    case OpCode::Alloc: return run_alloc(op);
    case OpCode::Reshape: return run_reshape(op);
    case OpCode::Slice: return run_slice(op);
    case OpCode::Every: return run_every(op);
    case OpCode::Load: return run_load(op);
    case OpCode::Store: return run_store(op);
    case OpCode::Atomic: return run_atomic(op);
    case OpCode::Gather: return run_gather(*this, op);
    case OpCode::Scatter: return run_scatter(*this, op);
    case OpCode::DeviceAssert: return run_device_assert(op);
    case OpCode::Watch: return run_watch(op);
    case OpCode::Copy:
    case OpCode::Convert: return run_copy(*this, op);
    case OpCode::Barrier:  // a block is one thread here
    case OpCode::WaitCopies: return;
    case OpCode::CommitCopies: ++committed_; return;
    case OpCode::Fill: return run_fill(*this, op);
    case OpCode::Gemm: return run_gemm(*this, op);
    case OpCode::Reduce: return run_reduce(*this, op);
    case OpCode::ArgReduce: return run_arg_reduce(*this, op);
    case OpCode::Cumsum: return run_cumsum(*this, op);
    case OpCode::Sort: return run_sort(*this, op);
    case OpCode::SoftmaxStep: return run_softmax_step(*this, op);
    case OpCode::ScaleRows: return run_scale_rows(*this, op);
    case OpCode::SoftmaxFinish: return run_softmax_finish(*this, op);
    case OpCode::Roles: return run_roles(op);
    case OpCode::Loop: return run_loop(op);
    case OpCode::Channel: return run_channel(op);
    case OpCode::PushBegin: return run_push_begin(op);
    case OpCode::PushEnd: return run_push_end(op);
    case OpCode::Pop: return run_pop(op);
    case OpCode::Held: return run_held(op);
    case OpCode::Message: return run_message(op);
    case OpCode::Release: return run_release(op);
    case OpCode::CopyAsync: return run_copy_async(op);
    case OpCode::StoreAsync: return run_store_async(op);
    case OpCode::AwaitStores: return run_await_stores(op);
    case OpCode::GemmAsync: return run_gemm_async(op);
    case OpCode::Await: return run_await(op);
    case OpCode::NextTile: return run_next_tile(op);
    default: return run_scalar(inst);
  }
}

void Interpreter::run_scalar(const Inst& inst) {
  const Op& op = *inst.op;
  if (!is_scalar_op(op.code))
    throw InternalError(op.loc, fmt::format("{} inside a launch", info(op.code).name));
  Scalar in[3];
  for (size_t i = 0; i < op.operands.size(); ++i) in[i] = scalar(op.operands[i]);
  scalars_[op.result.id] = apply(op.code, inst.result, inst.comparison, in);
}

void Interpreter::run_for(const Op& op) {
  int64_t begin = integer(op.operands[0]), end = integer(op.operands[1]);
  int64_t step = integer(op.operands[2]);
  if (step <= 0) throw UserError(op.loc, fmt::format("for: expected a step above 0, got {}", step));
  for (int64_t i = begin; i < end; i += step) {
    set_i32(kernel_.region(op.regions[0]).args[0], i);
    run_scope(op.regions[0]);
  }
}

std::vector<int64_t> Interpreter::selected_indices(const Op& op) const {
  const View& row = view(op.operands[0]);
  const bool is_list = dtype(op.operands[0]) == I32;
  int64_t length = count(row.extents);
  if (is_list && op.operand(2)) length = std::min(length, integer(op.operands[2]));
  const int64_t limit = op.operand(1) ? integer(op.operands[1]) : INT64_MAX;

  std::vector<int64_t> indices;
  std::unordered_set<int64_t> seen;
  Shape at(row.extents.size(), 0);
  auto axis =
      std::find_if(row.extents.begin(), row.extents.end(), [](int64_t e) { return e != 1; });
  for (int64_t i = 0; i < length; ++i) {
    if (axis != row.extents.end()) at[static_cast<size_t>(axis - row.extents.begin())] = i;
    auto offset = row.locate(at.data());
    if (!offset) continue;  // beyond the tensor nothing is selected
    int64_t element = read_element(op, *row.base, *offset).i;
    if (!is_list && element == 0) continue;
    int64_t index = is_list ? element : i;
    if (index >= 0 && index < limit && seen.insert(index).second) indices.push_back(index);
  }
  if (options_.reverse_selected && !op.flag("ordered"))
    std::reverse(indices.begin(), indices.end());
  return indices;
}

void Interpreter::run_selected(const Op& op) {
  for (int64_t index : selected_indices(op)) {
    set_i32(kernel_.region(op.regions[0]).args[0], index);
    run_scope(op.regions[0]);
  }
}

void Interpreter::run_parallel(const Op& op) {
  const ParallelPlan& plan = plans_.at(&op);
  const std::vector<Value>& args = kernel_.region(op.regions[0]).args;
  std::vector<Storage*> stored;
  for (Value base : plan.stored) stored.push_back(view(base).base);
  races_.begin(plan.extents, stored);
  const int64_t points = count(plan.extents);
  for (Value arg : args) set_i32(arg, 0);
  for (int64_t point = 0; point < points; ++point) {
    races_.enter(static_cast<uint64_t>(point));
    run_region(op.regions[0]);
    for (size_t axis = args.size(); axis-- > 0;) {
      if (++scalars_[args[axis].id].i < plan.extents[axis]) break;
      scalars_[args[axis].id].i = 0;
    }
  }
  races_.end();
}

void Interpreter::run_alloc(const Op& op) {
  std::unique_ptr<Storage>& storage = storages_[op.result.id];
  if (storage) {
    check_access(op, view(op.result), Effect::Write);
    storage->forget();
    return;
  }
  storage = std::make_unique<Storage>(
      new_tile(kernel_.type(op.result), reshaped_.contains(op.result.id)));
  views_[op.result.id] = View::whole(*storage);
}

// The values of operands[first…] in a buffer that the next call overwrites.
const int64_t* Interpreter::index_of(const Op& op, size_t first) {
  index_.clear();
  for (size_t i = first; i < op.operands.size(); ++i) index_.push_back(integer(op.operands[i]));
  return index_.data();
}

void Interpreter::run_reshape(const Op& op) {
  std::unique_ptr<Storage>& storage = storages_[op.result.id];
  if (storage) return;  // a tile stays where it is
  storage =
      std::make_unique<Storage>(reshaped(*view(op.operands[0]).base, kernel_.type(op.result)));
  views_[op.result.id] = View::whole(*storage);
}

void Interpreter::run_slice(const Op& op) {
  index_of(op, 1);
  const View& from = view(op.operands[0]);
  const Shape& shape = kernel_.type(op.result).shape;
  const size_t lacking = index_.size() - shape.size();
  for (size_t axis = 0; axis < lacking; ++axis)
    if (index_[axis] < 0 || index_[axis] >= from.extents[axis])
      throw UserError(
          op.loc, fmt::format("slice: place {} on axis {} of {}, which has {}", index_[axis], axis,
                              str(kernel_.type(op.operands[0])), from.extents[axis]));
  views_[op.result.id] = from.slice(index_, shape);
}

void Interpreter::run_every(const Op& op) {
  views_[op.result.id] =
      view(op.operands[0])
          .every(static_cast<size_t>(op.integer("axis")), scalar(op.operands[1]).i,
                 scalar(op.operands[2]).i, op.integer("step"));
}

// Of the view, the element at index_.
void Interpreter::check_element(const Op& op, const View& view, Effect effect) const {
  if (view.base->slot || work_.uses(view.base->marks()))
    check_access(op, view.slice(index_, Shape(index_.size(), 1)), effect);
}

void Interpreter::run_load(const Op& op) {
  const View& from = view(op.operands[0]);
  Scalar value = convert(Scalar::of_int(I32, 0), from.base->type.dtype);
  if (auto offset = from.locate(index_of(op, 1))) {
    check_element(op, from, Effect::Read);
    races_.read(op, *from.base, *offset);
    value = read_element(op, *from.base, *offset);
  }
  scalars_[op.result.id] = value;
}

void Interpreter::run_store(const Op& op) {
  const View& into = view(op.operands[1]);
  if (auto offset = into.locate(index_of(op, 2))) {
    check_element(op, into, Effect::Write);
    races_.write(op, *into.base, *offset);
    write_element(*into.base, *offset, convert(scalar(op.operands[0]), into.base->type.dtype));
  }
}

static Scalar combined(const std::string& kind, DType dtype, const Scalar& old,
                       const Scalar& value) {
  if (kind == "exchange") return value;
  const OpCode code = kind == "add"   ? OpCode::Add
                      : kind == "max" ? OpCode::Max
                      : kind == "min" ? OpCode::Min
                      : kind == "and" ? OpCode::And
                      : kind == "or"  ? OpCode::Or
                                      : OpCode::Xor;
  const Scalar in[] = {old, value};
  return apply(code, dtype, Comparison::Eq, in);
}

void Interpreter::run_atomic(const Op& op) {
  const View& at = view(op.operands[1]);
  const DType dtype = at.base->type.dtype;
  Scalar old = convert(Scalar::of_int(I32, 0), dtype);
  if (auto offset = at.locate(index_of(op, 2))) {
    check_element(op, at, Effect::Update);
    races_.atomic(op, *at.base, *offset);
    old = read_element(op, *at.base, *offset);
    write_element(*at.base, *offset, combined(op.word("kind"), dtype, old, scalar(op.operands[0])));
  }
  scalars_[op.result.id] = old;
}

}  // namespace kiln::interp

namespace kiln {

void interpret(const Kernel& kernel, const Bindings& bindings, const InterpOptions& options) {
  interp::Interpreter(kernel, bindings, options).run();
}

}  // namespace kiln
