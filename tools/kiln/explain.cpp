// kiln explain: what the compiler chose for a GPU, and why.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "ir/canon.h"
#include "ir/error.h"
#include "passes/gpu_target.h"
#include "passes/work_estimate.h"
#include "runtime/signature.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/gpu_code.h"

namespace kiln::cli {
namespace {

struct ExplainOptions {
  std::string target, arch;
  std::vector<std::string> set;
};

// The rates of a board of each architecture, dense and without sparsity, from NVIDIA's datasheets.
struct Board {
  std::string_view target, name;
  double tensor_tflops;  // f16 inputs
  double f32_tflops;
  double bandwidth_gbs;
};
constexpr std::array<Board, 7> kBoards = {{
    {"sm_80", "A100 80GB", 312, 19.5, 2039},
    {"sm_86", "A40", 150, 37.4, 696},
    {"sm_89", "L40S", 362, 91.6, 864},
    {"sm_90", "H200", 989, 67, 4800},
    {"sm_90a", "H200", 989, 67, 4800},
    {"sm_100", "B200", 2250, 80, 8000},
    {"sm_120", "RTX 5090", 210, 105, 1792},
}};

std::string quantity(double value, const char* unit, double step = 1000) {
  static constexpr const char* kDecimal[] = {"", " k", " M", " G", " T"};
  static constexpr const char* kBinary[] = {"", " Ki", " Mi", " Gi", " Ti"};
  size_t at = 0;
  while (value >= step && at + 1 < std::size(kDecimal)) value /= step, ++at;
  const char* prefix = step == 1000 ? kDecimal[at] : kBinary[at];
  return fmt::format("{:.4g}{}{}", value, *prefix ? prefix : " ", unit);
}

std::string line_of(const Op& op) {
  return op.loc.known() ? str(op.loc) : "";
}

class Explanation {
 public:
  Explanation(const Kernel& kernel, const GpuTarget& target) : kernel_(kernel), target_(target) {}

  void launch(const Op& op, const GpuLaunch& made, const Resources* resources) {
    std::vector<std::string> grid;
    for (Value extent : op.operands) grid.push_back(expression(kernel_, extent));
    fmt::print("launch {}: grid {}\n", made.entry, fmt::join(grid, " x "));
    fmt::print("  {:<14} {} warps, {} threads\n", "block", made.threads / 32, made.threads);
    fmt::print("  {:<14} {} bytes of {}\n", "shared memory", made.shared_bytes,
               target_.shared_per_block);
    if (resources)
      fmt::print("  {:<14} {} a thread, {} bytes of local memory ({})\n", "registers",
                 resources->registers, resources->local_bytes, resources->from);
    else
      fmt::print("  {:<14} unknown: no ptxas here\n", "registers");
    occupancy(made, resources);
    ops(op.regions[0], 1);
    roofline(op.regions[0]);
  }

 private:
  void occupancy(const GpuLaunch& made, const Resources* resources) const {
    struct Limit {
      const char* by;
      int blocks;
    };
    std::vector<Limit> limits = {
        {"threads", target_.threads_per_multiprocessor / made.threads},
        {"the number of blocks", target_.blocks_per_multiprocessor},
        {"shared memory", target_.shared_per_multiprocessor /
                              (made.shared_bytes + target_.kSharedPerBlockReserved)}};
    // Registers are given to warps in units of 256: 8 a thread.
    if (resources && resources->registers > 0)
      limits.push_back({"registers", target_.kRegistersPerMultiprocessor / made.threads /
                                         ((resources->registers + 7) / 8 * 8)});
    auto least = std::min_element(limits.begin(), limits.end(), [](const Limit& a, const Limit& b) {
      return a.blocks < b.blocks;
    });
    fmt::print("  {:<14} {} blocks, {} of {} warps of a multiprocessor, limited by {}\n",
               "occupancy", least->blocks, least->blocks * made.threads / 32,
               target_.threads_per_multiprocessor / 32, least->by);
  }

  void ops(RegionId region, int depth) {
    for (OpId id : kernel_.region(region).ops) one(kernel_.op(id), depth);
  }

