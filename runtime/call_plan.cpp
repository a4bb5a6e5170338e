#include "runtime/call_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "ir/error.h"
#include "runtime/launch.h"
#include "runtime/overlap.h"

namespace kiln {
namespace {

// What sizes are computed with, without a walk through the op: ceildiv, products, clamps.
bool is_size_arithmetic(OpCode code) {
  return code == OpCode::Add || code == OpCode::Sub || code == OpCode::Mul ||
         code == OpCode::FloorDiv || code == OpCode::Min || code == OpCode::Max;
}

// The meaning of those ops in i32 (ir/ops.def).
int64_t size_arithmetic(OpCode code, int64_t a, int64_t b) {
  switch (code) {
    case OpCode::Add: return static_cast<int32_t>(a + b);
    case OpCode::Sub: return static_cast<int32_t>(a - b);
    case OpCode::Mul: return static_cast<int32_t>(a * b);
    case OpCode::Min: return std::min(a, b);
    case OpCode::Max: return std::max(a, b);
    default: break;
  }
  if (b == 0) return 0;
  if (a >= 0 && b > 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);  // quicker
  return static_cast<int32_t>(a / b - (a % b != 0 && (a < 0) != (b < 0)));
}

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();  // dims are i32
constexpr int64_t kMaxBlocks = std::numeric_limits<int32_t>::max();  // of a launch

}  // namespace

// Numbers the scalars of the top level that grids, extents and workspaces depend on, and finds what
// each slot is.
class CallPlan::Maker {
 public:
  explicit Maker(CallPlan& plan) : plan_(plan), kernel_(plan.signature_.kernel()) {}

  void make(std::span<const std::vector<Slot>> launches) {
    find_needed(launches);
    number_scalars();
    for (const TensorInfo& tensor : plan_.signature_.tensors()) add_tensor(tensor);
    for (OpId id : plan_.workspace_ops_) add_workspace(kernel_.op(id));
    for (const std::string& dim : plan_.signature_.dims())
      if (!decided_.contains(dim)) {
        plan_.free_dims_.push_back(dim);
        plan_.free_dim_values_.push_back(value_of_name(dim));
      }
    for (const ParamInfo& param : plan_.signature_.params())
      plan_.param_values_.push_back(value_of_name(param.name));
    for (size_t i = 0; i < launches.size(); ++i)
      add_launch(kernel_.op(launch_ops_[i]), launches[i]);
  }

 private:
  const std::vector<OpId>& top() const { return kernel_.region(kernel_.body).ops; }

