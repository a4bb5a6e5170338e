// Roles, and the control flow of the late IR.
//
// The entry of a launch with roles runs what comes before them. Each role is a function of its own
// that works on the same scratch memory: pure ops from before are computed again, results of others
// are kept in scratch memory.
#include "codegen/roles_impl.h"

#include <fmt/format.h>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"
#include "ir/channel.h"
#include "ir/error.h"

namespace kiln::host {

void Emitter::start_function(const std::string& symbol, bool role) {
  auto& ir = b.ir;
  llvm::Type *pointer = ir.getPtrTy(), *index = ir.getInt64Ty();
  std::vector<llvm::Type*> types = {pointer, index, index, index, pointer};
  if (role) types.push_back(pointer);
  function_ = llvm::Function::Create(llvm::FunctionType::get(ir.getVoidTy(), types, false),
                                     llvm::Function::ExternalLinkage, symbol, b.module);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr("target-cpu", b.target.cpu);
  function_->addFnAttr("target-features", b.target.features);
  const std::string bits = std::to_string(32 * b.target.lanes);
  function_->addFnAttr("prefer-vector-width", bits);
  function_->addFnAttr("min-legal-vector-width", bits);
  function_->addParamAttr(0, llvm::Attribute::NoAlias);
  function_->addParamAttr(0, llvm::Attribute::ReadOnly);
  function_->addParamAttr(4, llvm::Attribute::NoAlias);
  function_->addParamAttr(4, llvm::Attribute::getWithAlignment(ir.getContext(), llvm::Align(64)));
  ir.SetInsertPoint(llvm::BasicBlock::Create(ir.getContext(), "entry", function_));
  scratch_ = function_->getArg(4);
}

// Of the entry: a result that roles cannot compute again.
void Emitter::keep(const Op& op) {
  const Type& type = kernel_.type(op.result);
  if (info(op.code).pure || !elements_.contains(op.result.id)) return;
  const uint64_t offset = take_scratch(sizeof(uint64_t));
  Place place{type.dtype, false, nullptr, nullptr, {}, {}};
  write(place, scratch_at(offset), scalar(op.result), 1, nullptr);
  kept_[op.result.id] = offset;
}

void Emitter::replay(const Op& op) {
  if (!op.result) return;
  if (auto kept = kept_.find(op.result.id); kept != kept_.end()) {
    Place place{kernel_.type(op.result).dtype, false, nullptr, nullptr, {}, {}};
    set(op.result, {read(place, scratch_at(kept->second), 1, nullptr, nullptr)});
  } else if (op.code == OpCode::Slice || op.code == OpCode::Every || op.code == OpCode::Reshape) {
    if (places_.contains(op.operands[0].id)) emit_op(op);  // else of a tile, which roles do not see
  } else if (info(op.code).pure) {
    emit_op(op);
  }
}

void Emitter::emit_role(const Op& launch, const Op& roles, size_t number, HostLaunch& made) {
  made.roles.push_back({role_names(roles)[number], fmt::format("{}_role_{}", made.entry, number)});
  elements_.clear();
  places_.clear();
  uses_.clear();
  start_function(made.roles.back().entry, true);
  emit_interface(launch, made);
  for (OpId id : kernel_.region(launch.regions[0]).ops) {
    if (&kernel_.op(id) == &roles) break;
    replay(kernel_.op(id));
  }
  emit_region(roles.regions[number]);
  b.ir.CreateRetVoid();
}

void Emitter::emit_loop(const Op& op) {
  auto& ir = b.ir;
  auto new_block = [&](const char* name) {
    return llvm::BasicBlock::Create(ir.getContext(), name, function_);
  };
  llvm::BasicBlock *head = new_block("again"), *after = new_block("left");
  ir.CreateBr(head);
  ir.SetInsertPoint(head);
  for (OpId id : kernel_.region(op.regions[0]).ops) {
    const Op& inner = kernel_.op(id);
    if (inner.code != OpCode::ExitIf) {
      emit_op(inner);
      continue;
    }
    llvm::BasicBlock *tail = new_block("tail"), *on = new_block("on");
    ir.CreateCondBr(scalar(inner.operands[0]), tail, on);
    ir.SetInsertPoint(tail);
    emit_region(inner.regions[0]);
    ir.CreateBr(after);
    ir.SetInsertPoint(on);
  }
  ir.CreateBr(head);
  ir.SetInsertPoint(after);
}

// Blocks run on several threads, so a counter is atomic here too.
void Emitter::emit_next_tile(const Op& op) {
  auto& ir = b.ir;
  Val blocks = ir.CreateTrunc(blocks_, ir.getInt32Ty());
  Val from = nullptr;
  if (Value counter = op.operand(1)) {
    const Val first[] = {b.i64(0)};
    from = ir.CreateAtomicRMW(llvm::AtomicRMWInst::Add, address(place(counter), first), b.i32(1),
                              llvm::Align(4), llvm::AtomicOrdering::Monotonic);
  } else {
    from = scalar(op.operands[0]);
  }
  set(op.result, {ir.CreateAdd(from, blocks)});
}

}  // namespace kiln::host