  void one(const Op& op, int depth) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    auto print = [&](const std::string& what, const std::string& why) {
      fmt::print("{}{:<{}} {}{}\n", indent, what, 62 - 2 * depth, why,
                 op.loc.known() ? "  [" + line_of(op) + "]" : "");
    };
    switch (op.code) {
      case OpCode::For: {
        const int64_t rounds = constant_rounds(kernel_, op);
        print(rounds ? fmt::format("for, {} rounds", rounds) : "for, rounds known at run time", "");
        break;
      }
      case OpCode::If: print("if", ""); break;
      case OpCode::Gemm: print("gemm " + operands(op), op.word("reason")); return;
      case OpCode::Copy: print("copy " + operands(op), op.word("reason")); return;
      case OpCode::Convert: print("convert " + operands(op), "layouts differ"); return;
      case OpCode::Reduce:
        print("reduce " + op.word("kind") + " " + operands(op),
              op.operand(2) ? "within warps, then through shared memory" : "within warps");
        return;
      case OpCode::Parallel:
        print("parallel " + str(op.ints("extents")),
              quantity(estimate_work(kernel_, op).exponentials, "exponentials"));
        return;
      case OpCode::Barrier: print("barrier", ""); return;
      case OpCode::WaitCopies:
        print(fmt::format("wait for copies, {} may be under way", op.integer("pending")), "");
        return;
      default: return;
    }
    for (RegionId inner : op.regions) ops(inner, depth + 1);
  }

  std::string operands(const Op& op) const {
    std::string text;
    for (size_t i = 0; i < op.operands.size() && i < 3; ++i) {
      const Type& type = kernel_.type(op.operands[i]);
      if (!type.is_storage()) continue;
      static constexpr const char* kSpaces[] = {"", "global", "shared", "fragment"};
      text +=
          fmt::format("{}{} {}{}", text.empty() ? "" : ", ",
                      kSpaces[static_cast<size_t>(type.space)], name(type.dtype), str(type.shape));
    }
    return text;
  }

  // The loop that does the most gemm work, or the whole block if there is none.
  RegionId hottest(RegionId region) const {
    RegionId found = region;
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Parallel) continue;
      for (RegionId inner : op.regions) {
        const WorkEstimate work = estimate_work(kernel_, inner);
        if (work.flops > 0 && 2 * work.flops >= estimate_work(kernel_, region).flops)
          found = hottest(inner);
      }
    }
    return found;
  }

  void roofline(RegionId body) const {
    const RegionId hot = hottest(body);
    const WorkEstimate work = estimate_work(kernel_, hot);
    const char* what = hot == body ? "a block" : "a round of the innermost loop with gemms";
    const double bytes = work.global_read + work.global_written;
    fmt::print("  {}: {}, {} element operations, {}, {} read, {} written\n", what,
               quantity(work.flops, "FLOP"), quantity(work.elements, ""),
               quantity(work.exponentials, "exponentials"), quantity(work.global_read, "B", 1024),
               quantity(work.global_written, "B", 1024));
    auto board = std::find_if(kBoards.begin(), kBoards.end(),
                              [&](const Board& b) { return b.target == target_.name; });
    if (board == kBoards.end() || bytes <= 0) return;
    const double arithmetic =
        work.flops / (board->tensor_tflops * 1e12) + work.elements / (board->f32_tflops / 2 * 1e12);
    const double memory = bytes / (board->bandwidth_gbs * 1e9);
    fmt::print(
        "  on a whole {} ({:.0f} TFLOP/s, {:.0f} GB/s): {:.3g} ns of arithmetic, {:.3g} ns of "
        "memory if nothing is cached: bound by {}; {:.4g} FLOP a byte\n",
        board->name, board->tensor_tflops, board->bandwidth_gbs, arithmetic * 1e9, memory * 1e9,
        arithmetic > memory ? "arithmetic" : "memory", work.flops / bytes);
  }

  const Kernel& kernel_;
  const GpuTarget& target_;
};

void explain(const ExplainOptions& options) {
  const NamedTexts settings = named("--set", options.set);
  Kernel kernel = load_kernel(options.target, settings);
  const std::string arch = arch_or_default(options.arch);
  const Kernel lowered = lowered_for_gpu(kernel, arch);
  const GpuCode code = compile_ptx(lowered);
  const std::vector<Resources> resources = resources_of(code, arch);
  fmt::print("kernel {} for {}{}\n", kernel.name, arch, kernel.fast_math ? ", fast math" : "");
  Explanation explanation(lowered, gpu_target(arch));
  size_t launch = 0;
  for (OpId id : lowered.region(lowered.body).ops) {
    const Op& op = lowered.op(id);
    if (op.code != OpCode::Launch) continue;
    explanation.launch(op, code.launches.at(launch),
                       launch < resources.size() ? &resources[launch] : nullptr);
    ++launch;
  }
}

}  // namespace

void add_explain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "what the compiler chooses for a GPU, and why");
  command->add_option("target", options->target, "a library kernel or a .tile file")->required();
  command->add_option("--set", options->set, "an option of the kernel")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--arch", options->arch,
                   "the GPU architecture, as sm_90; this GPU's, or "
                   "sm_90 without one")
      ->type_name("SM");
  command->footer("  kiln explain block_sparse_attention --set dim=64 --arch sm_80");
  command->callback([options] { explain(*options); });
}

}  // namespace kiln::cli
