// Copies by tensor maps. One thread begins each; their bytes count on the slot's barrier, or, of
// stores, in groups of the thread that began them.
#include <fmt/format.h>

#include "codegen/bulk_copy_impl.h"
#include "codegen/nvptx_emit_impl.h"
#include "ir/error.h"
#include "ir/walk.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

constexpr I::ID kLoad[] = {
    I::nvvm_cp_async_bulk_tensor_g2s_tile_1d, I::nvvm_cp_async_bulk_tensor_g2s_tile_2d,
    I::nvvm_cp_async_bulk_tensor_g2s_tile_3d, I::nvvm_cp_async_bulk_tensor_g2s_tile_4d,
    I::nvvm_cp_async_bulk_tensor_g2s_tile_5d};
constexpr I::ID kStore[] = {
    I::nvvm_cp_async_bulk_tensor_s2g_tile_1d, I::nvvm_cp_async_bulk_tensor_s2g_tile_2d,
    I::nvvm_cp_async_bulk_tensor_s2g_tile_3d, I::nvvm_cp_async_bulk_tensor_s2g_tile_4d,
    I::nvvm_cp_async_bulk_tensor_s2g_tile_5d};

// Where a piece begins, along the axes of the map (codegen/abi.h, TensorMap).
Values coordinates(Builder& b, const BulkCopy& copy, const BulkPiece& piece, const Place& view,
                   Val warp_row) {
  Values by_axis;
  for (size_t axis = 0; axis < view.axes.size(); ++axis) {
    Val at = b.ir.CreateAdd(view.axes[axis].start, b.i32(piece.at[axis]));
    if (warp_row && axis == copy.row_axis) at = b.ir.CreateAdd(at, warp_row);
    by_axis.push_back(at);
  }
  Values made(by_axis.rbegin(), by_axis.rend());
  if (!copy.map.by_panels) return made;
  // The view begins with the first panel.
  made[0] = b.i32(0);
  made.insert(made.begin() + 2, b.i32(piece.at.back() / copy.map.panel));
  return made;
}

// Of the agent that runs the region, not of roles in it.
bool has_stores(const Kernel& kernel, RegionId region, bool together_only) {
  for (OpId id : kernel.region(region).ops) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::StoreAsync && (!together_only || op.word("split") == "none"))
      return true;
    if (op.code == OpCode::Roles) continue;
    for (RegionId inner : op.regions)
      if (has_stores(kernel, inner, together_only)) return true;
  }
  return false;
}

}  // namespace

void Emitter::emit_copy_async(const Op& op) {
  auto& ir = b.ir;
  const BulkCopy copy = bulk_copy(kernel_, op, agent_.warps);
  const Place from = place(copy.view), to = place(copy.tile);
  Val barrier = full_barrier(copy.tile);
  auto* cluster = ir.getPtrTy(7);
  b.when(leader(), [&] {
    expect_bytes(copy.tile, copy.bytes);
    for (const BulkPiece& piece : copy.pieces) {
      Val address =
          ir.CreateAdd(ir.CreatePtrToInt(to.pointer, ir.getInt32Ty()), b.i32(piece.offset));
      Values arguments = {ir.CreateIntToPtr(address, cluster), barrier, maps_.at(&op)};
      const Values at = coordinates(b, copy, piece, from, nullptr);
      arguments.insert(arguments.end(), at.begin(), at.end());
      for (Val unused :
           {static_cast<Val>(ir.getInt16(0)), b.i64(0), b.i1(false), b.i1(false), b.i32(0)})
        arguments.push_back(unused);  // multicast, cache hint, neither used; no group
      b.call(kLoad[at.size() - 1], arguments);
    }
  });
}

void Emitter::emit_store_async(const Op& op) {
  auto& ir = b.ir;
  const BulkCopy copy = bulk_copy(kernel_, op, agent_.warps);
  const Place to = place(copy.view), from = place(copy.tile);
  const bool by_warps = op.word("split") == "warps";
  b.call(I::nvvm_fence_proxy_async_shared_cta, {});
  if (!by_warps) {
    barrier();
  } else if (!agent_.one_thread) {
    b.call(I::nvvm_bar_warp_sync, {b.i32(-1)});
  }
  b.when(by_warps ? first_lane() : leader(), [&] {
    Val row = nullptr, base = from.pointer;
    if (copy.warps > 1) {
      row = ir.CreateMul(warp_, b.i32(copy.warp_rows));
      base = ir.CreateGEP(ir.getInt8Ty(), base, ir.CreateMul(warp_, b.i32(copy.warp_bytes)));
    }
    for (const BulkPiece& piece : copy.pieces) {
      Values arguments = {ir.CreateGEP(ir.getInt8Ty(), base, b.i32(piece.offset)), maps_.at(&op)};
      const Values at = coordinates(b, copy, piece, to, row);
      arguments.insert(arguments.end(), at.begin(), at.end());
      arguments.push_back(b.i64(0));  // cache hint, not used
      arguments.push_back(b.i1(false));
      b.call(kStore[at.size() - 1], arguments);
    }
    b.call(I::nvvm_cp_async_bulk_commit_group, {});
  });
}

// A thread waits for the groups that it began itself: all may ask, and then all know.
void Emitter::emit_await_stores(const Op& op) {
  b.call(op.flag("read") ? I::nvvm_cp_async_bulk_wait_group_read : I::nvvm_cp_async_bulk_wait_group,
         {b.i32(op.integer("pending"))});
  if (agent_.one_thread) return;
  if (agent_.warps > 1 && has_stores(kernel_, body_, true))
    barrier();
  else
    b.call(I::nvvm_bar_warp_sync, {b.i32(-1)});
}

void Emitter::finish_stores() {
  if (has_stores(kernel_, body_, false)) b.call(I::nvvm_cp_async_bulk_wait_group, {b.i32(0)});
}

}  // namespace kiln::nvptx
