// What the library's kernels do to memory, counted: no bank is asked for two words at once, and of
// global memory whole sectors are moved, in vectors of 16 bytes.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "ir/parse.h"
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

// What is launched, and what came of it.
struct Counted {
  std::vector<ptx::Report> reports;
  int64_t warps = 0;  // of all blocks
};

Counted counted(const Kernel& kernel, const ProblemShape& shape, std::string_view target,
                std::map<std::string, Scalar> params = {}) {
  Tensors tensors(kernel, shape, std::move(params));
  const auto executable = emulated(kernel, compile_for_gpu(kernel, target).code);
  Counted result{emulate(*executable, tensors.bindings(), {}), 0};
  for (const ptx::Report& report : result.reports) {
    CHECK(report.findings.empty());
    for (const ptx::LineProfile& line : report.lines)
      if (line.instruction.starts_with("ret")) result.warps += static_cast<int64_t>(line.warps);
  }
  return result;
}

// A kernel on aligned tensors. Masks and lists, of which a block reads a row, are no part of the
// global memory that is looked at.
void check_counters(const std::string& name, const Words& given, const Dims& dims,
                    std::string_view target) {
  const KernelEntry& entry = kernel_named(name);
  const Options options = entry.with_defaults(given);
  std::string text = fmt::format("{} {}", name, target);
  for (const auto& [option, value] : given) text += fmt::format(" {}={}", option, value);
  INFO(text);
  const Counted result =
      counted(canonical(entry.build(options, target)), {.dims = dims, .density = 1}, target,
              entry.default_params(options));
  uint64_t copied = 0, stored = 0;
  for (const ptx::Report& report : result.reports) {
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
        {"dtype", std::string(name(c.dtype))},      {"head_dim", std::to_string(c.head_dim)},
        {"head_dim_v", std::to_string(c.dim_v())},  {"block", str(c.block)},
        {"form", kForms[static_cast<int>(c.form)]}, {"causal", c.causal ? "true" : "false"}};
    const int64_t seq = 256;
    Dims dims = {{"batch", 1}, {"heads", 1}, {"heads_kv", 1}, {"seq", seq}, {"seq_kv", seq}};
    if (c.form != BlockForm::Dense) dims["rows"] = seq / c.block.q;
    if (c.form == BlockForm::Lists) dims["entries"] = seq / c.block.k;
    if (c.form != BlockForm::Dense && c.form != BlockForm::Lists) dims["cols"] = seq / c.block.k;
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
                      {"block_m", std::to_string(m)},
                      {"block_n", std::to_string(n)},
                      {"block_k", std::to_string(k)},
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

// At the density of 10 %, 25 of 256 blocks of 128 keys, the main loop has 25 · 2300 instructions.
TEST_CASE("what lists the selected blocks is a small part of a block's work", "[counters]") {
  constexpr int64_t kMost = 25 * 2300 * 3 / 100;
  for (const char* form : {"mask", "mask_i8", "lists"})
    for (const int64_t block : {64, 128}) {
      const int64_t keys = 32768;
      const KernelEntry& entry = kernel_named("block_sparse_attention");
      const std::string edge = std::to_string(block);
      const Options options =
          entry.with_defaults({{"head_dim", "16"}, {"block", edge}, {"form", form}});
      ProblemShape none{.dims = {{"batch", 1},
                                 {"heads", 1},
                                 {"heads_kv", 1},
                                 {"seq", block},
                                 {"seq_kv", keys},
                                 {"rows", 1}},
                        .density = 0};
      if (form == std::string("lists"))
        none.dims["entries"] = keys / block / 10;
      else
        none.dims["cols"] = keys / block;
      const Counted result = counted(canonical(entry.build(options, "sm_80")), none, "sm_80",
                                     entry.default_params(options));
      INFO(form << ", blocks of " << block);
      REQUIRE(result.warps > 0);
      const auto all = static_cast<int64_t>(result.reports.at(0).counters.warp_instructions);
      CHECK(all / result.warps < kMost);  // with all that a block does besides
      CHECK(result.reports[0].counters.bank_conflicts == 0);
    }
}

// y[j, i] = x[i, j] by way of a shared tile that is read by columns.
std::string transposed(std::string_view dtype) {
  return fmt::format(R"(kernel @turn {{
  %x = tensor {{name = "x"}} : tensor {0}[64, 64]
  %y = tensor {{name = "y", role = output}} : tensor {0}[64, 64]
  %one = const {{value = 1}} : i32
  launch %one do |%b: i32| {{
    %s = alloc : shared {0}[64, 64]
    %f = alloc : fragment {0}[64, 64]
    copy %x, %s
    parallel {{extents = [64, 64]}} do |%i: i32, %j: i32| {{
      %turned = load %s, %j, %i : {0}
      store %turned, %f, %i, %j
    }}
    copy %f, %y
  }}
}}
)",
                     dtype);
}

// By 16 lanes in a row of 4-byte elements a column is read in two passes: a swizzle moves 16 bytes.
TEST_CASE("a tile read by columns", "[counters]") {
  for (const auto& [dtype, most] :
       {std::pair("f16", 0), std::pair("bf16", 0), std::pair("f32", 1), std::pair("f64", 1)}) {
    INFO(dtype);
    const Counted result = counted(canonical(parse(transposed(dtype))), {}, "sm_80");
    for (const ptx::LineProfile& line : result.reports.at(0).lines) {
      INFO(line.instruction);
      CHECK(2 * line.conflicts <= static_cast<uint64_t>(most) * line.wavefronts);
    }
  }
}

}  // namespace
}  // namespace kiln::testing
