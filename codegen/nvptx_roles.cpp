// Roles: the block's warps part, each warpgroup takes the registers of its role, and what runs
// there is one agent's code. Loops with exits in their middle.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/nvptx_emit_impl.h"
#include "codegen/roles_impl.h"
#include "ir/error.h"
#include "passes/resources.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

}  // namespace

void Emitter::start_launch(const Op& launch, llvm::Function& function) {
  if (!roles_op(kernel_, launch)) {
    registers_.registers = std::min<int64_t>(
        GpuTarget::kMostRegisters, GpuTarget::kRegistersPerMultiprocessor / (32 * agent_.warps));
    // Else ptxas spills a little to make room for one block more, which shared memory may not have.
    const Resources resources =
        block_resources(b.target, estimate_registers(kernel_, launch, agent_.warps),
                        launch.integer("shared"), agent_.warps);
    if (resources.blocks > 0)
      function.addFnAttr("nvvm.minctasm", fmt::format("{}", resources.blocks));
    return;
  }
  registers_ = kiln::launch_registers(kernel_, launch, b.target);
  // Without it ptxas does not know how many registers a thread starts with, and ignores setmaxnreg.
  function.addFnAttr("nvvm.minctasm", fmt::format("{}", registers_.blocks));
}

void Emitter::emit_roles(const Op& op) {
  auto& ir = b.ir;
  const std::vector<Role> roles = roles_of(kernel_, op);
  finish_stores();
  start_channels(op);
  // ptxas sees that what a shuffle takes from one lane is the same in all of them.
  Val thread = b.call(I::nvvm_read_ptx_sreg_tid_x, {});
  Val warp = b.call(I::nvvm_shfl_sync_idx_i32,
                    {b.i32(-1), ir.CreateLShr(thread, b.i32(5)), b.i32(0), b.i32(31)});
  llvm::BasicBlock* end = b.block("end");
  for (size_t i = 0; i < roles.size(); ++i) {
    const Role& role = roles[i];
    llvm::BasicBlock *here = b.block("role"), *next = end;
    if (i + 1 < roles.size()) {
      next = b.block("other");
      ir.CreateCondBr(ir.CreateICmpULT(warp, b.i32(roles[i + 1].first_warp)), here, next);
    } else {
      ir.CreateBr(here);
    }
    ir.SetInsertPoint(here);
    const bool fewer = role.registers < registers_.registers;
    b.call(
        fewer ? I::nvvm_setmaxnreg_dec_sync_aligned_u32 : I::nvvm_setmaxnreg_inc_sync_aligned_u32,
        {b.i32(role.registers)});
    Val works = nullptr;
    if (role.one_thread)
      works = ir.CreateICmpEQ(thread, b.i32(32 * role.first_warp));
    else if (role.warps < role.warps_held())
      works = ir.CreateICmpULT(warp, b.i32(role.first_warp + role.warps));
    if (works) {
      llvm::BasicBlock* working = b.block("works");
      ir.CreateCondBr(works, working, end);
      ir.SetInsertPoint(working);
    }
    agent_ = {role.first_warp, role.warps, role.one_thread, static_cast<int>(1 + i)};
    emit_role(role, warp);
    ir.CreateBr(end);
    ir.SetInsertPoint(next);
  }
  ir.SetInsertPoint(end);
}

// What a role knows, its tiles and slots and where it has computed views, ends with it.
void Emitter::emit_role(const Role& role, Val warp) {
  const auto fragments = fragments_;
  const auto places = places_;
  const auto scalars = scalars_;
  const Val lane_of_block = lane_, warp_of_block = warp_;
  if (role.one_thread) {
    lane_ = warp_ = b.i32(0);
  } else {
    warp_ = role.warps == 1 ? b.i32(0) : b.ir.CreateSub(warp, b.i32(role.first_warp));
  }
  body_ = role.region;
  start_channel_ends();
  emit_region(role.region);
  finish_stores();
  fragments_ = fragments;
  places_ = places;
  scalars_ = scalars;
  slots_.clear();
  lane_ = lane_of_block;
  warp_ = warp_of_block;
}