  void find_needed(std::span<const std::vector<Slot>> launches) {
    std::set<std::string_view> used;
    for (const std::vector<Slot>& slots : launches)
      for (const Slot& slot : slots) used.insert(slot.name);
    for (OpId id : top()) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Launch) launch_ops_.push_back(id);
      const bool workspace = op.code == OpCode::Tensor && op.word("role") == "workspace";
      if (workspace && used.contains(op.word("name"))) plan_.workspace_ops_.push_back(id);
      // A slot passes a dim's value, so it is needed even where the host computes nothing of it.
      if (op.code == OpCode::Dim) need(op.result);
      if (op.code == OpCode::Launch || (op.code == OpCode::Tensor && !workspace))
        for (Value operand : op.operands) need(operand);
    }
    for (OpId id : plan_.workspace_ops_)
      for (Value operand : kernel_.op(id).operands) need(operand);
    if (launch_ops_.size() != launches.size())
      throw InternalError(fmt::format("{}: {} launches were compiled to {}", kernel_.name,
                                      launch_ops_.size(), launches.size()));
  }

  void need(Value value) {
    if (!value || !needed_.insert(value.id).second) return;
    for (Value operand : kernel_.op(kernel_.def(value)).operands) need(operand);
  }

  void number_scalars() {
    for (OpId id : top()) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Tensor || !op.result || !needed_.contains(op.result.id)) continue;
      const int value = static_cast<int>(plan_.initial_.size());
      numbers_[op.result.id] = value;
      Scalar scalar;
      scalar.dtype = kernel_.type(op.result).dtype;
      if (op.code == OpCode::Const) {
        scalar = constant_value(kernel_, op);
      } else if (op.code == OpCode::Dim || op.code == OpCode::Param) {
        names_[op.word("name")] = value;
      } else {
        Step step{id, value, {}};
        for (Value operand : op.operands) step.operands.push_back(number(operand));
        step.code = op.code;
        step.extent = scalar.dtype == I32 && is_size_arithmetic(op.code);
        if (step.extent) step.left = step.operands[0], step.right = step.operands[1];
        plan_.steps_.push_back(std::move(step));
      }
      plan_.initial_.push_back(scalar);
    }
  }

  int number(Value value) const { return numbers_.at(value.id); }
  // A constant as one of the values, so that all extents are found in one way.
  int constant(int64_t extent) {
    const auto [known, is_new] = constants_.emplace(extent, plan_.initial_.size());
    if (is_new) plan_.initial_.push_back(Scalar::of_int(I64, extent));
    return known->second;
  }
  int value_of_name(const std::string& name) const {
    auto it = names_.find(name);
    return it == names_.end() ? kNone : it->second;
  }

  void add_tensor(const TensorInfo& tensor) {
    TensorPlan plan{tensor.dtype, {}, tensor.written()};
    for (const AxisInfo& info : tensor.axes) {
      Axis axis{info.value ? number(info.value) : constant(info.extent)};
      axis.decides = !info.dim.empty() && decided_.insert(info.dim).second;
      axis.computed = info.value && info.dim.empty();
      if (axis.computed)
        plan_.computed_.push_back(
            {plan_.tensors_.size(), plan.axes.size(), static_cast<size_t>(axis.value)});
      plan.axes.push_back(axis);
    }
    tensor_indices_[tensor.name] = static_cast<int>(plan_.tensors_.size());
    plan_.tensors_.push_back(std::move(plan));
  }

  void add_workspace(const Op& op) {
    const Type& type = kernel_.type(op.result);
    TensorPlan plan{type.dtype, {}, true};
    size_t next = 0;
    for (int64_t extent : type.shape)
      plan.axes.push_back(
          {extent == kDynamic ? number(op.operands[next++]) : constant(extent), false, true});
    tensor_indices_[op.word("name")] =
        static_cast<int>(plan_.tensors_.size() + plan_.workspaces_.size());
    plan_.workspaces_.push_back(std::move(plan));
    plan_.workspace_names_.push_back(op.word("name"));
  }

  void add_launch(const Op& op, const std::vector<Slot>& slots) {
    LaunchPlan plan{{kNone, kNone, kNone}, {}, {}, 0};
    for (size_t axis = 0; axis < op.operands.size(); ++axis)
      plan.grid[axis] = number(op.operands[axis]);
    for (const Slot& slot : slots) {
      if (slot.kind != Slot::Kind::Map) {
        const Source own = source(slot);
        if (plan.slots.empty() || !extend(plan.slots.back(), own)) plan.slots.push_back(own);
        ++plan.slot_count;
      } else if (plan.slots.empty()) {
        plan.maps.push_back(map_source(slot));
      } else {
        throw InternalError(fmt::format("{}: a map after other slots", kernel_.name));
      }
    }
    plan_.launches_.push_back(std::move(plan));
  }

  // A tensor's address and strides of its axes, one after another, are one source.
  static bool extend(Source& last, const Source& next) {
    const bool holds_tensor = last.kind == Slot::Kind::Pointer || last.kind == Slot::Kind::Stride;
    if (!holds_tensor || next.kind != Slot::Kind::Stride || next.index != last.index) return false;
    if (last.strides == 0) last.axis = next.axis;
    if (next.axis != last.axis + last.strides) return false;
    ++last.strides;
    return true;
  }

  InternalError unknown(const Slot& slot) const {
    return InternalError(fmt::format("{}: the code asks for '{}', which the kernel does not have",
                                     kernel_.name, slot.name));
  }

  Source source(const Slot& slot) const {
    if (slot.kind == Slot::Kind::Dim) {
      const int value = value_of_name(slot.name);
      if (!plan_.signature_.has_dim(slot.name) || value == kNone) throw unknown(slot);
      return {slot.kind, value, 0};
    }
    if (slot.kind == Slot::Kind::Param) {
      const ParamInfo* param = plan_.signature_.param(slot.name);
      if (!param) throw unknown(slot);
      return {slot.kind, static_cast<int>(param - plan_.signature_.params().data()), 0};
    }
    const auto [tensor, plan] = tensor_of(slot);
    if (slot.kind == Slot::Kind::Stride && slot.axis >= static_cast<int>(plan->axes.size()))
      throw unknown(slot);
    return {slot.kind, tensor, slot.axis, slot.kind == Slot::Kind::Stride ? 1 : 0};
  }

  MapSource map_source(const Slot& slot) const {
    const auto [tensor, plan] = tensor_of(slot);
    return {slot.map, tensor, slot.name, plan->dtype, static_cast<int>(plan->axes.size())};
  }

  std::pair<int, const TensorPlan*> tensor_of(const Slot& slot) const {
    auto it = tensor_indices_.find(slot.name);
    if (it == tensor_indices_.end()) throw unknown(slot);
    const size_t index = static_cast<size_t>(it->second), inputs = plan_.tensors_.size();
    return {it->second,
            index < inputs ? &plan_.tensors_[index] : &plan_.workspaces_[index - inputs]};
  }

  CallPlan& plan_;
  const Kernel& kernel_;
  std::vector<OpId> launch_ops_;
  std::set<uint32_t> needed_;        // values
  std::map<uint32_t, int> numbers_;  // of values
  std::map<int64_t, int> constants_;
  std::map<std::string, int> names_;  // of dims and params that are numbered
  std::map<std::string, int> tensor_indices_;
  std::set<std::string> decided_;  // dims that a tensor tells
};

