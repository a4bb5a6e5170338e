// The launch function and structured control flow.
//
// void entry(const u64* slots, i64 x, i64 y, i64 z, void* scratch): the entry block reads the slots
// and computes the top-level scalars again, then the region follows. Roles: host_roles.cpp.
#include <fmt/format.h>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"
#include "codegen/roles_impl.h"
#include "ir/error.h"
#include "ir/walk.h"

namespace kiln::host {
namespace {

// A tile's last vector may be read past its end, never written.
constexpr uint64_t kReadSlack = 256;

}  // namespace

Emitter::Emitter(const Kernel& kernel, const Target& target, llvm::Module& module)
    : kernel_(kernel), b(module, target), ranges_(kernel), reshaped_(reshaped_tiles(kernel)) {}

HostLaunch Emitter::emit(const Op& launch, const std::string& symbol) {
  auto& ir = b.ir;
  HostLaunch made{symbol, slots_without_maps(kernel_, launch), 0};
  start_function(symbol, false);
  emit_interface(launch, made);
  const Op* roles = roles_op(kernel_, launch);
  for (OpId id : kernel_.region(launch.regions[0]).ops) {
    const Op& op = kernel_.op(id);
    if (&op == roles) break;
    emit_op(op);
    if (roles && op.result) keep(op);
  }
  ir.CreateRetVoid();
  for (size_t i = 0; roles && i < roles->regions.size(); ++i) emit_role(launch, *roles, i, made);
  made.scratch_bytes = scratch_bytes_ + kReadSlack;
  made.waits = waits_;
  return made;
}

void Emitter::emit_interface(const Op& launch, const HostLaunch& made) {
  auto& ir = b.ir;
  Val slots = function_->getArg(0);
  auto slot = [&](Slot::Kind kind, const std::string& name, int axis = 0) -> Val {
    for (size_t i = 0; i < made.slots.size(); ++i)
      if (made.slots[i] == Slot{kind, name, axis})
        return ir.CreateLoad(ir.getInt64Ty(), ir.CreateConstGEP1_64(ir.getInt64Ty(), slots, i));
    throw InternalError("no slot for '" + name + "'");
  };
  for (OpId id : interface_of(kernel_, launch)) {
    const Op& op = kernel_.op(id);
    switch (op.code) {
      case OpCode::Dim:
        set(op.result, {ir.CreateTrunc(slot(Slot::Kind::Dim, op.word("name")), ir.getInt32Ty())});
        break;
      case OpCode::Param: {
        const DType dtype = kernel_.type(op.result).dtype;
        Val stored = slot(Slot::Kind::Param, op.word("name"));
        llvm::Type* narrow = ir.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
        stored = ir.CreateBitCast(ir.CreateTrunc(stored, narrow), b.tensor_type(dtype));
        set(op.result, {from_bits(b, stored, dtype)});
        break;
      }
      case OpCode::Tensor: {
        Place place = tensor_place(op);
        const std::string& name = op.word("name");
        place.pointer = ir.CreateIntToPtr(slot(Slot::Kind::Pointer, name), ir.getPtrTy());
        for (size_t axis = 0; axis + 1 < place.axes.size(); ++axis)
          place.axes[axis].stride = slot(Slot::Kind::Stride, name, static_cast<int>(axis));
        places_[op.result.id] = place;
        break;
      }
      default: emit_op(op);
    }
  }
  blocks_ = ir.CreateLoad(ir.getInt64Ty(),
                          ir.CreateConstGEP1_64(ir.getInt64Ty(), slots, made.slots.size()));
  const Region& region = kernel_.region(launch.regions[0]);
  for (size_t axis = 0; axis < region.args.size(); ++axis) {
    Val block = function_->getArg(static_cast<unsigned>(1 + axis));
    set(region.args[axis], {ir.CreateTrunc(block, ir.getInt32Ty())});
  }
}

Element Emitter::element(Value value) {
  if (auto constant = constant_of(kernel_, value)) return {b.constant(*constant)};
  auto it = elements_.find(value.id);
  if (it == elements_.end()) throw InternalError("a scalar is used before its definition");
  return it->second;
}

Val Emitter::scalar(Value value) {
  Element found = element(value);
  if (!found.uniform()) throw InternalError("a scalar that differs between lanes");
  return found.value;
}

void Emitter::emit_region(RegionId region) {
  for (OpId id : kernel_.region(region).ops) emit_op(kernel_.op(id));
}

void Emitter::emit_op(const Op& op) {
  switch (op.code) {
    case OpCode::For: return emit_for(op);
    case OpCode::If: return emit_if(op);
    case OpCode::Parallel: return emit_parallel(op);
    case OpCode::Alloc: {
      const Type& type = kernel_.type(op.result);
      places_[op.result.id] = reshaped_.contains(op.result.id) ? new_image(type.dtype, type.shape)
                                                               : new_tile(type.dtype, type.shape);
      return;
    }
    case OpCode::Reshape:
      places_[op.result.id] = reshaped_place(place(op.operands[0]), kernel_.type(op.result));
      return;
    case OpCode::Slice: places_[op.result.id] = slice_place(op); return;
    case OpCode::Every: places_[op.result.id] = every_place(op); return;
    case OpCode::Copy:
      return emit_copy(place(op.operands[0]), place(op.operands[1]), op.real("pad"));
    case OpCode::Convert: return emit_copy(place(op.operands[0]), place(op.operands[1]), 0);
    case OpCode::DeviceAssert: return;  // became an atomic where somebody looks at it
    case OpCode::Watch: return emit_watch(op);
    case OpCode::Barrier:  // a block is one thread here, and copies are done when they are issued
    case OpCode::WaitCopies:
    case OpCode::CommitCopies: return;
    case OpCode::Fill:
      return emit_fill(place(op.operands[1]), scalar(op.operands[0]),
                       kernel_.type(op.operands[0]).dtype);
    case OpCode::Load: return set(op.result, {load(place(op.operands[0]), indices(op, 1), 1, 1)});
    case OpCode::Store: return emit_store(op, 1, 1);
    case OpCode::Atomic: return emit_atomic(op, 1, 1);
    case OpCode::Gemm: return emit_gemm(op, op.flag("clear") ? b.ir.getTrue() : nullptr);
    case OpCode::Reduce: return emit_reduce(op);
    case OpCode::Loop: return emit_loop(op);
    case OpCode::NextTile: return emit_next_tile(op);
    case OpCode::Channel: return emit_channel(op);
    case OpCode::PushBegin:
    case OpCode::PushEnd:
    case OpCode::Pop:
    case OpCode::Held:
    case OpCode::Message:
    case OpCode::Release: return emit_channel_op(op);
    // What is asynchronous is done when it is issued.
    case OpCode::CopyAsync:
    case OpCode::StoreAsync: return emit_copy(place(op.operands[0]), place(op.operands[1]), 0);
    case OpCode::GemmAsync: return emit_gemm(op, op.operand(3) ? scalar(op.operand(3)) : nullptr);
    case OpCode::Await:
    case OpCode::AwaitStores: return;
    default: break;
  }
  if (!info(op.code).pure)
    throw InternalError(op.loc, fmt::format("the host tier cannot emit '{}'", info(op.code).name));
  emit_pure(op, 1);
}

void Emitter::emit_store(const Op& op, int lanes, int active) {
  const Place to = place(op.operands[1]);
  const DType dtype = kernel_.type(op.operands[0]).dtype;
  Element from = element(op.operands[0]);
  Val value = from.uniform() ? from.value : vector(from, lanes);
  store(to, indices(op, 2), cast(b, value, dtype, to.dtype), lanes, active);
}

void Emitter::emit_for(const Op& op) {
  auto& ir = b.ir;
  auto wide = [&](size_t operand) {
    return ir.CreateSExt(scalar(op.operands[operand]), ir.getInt64Ty());
  };
  Val begin = wide(0), end = wide(1), step = wide(2);
  // A step that is not positive would never end; such a loop runs nothing.
  if (!Builder::known(step)) end = ir.CreateSelect(ir.CreateICmpSGT(step, b.i64(0)), end, begin);
  const Region& region = kernel_.region(op.regions[0]);
  b.loop(begin, end, step, [&](Val index) {
    set(region.args[0], {ir.CreateTrunc(index, ir.getInt32Ty())});
    emit_region(op.regions[0]);
  });
}

void Emitter::emit_if(const Op& op) {
  std::function<void()> otherwise;
  if (op.regions.size() > 1) otherwise = [&] { emit_region(op.regions[1]); };
  b.when(
      scalar(op.operands[0]), [&] { emit_region(op.regions[0]); }, otherwise);
}

}  // namespace kiln::host
