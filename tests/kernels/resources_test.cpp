// The resource model against ptxas: registers of a thread, and blocks of a multiprocessor.
#include "passes/resources.h"

#include <fmt/format.h>

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "codegen/nvptx.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/kernels.h"
#include "passes/pipeline.h"
#include "tests/support/ptxas.h"

using namespace kiln;

namespace {

struct Case {
  std::string text;
  Kernel kernel;
};

Case library(const char* name, const std::map<std::string, std::string>& options,
             std::string_view target) {
  const KernelEntry& entry = kernel_named(name);
  return {name, entry.build(entry.with_defaults(options), target)};
}

std::vector<Case> cases(std::string_view target) {
  std::vector<Case> all;
  for (const AttentionConfig& config : shipped_attention_configs()) {
    const AttentionConfig c = validated(config, target);
    // One of those that differ in little more than names.
    if (c.dtype == BF16 || c.form == BlockForm::MaskI8) continue;
    all.push_back(
        {fmt::format("attention {} dim {} tiles {}x{} {}", name(c.dtype), c.head_dim, c.block_m,
                     c.block_n, c.form == BlockForm::Dense ? "dense" : "sparse"),
         block_sparse_attention_kernel(c)});
  }
  for (const auto& [m, n, k] :
       {std::array{64, 64, 64}, std::array{128, 64, 32}, std::array{128, 128, 32},
        std::array{128, 128, 64}, std::array{64, 128, 64}, std::array{256, 128, 64}})
    for (int threads : {128, 256}) {
      // 256 numbers of c for each thread would not be in registers.
      if (m * n / threads > 128) continue;
      Case one = library("matmul",
                         {{"block_m", std::to_string(m)},
                          {"block_n", std::to_string(n)},
                          {"block_k", std::to_string(k)},
                          {"threads", std::to_string(threads)}},
                         target);
      one.text += fmt::format(" {}x{}x{} threads {}", m, n, k, threads);
      all.push_back(std::move(one));
    }
  all.push_back(library("row_softmax", {}, target));
  all.push_back(library("tile_copy", {}, target));
  return all;
}

OpId only_launch(const Kernel& kernel) {
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch) return id;
  return {};
}

}  // namespace

TEST_CASE("resources: as predicted, so ptxas makes them", "[ptx]") {
  if (!testing::has_ptxas()) return;
  int total = 0, same_blocks = 0, near_registers = 0;
  std::string others;
  for (const char* target : {"sm_80", "sm_90", "sm_120"})
    for (Case& one : cases(target)) {
      Kernel kernel = std::move(one.kernel);
      kernel.target = target;
      run_passes(kernel, pipeline_for(Tier::Sm80));
      const Resources predicted = predict_resources(kernel, only_launch(kernel));
      const testing::Assembly made = testing::assemble(compile_ptx(kernel).ptx, target);
      const Resources real =
          block_resources(gpu_target(target), made.registers, predicted.shared, predicted.warps);
      const std::string text =
          fmt::format("{} for {}: predicted {} registers, {}; ptxas {}, {}\n", one.text, target,
                      predicted.registers, predicted.text(), made.registers, real.text());
      INFO(text);
      CHECK(made.fault == "");
      CHECK(predicted.blocks <= real.blocks);
      const bool same = predicted.blocks == real.blocks;
      const bool near = std::abs(predicted.registers - made.registers) <= 0.15 * made.registers;
      ++total;
      same_blocks += same;
      near_registers += near;
      if (!same || !near) others += text;
    }
  INFO(fmt::format("of {} the blocks of {}, the registers of {}; not:\n{}", total, same_blocks,
                   near_registers, others));
  CHECK(10 * same_blocks >= 9 * total);
  CHECK(10 * near_registers >= 9 * total);
}
