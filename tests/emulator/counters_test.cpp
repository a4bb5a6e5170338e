// What the library's kernels do to memory, counted: no bank is asked for two words at once, and of
// global memory whole sectors are moved, in vectors of 16 bytes.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "kernels/kernels.h"
#include "runtime/gpu_code.h"
#include "tests/emulator/subject.h"

namespace kiln::testing {
namespace {

using Words = std::map<std::string, std::string>;
using Dims = std::map<std::string, int64_t>;

// What one line of PTX moved: 16 bytes a lane, or it says how many lines are not so.
bool moves_whole_sectors(const ptx::LineProfile& line) {
  return line.sectors * 32 == line.lanes * 16;
}

// The launches of a kernel on aligned tensors. Masks and lists, of which a block reads a row, are
// no part of the global memory that is looked at.
void check_counters(const std::string& name, const Words& given, const Dims& dims,
                    std::string_view target) {
  const KernelEntry& entry = kernel_named(name);
  const Options options = entry.with_defaults(given);
  const Kernel kernel = canonical(entry.build(options, target));
  Tensors tensors(kernel, {.dims = dims, .density = 1}, entry.default_params(options));
  const auto executable = emulated(kernel, compile_for_gpu(kernel, target).code);
  std::string text = fmt::format("{} {}", name, target);
  for (const auto& [option, value] : given) text += fmt::format(" {}={}", option, value);
  INFO(text);
  uint64_t copied = 0, stored = 0;
  for (const ptx::Report& report : emulate(*executable, tensors.bindings(), {})) {
    CHECK(report.findings.empty());
    CHECK(report.counters.bank_conflicts == 0);
    for (const ptx::LineProfile& line : report.lines) {
      INFO(line.instruction << " of line " << line.line);
      CHECK(line.conflicts == 0);
      const bool copies = line.instruction.starts_with("cp.async") && line.sectors > 0;
      const bool stores = line.instruction.starts_with("st.global");
      if (copies || stores) CHECK(moves_whole_sectors(line));
      (stores ? stored : copied) += copies || stores ? line.sectors * 32 : 0;
    }
  }
  CHECK(copied > 0);
  CHECK(stored > 0);
}

const char* const kTargets[] = {"sm_80", "sm_90"};

TEST_CASE("attention: no bank conflicts, whole sectors", "[counters]") {
  constexpr const char* kForms[] = {"mask", "mask_i8", "lists", "dense"};
  for (const AttentionConfig& c : shipped_attention_configs()) {
    const Words options = {
        {"dtype", std::string(name(c.dtype))},  {"dim", std::to_string(c.dim)},
        {"dim_v", std::to_string(c.dim_v)},     {"block_m", std::to_string(c.block_m)},
        {"block_n", std::to_string(c.block_n)}, {"form", kForms[static_cast<int>(c.form)]},
        {"causal", c.causal ? "true" : "false"}};
    const int64_t seq = 256;
    Dims dims = {{"batch", 1}, {"heads", 1}, {"heads_kv", 1}, {"seq", seq}, {"seq_kv", seq}};
    if (c.form != BlockForm::Dense) dims["rows"] = seq / c.block_m;
    if (c.form == BlockForm::Lists) dims["entries"] = seq / c.block_n;
    if (c.form != BlockForm::Dense && c.form != BlockForm::Lists) dims["cols"] = seq / c.block_n;
    for (const char* target : kTargets)
      check_counters("block_sparse_attention", options, dims, target);
  }
}

void check_matmul(const char* dtype, const char* out, std::array<int64_t, 3> tile, int64_t stages,
                  std::string_view target) {
  const auto [m, n, k] = tile;
  for (const char* transpose_a : {"false", "true"})
    for (const char* transpose_b : {"false", "true"})
      check_counters("matmul",
                     {{"dtype", dtype},
                      {"out", out},
                      {"transpose_a", transpose_a},
                      {"transpose_b", transpose_b},
                      {"tile_m", std::to_string(m)},
                      {"tile_n", std::to_string(n)},
                      {"tile_k", std::to_string(k)},
                      {"stages", std::to_string(stages)}},
                     {{"m", 2 * m}, {"n", n}, {"k", 3 * k}}, target);
}

TEST_CASE("matmul: no bank conflicts, whole sectors", "[counters]") {
  check_matmul("f16", "f16", {64, 64, 64}, 2, "sm_80");
  check_matmul("f16", "f16", {128, 128, 32}, 3, "sm_80");
  check_matmul("f16", "f16", {128, 256, 32}, 4, "sm_80");
  check_matmul("f16", "f16", {256, 128, 32}, 3, "sm_90");
  check_matmul("f16", "f16", {128, 128, 64}, 3, "sm_90");
  check_matmul("f16", "f32", {64, 64, 64}, 3, "sm_90");
  check_matmul("bf16", "bf16", {128, 128, 32}, 4, "sm_90");
  check_matmul("bf16", "f32", {128, 128, 32}, 2, "sm_80");
  check_matmul("f32", "f32", {64, 64, 64}, 2, "sm_80");
  check_matmul("f32", "f32", {128, 128, 32}, 3, "sm_90");
}

}  // namespace
}  // namespace kiln::testing
