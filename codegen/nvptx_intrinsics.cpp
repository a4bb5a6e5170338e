// The intrinsics that the tier may use, and what they need: LLVM aborts where a target lacks one.
// Sources: PTX ISA, "PTX ISA Notes" and "Target ISA Notes" of each instruction.
#include <fmt/format.h>

#include "codegen/nvptx_builder_impl.h"
#include "ir/error.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

struct Requirement {
  I::ID id;
  int capability = 80;
  int ptx = 70;
  bool alone = false;  // sm_90a alone, say
};

constexpr Requirement kAllowed[] = {
    // LLVM's own that become instructions. Not exp, log, …: NVPTX has no way to lower them.
    {I::abs},
    {I::copysign},
    {I::fabs},
    {I::floor},
    {I::ceil},
    {I::fma},
    {I::fptosi_sat},
    {I::fptoui_sat},
    {I::maximumnum},
    {I::minimumnum},
    {I::smax},
    {I::smin},
    {I::sqrt},
    {I::umax},
    {I::umin},
    // Approximations, and conversions that round toward zero.
    {I::nvvm_div_full_ftz},
    {I::nvvm_ex2_approx_ftz},
    {I::nvvm_lg2_approx_ftz_f},
    {I::nvvm_rcp_approx_ftz_f},
    {I::nvvm_rsqrt_approx_ftz_f},
    {I::nvvm_sqrt_approx_ftz_f},
    {I::nvvm_d2f_rz},
    {I::nvvm_f2i_rz},
    {I::nvvm_f2ui_rz},
    {I::nvvm_i2f_rz},
    {I::nvvm_ll2f_rz},
    {I::nvvm_ui2f_rz},
    {I::nvvm_ull2f_rz},
    {I::nvvm_ff2bf16x2_rn},
    {I::nvvm_ff2f16x2_rn},
    {I::nvvm_e4m3x2_to_f16x2_rn, 89, 81},
    {I::nvvm_e5m2x2_to_f16x2_rn, 89, 81},
    {I::nvvm_ff_to_e4m3x2_rn, 89, 81},
    {I::nvvm_ff_to_e5m2x2_rn, 89, 81},
    // Threads.
    {I::nvvm_bar_warp_sync},
    {I::nvvm_barrier_cta_sync_aligned_all},
    {I::nvvm_barrier_cta_sync_aligned_count},
    {I::nvvm_read_ptx_sreg_ctaid_x},
    {I::nvvm_read_ptx_sreg_ctaid_y},
    {I::nvvm_read_ptx_sreg_ctaid_z},
    {I::nvvm_read_ptx_sreg_nctaid_x},
    {I::nvvm_read_ptx_sreg_tid_x},
    {I::nvvm_redux_sync_umax},
    {I::nvvm_shfl_sync_bfly_i32},
    {I::nvvm_shfl_sync_idx_i32},
    {I::nvvm_setmaxnreg_dec_sync_aligned_u32, 90, 80, true},
    {I::nvvm_setmaxnreg_inc_sync_aligned_u32, 90, 80, true},
    {I::nvvm_vote_any_sync},
    // Memory.
    {I::nvvm_fence_proxy_async_shared_cta, 90, 80},
    {I::nvvm_cp_async_ca_shared_global_4},
    {I::nvvm_cp_async_ca_shared_global_4_s},
    {I::nvvm_cp_async_ca_shared_global_8},
    {I::nvvm_cp_async_ca_shared_global_8_s},
    {I::nvvm_cp_async_cg_shared_global_16},
    {I::nvvm_cp_async_cg_shared_global_16_s},
    {I::nvvm_cp_async_commit_group},
    {I::nvvm_cp_async_wait_group},
    {I::nvvm_ldmatrix_sync_aligned_m8n8_x1_b16},
    {I::nvvm_ldmatrix_sync_aligned_m8n8_x1_trans_b16},
    {I::nvvm_ldmatrix_sync_aligned_m8n8_x2_b16},
    {I::nvvm_ldmatrix_sync_aligned_m8n8_x2_trans_b16},
    {I::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16},
    {I::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16},
    {I::nvvm_stmatrix_sync_aligned_m8n8_x1_b16, 90, 78},
    {I::nvvm_stmatrix_sync_aligned_m8n8_x1_trans_b16, 90, 78},
    {I::nvvm_stmatrix_sync_aligned_m8n8_x2_b16, 90, 78},
    {I::nvvm_stmatrix_sync_aligned_m8n8_x2_trans_b16, 90, 78},
    {I::nvvm_stmatrix_sync_aligned_m8n8_x4_b16, 90, 78},
    {I::nvvm_stmatrix_sync_aligned_m8n8_x4_trans_b16, 90, 78},
    // Barriers in memory, and the copies by tensor maps that complete them.
    {I::nvvm_mbarrier_init_shared},
    {I::nvvm_mbarrier_arrive_shared},
    {I::nvvm_mbarrier_arrive_expect_tx_scope_cta_space_cta, 90, 80},
    {I::nvvm_mbarrier_expect_tx_scope_cta_space_cta, 90, 80},
    {I::nvvm_fence_mbarrier_init_release_cluster, 90, 80},
    {I::nvvm_cp_async_bulk_commit_group, 90, 80},
    {I::nvvm_cp_async_bulk_wait_group, 90, 80},
    {I::nvvm_cp_async_bulk_wait_group_read, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_g2s_tile_1d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_g2s_tile_2d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_g2s_tile_3d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_g2s_tile_4d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_g2s_tile_5d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_s2g_tile_1d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_s2g_tile_2d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_s2g_tile_3d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_s2g_tile_4d, 90, 80},
    {I::nvvm_cp_async_bulk_tensor_s2g_tile_5d, 90, 80},
    // Matrix products.
    {I::nvvm_mma_m16n8k8_row_col_bf16},
    {I::nvvm_mma_m16n8k8_row_col_f32_f32},
    {I::nvvm_mma_m16n8k16_row_col_bf16},
    {I::nvvm_mma_m16n8k16_row_col_f32_f32},
    {I::nvvm_mma_m16n8k32_row_col_s8},
    {I::nvvm_mma_m16n8k32_row_col_u8},
    {I::nvvm_mma_m16n8k32_row_col_f32_e4m3_e4m3_f32, 89, 84},
    {I::nvvm_mma_m16n8k32_row_col_f32_e5m2_e5m2_f32, 89, 84},
    {I::nvvm_wgmma_commit_group_sync_aligned, 90, 80, true},
    {I::nvvm_wgmma_fence_sync_aligned, 90, 80, true},
    {I::nvvm_wgmma_wait_group_sync_aligned, 90, 80, true},
};

}  // namespace

Val Builder::call(I::ID id, std::span<const Val> args, llvm::ArrayRef<llvm::Type*> types) {
  const Requirement* found = nullptr;
  for (const Requirement& requirement : kAllowed)
    if (requirement.id == id) found = &requirement;
  if (!found)
    throw InternalError(
        fmt::format("intrinsic {} is not on the GPU tier's list", I::getBaseName(id).str()));
  const std::string needed = fmt::format("sm_{}{}", found->capability, found->alone ? "a" : "");
  if (found->alone ? needed != target.name : found->capability > target.capability)
    throw InternalError(fmt::format("intrinsic {} needs {}: the target is {}",
                                    I::getBaseName(id).str(), needed, target.name));
  ptx = std::max(ptx, found->ptx);
  return ir.CreateIntrinsic(id, types, llvm::ArrayRef<Val>(args.data(), args.size()));
}

}  // namespace kiln::nvptx