void Emitter::emit_loop(const Op& op) {
  auto& ir = b.ir;
  const std::vector<Value> tiles = written_outside(op);
  llvm::BasicBlock *before = ir.GetInsertBlock(), *head = b.block("loop"), *after = b.block("done");
  ir.CreateBr(head);
  ir.SetInsertPoint(head);
  std::vector<llvm::PHINode*> phis;
  for (Val value : registers_of(tiles)) {
    phis.push_back(ir.CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(b.defined(value), before);
  }
  set_registers(tiles, Values(phis.begin(), phis.end()));
  Exits exits{after, tiles, {}};
  Exits* const outer = std::exchange(exits_, &exits);
  emit_scope(op.regions[0]);
  exits_ = outer;
  const Values next = registers_of(tiles);
  if (next.size() != phis.size()) throw InternalError(op.loc, "the loop's body lost a value");
  // Where lanes that went apart, one to begin a copy, come together again: before the loop's head,
  // or ptxas takes what the loop carries for different in each lane.
  if (!agent_.one_thread) b.call(I::nvvm_bar_warp_sync, {b.i32(-1)});
  llvm::BasicBlock* last = ir.GetInsertBlock();
  b.keep_rolled(ir.CreateBr(head));
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], last);
  ir.SetInsertPoint(after);
  set_registers(tiles, b.join(exits.values));
}

void Emitter::emit_exit_if(const Op& op) {
  auto& ir = b.ir;
  llvm::BasicBlock *leaving = b.block("exit"), *staying = b.block("stay");
  ir.CreateCondBr(scalar(op.operands[0]), leaving, staying);
  ir.SetInsertPoint(leaving);
  const auto fragments = fragments_;
  const auto rescales = rescales_;
  emit_scope(op.regions[0]);
  exits_->values.emplace_back(ir.GetInsertBlock(), registers_of(exits_->tiles));
  ir.CreateBr(exits_->after);
  fragments_ = fragments;
  rescales_ = rescales;
  ir.SetInsertPoint(staying);
}

void Emitter::emit_next_tile(const Op& op) {
  auto& ir = b.ir;
  if (grid_axes_ != 1)
    throw UserError(op.loc,
                    fmt::format("next_tile: a launch of one extent has a next tile, not one "
                                "of {}",
                                grid_axes_));
  Val blocks = b.call(I::nvvm_read_ptx_sreg_nctaid_x, {});
  if (op.operands.size() < 2) return set(op.result, ir.CreateAdd(scalar(op.operands[0]), blocks));
  if (agent_.warps != 1)
    throw UserError(
        op.loc,
        fmt::format("next_tile: a counter is for a role of one warp, not of {}", agent_.warps),
        "send the tile to the others in a message");
  const Place counter = place(op.operands[1]);
  Val pointer = address(counter, Values(counter.axes.size(), b.i32(0)));
  const auto take = [&] {
    return Values{ir.CreateAtomicRMW(llvm::AtomicRMWInst::Add, pointer, b.i32(1), llvm::Align(4),
                                     llvm::AtomicOrdering::Monotonic,
                                     ir.getContext().getOrInsertSyncScopeID("device"))};
  };
  Val taken = b.when(leader(), take, [&] { return Values{b.i32(0)}; })[0];
  if (!agent_.one_thread)
    taken = b.call(I::nvvm_shfl_sync_idx_i32, {b.i32(-1), taken, b.i32(0), b.i32(31)});
  set(op.result, ir.CreateAdd(taken, blocks));
}

Val Emitter::leader() {
  if (agent_.one_thread) return nullptr;
  return b.ir.CreateICmpEQ(agent_.warps == 1 ? lane_ : b.ir.CreateOr(lane_, warp_), b.i32(0));
}

}  // namespace kiln::nvptx