CallPlan::CallPlan(Signature signature, std::span<const std::vector<Slot>> launches,
                   const GridLimits& grid_limits)
    : signature_(std::move(signature)), grid_limits_(grid_limits) {
  Maker(*this).make(launches);
}

CallPlan::Frame& CallPlan::thread_frame() {
  thread_local Frame frame;
  return frame;
}

bool CallPlan::accepts_tensors(const CallArguments& arguments, Scalar* values) const {
  const Memory* const* next = arguments.tensors.data();
  for (const TensorPlan& plan : tensors_) {
    const Memory* memory = *next++;
    const size_t rank = plan.axes.size();
    if (!memory || memory->dtype != plan.dtype || memory->shape.size() != rank ||
        memory->strides.size() != rank)
      return false;
    const int64_t *shape = memory->shape.data(), *strides = memory->strides.data();
    uint64_t extents = 0, distances = 0;  // all bits that are set in any of them
    bool empty = false;
    for (const Axis& axis : plan.axes) {
      const int64_t extent = *shape++, stride = *strides++;
      if (axis.decides)
        values[axis.value].i = extent;
      else if (values[axis.value].i != extent && !axis.computed)
        return false;
      empty |= extent == 0;
      extents |= static_cast<uint64_t>(extent);
      distances |= static_cast<uint64_t>(stride ^ (stride >> 63));
    }
    if (extents > uint64_t{kMaxExtent}) return false;  // or negative
    if (!empty && !accepts_layout(plan, *memory, extents, distances)) return false;
  }
  return true;
}

// Of a tensor with elements: the last axis contiguous, nothing written twice, all of it in the
// address space, its address aligned.
bool CallPlan::accepts_layout(const TensorPlan& plan, const Memory& memory, uint64_t extents,
                              uint64_t distances) {
  const size_t rank = plan.axes.size();
  const uintptr_t misaligned = size_of(plan.dtype) - 1;  // sizes are powers of 2
  if (!memory.data || (reinterpret_cast<uintptr_t>(memory.data) & misaligned) != 0) return false;
  if (rank > 0 && memory.shape[rank - 1] != 1 && memory.strides[rank - 1] != 1) return false;
  for (size_t i = 0; plan.written && i < rank; ++i)
    if (memory.strides[i] == 0 && memory.shape[i] > 1) return false;
  // 8 axes of 2^24 elements of 8 bytes that are 2^32 apart are less than 2^62 bytes.
  const bool near = rank <= 8 && extents < 1u << 24 && distances < uint64_t{1} << 32;
  return near || byte_extent(memory).fits;
}

bool CallPlan::accepts_grid(const std::array<int64_t, 3>& blocks) const {
  int64_t all = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (blocks[axis] < 0 || blocks[axis] > grid_limits_[axis]) return false;
    if (blocks[axis] == 0) all = 0;
  }
  if (all == 0) return true;
  const int64_t plane = blocks[0] * blocks[1];  // each is below 2^31
  return plane <= kMaxBlocks && plane * blocks[2] <= kMaxBlocks;
}

bool CallPlan::accepts(const CallArguments& arguments, Frame& frame) const {
  if (arguments.tensors.size() != tensors_.size() ||
      arguments.params.size() != param_values_.size() || arguments.dims.size() != free_dims_.size())
    return false;
  frame.values = initial_;
  Scalar* const values = frame.values.data();
  if (!accepts_tensors(arguments, values)) return false;
  for (size_t i = 0; i < free_dims_.size(); ++i) {
    const int64_t dim = arguments.dims[i];
    if (dim < 0 || dim > kMaxExtent) return false;
    values[free_dim_values_[i]].i = dim;
  }
  for (size_t i = 0; i < param_values_.size(); ++i) {
    const Scalar& param = arguments.params[i];
    if (param.dtype != signature_.params()[i].dtype) return false;
    if (param_values_[i] != kNone) values[param_values_[i]] = param;
  }
  const Kernel& kernel = signature_.kernel();
  for (const Step& step : steps_) {
    if (step.extent) [[likely]] {
      values[step.value].i = size_arithmetic(step.code, values[step.left].i, values[step.right].i);
      continue;
    }
    frame.operands.clear();
    for (int operand : step.operands) frame.operands.push_back(values[operand]);
    values[step.value] = evaluate(kernel, kernel.op(step.op), frame.operands);
  }
  for (const ComputedAxis& one : computed_)
    if (values[one.value].i != arguments.tensors[one.tensor]->shape[one.axis]) return false;
  for (size_t launch = 0; launch < launches_.size(); ++launch)
    if (!accepts_grid(grid(launch, frame))) return false;
  return shape_workspaces(frame);
}

bool CallPlan::shape_workspaces(Frame& frame) const {
  if (frame.workspaces.size() < workspaces_.size()) frame.workspaces.resize(workspaces_.size());
  for (size_t i = 0; i < workspaces_.size(); ++i) {
    const TensorPlan& plan = workspaces_[i];
    Memory& memory = frame.workspaces[i];
    memory.data = nullptr;
    memory.dtype = plan.dtype;
    memory.shape.resize(plan.axes.size());
    memory.strides.resize(plan.axes.size());
    int64_t elements = 1;
    for (size_t k = plan.axes.size(); k-- > 0;) {
      const Axis& axis = plan.axes[k];
      const int64_t extent = frame.values[static_cast<size_t>(axis.value)].i;
      memory.shape[k] = extent;
      memory.strides[k] = elements;
      // 2^50 elements are more than any machine has, and sums of their bytes cannot overflow.
      if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements) ||
          elements > int64_t{1} << 50)
        return false;
    }
  }
  return true;
}

std::array<int64_t, 3> CallPlan::grid(size_t launch, const Frame& frame) const {
  std::array<int64_t, 3> blocks = {1, 1, 1};
  for (size_t axis = 0; axis < 3; ++axis)
    if (const int value = launches_[launch].grid[axis]; value != kNone)
      blocks[axis] = frame.values[static_cast<size_t>(value)].i;
  return blocks;
}

uint64_t CallPlan::workspace_bytes(const Frame& frame) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < workspaces_.size(); ++i)
    bytes += aligned(bytes_of(frame.workspaces[i].dtype, frame.workspaces[i].shape));
  return bytes;
}

const Memory& CallPlan::workspace_named(std::string_view name, const Frame& frame) const {
  const auto found = std::find(workspace_names_.begin(), workspace_names_.end(), name);
  if (found == workspace_names_.end()) throw InternalError(fmt::format("no workspace '{}'", name));
  return frame.workspaces[static_cast<size_t>(found - workspace_names_.begin())];
}

void CallPlan::place_workspaces(void* memory, Frame& frame) const {
  char* next = static_cast<char*>(memory);
  for (size_t i = 0; i < workspaces_.size(); ++i) {
    frame.workspaces[i].data = next;
    next += aligned(bytes_of(frame.workspaces[i].dtype, frame.workspaces[i].shape));
  }
}

void CallPlan::fill_slots(size_t launch, const CallArguments& arguments, const Frame& frame,
                          uint64_t* parameters) const {
  const LaunchPlan& plan = launches_[launch];
  uint64_t* slots = parameters + kMapWords * plan.maps.size();
  for (const Source& source : plan.slots) {
    switch (source.kind) {
      case Slot::Kind::Pointer:
      case Slot::Kind::Stride: {
        const Memory& tensor = tensor_of(source.index, arguments, frame);
        if (source.kind == Slot::Kind::Pointer) *slots++ = reinterpret_cast<uint64_t>(tensor.data);
        const int64_t* stride = tensor.strides.data() + source.axis;
        for (int i = 0; i < source.strides; ++i) *slots++ = static_cast<uint64_t>(*stride++);
        break;
      }
      case Slot::Kind::Dim:
        *slots++ = static_cast<uint64_t>(frame.values[static_cast<size_t>(source.index)].i);
        break;
      case Slot::Kind::Param:
        *slots = 0;
        store_element(arguments.params[static_cast<size_t>(source.index)], slots++);
        break;
      case Slot::Kind::Map: break;  // not among these
    }
  }
}

CallPlan::Positional CallPlan::positional(const Bindings& bindings) const {
  Positional result;
  const auto find = [&](const auto& map, const std::string& name) -> const auto& {
    auto it = map.find(name);
    if (it == map.end())
      throw UserError(fmt::format("{}: missing {}", signature_.kernel().name, name),
                      "it takes " + signature_.text());
    return it->second;
  };
  for (const TensorInfo& tensor : signature_.tensors())
    result.tensors.push_back(&find(bindings.tensors, tensor.name));
  for (const ParamInfo& param : signature_.params())
    result.params.push_back(find(bindings.params, param.name));
  for (const std::string& dim : free_dims_) result.dims.push_back(find(bindings.dims, dim));
  return result;
}

Arguments CallPlan::by_name(const CallArguments& arguments) const {
  const std::string& name = signature_.kernel().name;
  const auto check_count = [&](const char* what, size_t expected, size_t got) {
    if (expected != got)
      throw UserError(fmt::format("{}: expected {} {}, got {}", name, expected, what, got),
                      "it takes " + signature_.text());
  };
  check_count("tensors", tensors_.size(), arguments.tensors.size());
  check_count("params", param_values_.size(), arguments.params.size());
  check_count("dims", free_dims_.size(), arguments.dims.size());
  Arguments by_name;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (arguments.tensors[i]) by_name.tensor(signature_.tensors()[i].name, *arguments.tensors[i]);
  for (size_t i = 0; i < free_dims_.size(); ++i) by_name.dim(free_dims_[i], arguments.dims[i]);
  for (size_t i = 0; i < param_values_.size(); ++i) {
    const ParamInfo& param = signature_.params()[i];
    if (param.dtype != arguments.params[i].dtype)
      throw UserError(fmt::format("{}: {}: expected {}, got {}", name, param.name,
                                  kiln::name(param.dtype), kiln::name(arguments.params[i].dtype)),
                      fmt::format("Scalar::of_{}({}, …)", is_float(param.dtype) ? "float" : "int",
                                  kiln::name(param.dtype)));
    by_name.param(param.name, arguments.params[i]);
  }
  return by_name;
}

// Finds out at leisure what is wrong: by names, with the sentences of bind.
void CallPlan::refuse(const CallArguments& arguments) const {
  const Bindings bindings = bind(signature_, by_name(arguments));
  const Kernel& kernel = signature_.kernel();
  const TopLevel top(kernel, bindings.dims, bindings.params);
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Launch) continue;
    const std::vector<int64_t> blocks = top.grid(op);
    for (size_t axis = 0; axis < 3; ++axis)
      if (blocks[axis] > grid_limits_[axis])
        throw UserError(op.loc,
                        fmt::format("{}: launch: expected at most {} blocks on axis {} on a GPU, "
                                    "got {}",
                                    kernel.name, grid_limits_[axis], axis, blocks[axis]),
                        "put the largest extent of the launch first, or give each block more to "
                        "do");
  }
  throw UserError(fmt::format("{}: its workspaces are larger than any memory", kernel.name),
                  "smaller dims: it takes " + signature_.text());
}

}  // namespace kiln
