// What the compiler chose for a GPU, and why.
#include "runtime/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "ir/layout/conversion.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "passes/launch_warps.h"
#include "passes/resources.h"
#include "passes/work_estimate.h"
#include "runtime/lowering.h"
#include "runtime/signature.h"

namespace kiln {
namespace {

// The rates of a board of each architecture, dense and without sparsity, from NVIDIA's datasheets.
struct Board {
  std::string_view target, name;
  double tensor_tflops;  // f16 inputs; twice that with 8 bits
  double f32_tflops, f64_tflops;
  double bandwidth_gbs;
};
constexpr std::array<Board, 7> kBoards = {{
    {"sm_80", "A100 80GB", 312, 19.5, 9.7, 2039},
    {"sm_86", "A40", 150, 37.4, 0.58, 696},
    {"sm_89", "L40S", 362, 91.6, 1.43, 864},
    {"sm_90", "H200", 989, 67, 34, 4800},
    {"sm_90a", "H200", 989, 67, 34, 4800},
    {"sm_100", "B200", 2250, 80, 40, 8000},
    {"sm_120", "RTX 5090", 210, 105, 1.64, 1792},
}};

std::string quantity(double value, std::string_view unit, double step = 1000) {
  static constexpr const char* kDecimal[] = {"", "k", "M", "G", "T"};
  static constexpr const char* kBinary[] = {"", "Ki", "Mi", "Gi", "Ti"};
  size_t at = 0;
  while (value >= step && at + 1 < std::size(kDecimal)) value /= step, ++at;
  return fmt::format("{:.3g} {}{}", value, step == 1000 ? kDecimal[at] : kBinary[at], unit);
}

// One launch: the block, what its ops became in program order, and what bounds its hottest loop.
class Explanation {
 public:
  Explanation(const Kernel& kernel, const GpuTarget& target, std::string& text)
      : kernel_(kernel), target_(target), text_(text) {
    walk(kernel, kernel.body, [&](OpId id) {
      if (kernel.op(id).code == OpCode::Alloc) allocs_[kernel.op(id).result.id] = id;
    });
  }

  void launch(const Op& op, const GpuLaunch& made, const EntryResources* assembled,
              const std::string& why_warps) {
    std::vector<std::string> grid;
    for (Value extent : op.operands) grid.push_back(expression(kernel_, extent));
    add("\nlaunch {}\n", made.entry);
    fact("grid", fmt::format("{} blocks", fmt::join(grid, " x ")));
    fact("block", fmt::format("{} warps, {} threads{}", made.threads / 32, made.threads,
                              why_warps.empty() ? "" : ": " + why_warps));
    fact("shared memory",
         fmt::format("{} of the {} that a block may have", byte_text(made.shared_bytes),
                     byte_text(target_.shared_per_block)));
    registers(op, made, assembled);
    add("\n");
    ops(op.regions[0], 1);
    roofline(op.regions[0]);
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) const {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
  }
  void fact(std::string_view what, std::string_view text) const {
    add("  {:<14} {}\n", what, text);
  }

  // Of roles nothing is predicted: they say themselves what they take.
  void registers(const Op& op, const GpuLaunch& made, const EntryResources* assembled) const {
    const bool has_roles = starts_roles(op);
    const int64_t warps = made.threads / 32, shared = made.shared_bytes;
    Resources predicted;
    if (!has_roles)
      predicted = block_resources(target_, estimate_registers(kernel_, op, warps), shared, warps);
    std::string text = "unknown: neither a ptxas nor such a GPU is here";
    if (assembled)
      text = fmt::format("{} a thread, {} ({})", assembled->registers,
                         assembled->local_bytes
                             ? fmt::format("{} bytes of local memory", assembled->local_bytes)
                             : "none spilled",
                         assembled->from);
    if (!has_roles) text += fmt::format("; {} expected", predicted.registers);
    fact("registers", text);
    if (!assembled && has_roles) return;
    const Resources real =
        assembled ? block_resources(target_, assembled->registers, shared, warps) : predicted;
    fact("occupancy", fmt::format("{}{} block{} a multiprocessor, {} of {} warps; limited by {}",
                                  assembled ? "" : "about ", real.blocks,
                                  real.blocks == 1 ? "" : "s", real.resident_warps(),
                                  target_.threads_per_multiprocessor / 32, name(real.limit)));
  }
  bool starts_roles(const Op& launch) const {
    const std::vector<OpId>& ops = kernel_.region(launch.regions[0]).ops;
    return !ops.empty() && kernel_.op(ops.back()).code == OpCode::Roles;
  }

  void ops(RegionId region, int depth) {
    for (OpId id : kernel_.region(region).ops) one(kernel_.op(id), depth);
  }

  // What, where; the reason below.
  void line(int depth, const std::string& what, const Op& op, const std::string& why = "") const {
    constexpr int kPlace = 72;  // its column
    const std::string text = std::string(static_cast<size_t>(2 * depth), ' ') + what;
    if (op.loc.known())
      add("{:<{}} {}\n", text, kPlace, place(op.loc));
    else
      add("{}\n", text);
    if (!why.empty()) add("{:<{}}{}\n", "", 2 * depth + 4, why);
  }

  void one(const Op& op, int depth) {
    switch (op.code) {
      case OpCode::For: {
        const int64_t rounds = constant_rounds(kernel_, op);
        line(depth,
             rounds ? fmt::format("for, {} rounds", rounds) : "for, rounds known at run time", op,
             op.word("reason"));
        break;
      }
      case OpCode::If: line(depth, "if", op); break;
      case OpCode::Alloc:
        if (!op.word("reason").empty())
          line(depth, "tile " + str(kernel_.type(op.result)), op, op.word("reason"));
        return;
      case OpCode::Gemm: line(depth, "gemm " + operands(op), op, op.word("reason")); return;
      case OpCode::Copy: line(depth, "copy " + operands(op), op, op.word("reason")); return;
      case OpCode::Convert: line(depth, "convert " + operands(op), op, conversion(op)); return;
      case OpCode::Reduce:
        line(depth, fmt::format("reduce {} {}", op.word("kind"), operands(op)), op,
             op.operand(2) ? "shuffles within each warp, then through shared memory"
                           : "registers and shuffles within each warp");
        return;
      case OpCode::Parallel: {
        const double exponentials = estimate_work(kernel_, op).exponentials;
        line(
            depth,
            fmt::format("parallel {}{}", str(op.ints("extents")),
                        exponentials > 0 ? fmt::format(", {:.0f} exponentials", exponentials) : ""),
            op);
        return;
      }
      case OpCode::Barrier: line(depth, "barrier", op); return;
      case OpCode::CommitCopies: line(depth, "close a group of copies", op); return;
      case OpCode::WaitCopies: {
        const int64_t pending = op.integer("pending");
        line(depth,
             pending ? fmt::format("wait for groups of copies but the last {}", pending)
                     : std::string("wait for copies"),
             op);
        return;
      }
      case OpCode::Roles: return roles(op, depth);
      default:
        if (const std::string text = scheduled(op); !text.empty()) line(depth, text, op);
        break;
    }
    for (RegionId inner : op.regions) ops(inner, depth + 1);
  }

  void roles(const Op& op, int depth) {
    std::istringstream names(op.word("names"));
    for (size_t i = 0; i < op.regions.size(); ++i) {
      std::string name;
      names >> name;
      line(depth,
           fmt::format("role {}: {} warp{}, {} registers a thread", name, op.ints("warps")[i],
                       op.ints("warps")[i] == 1 ? "" : "s", op.ints("registers")[i]),
           op);
      ops(op.regions[i], depth + 1);
    }
  }

  // What an op of the late IR does; empty for others, and for what needs no line.
  std::string scheduled(const Op& op) const {
    switch (op.code) {
      case OpCode::Loop: return "loop, until an exit";
      case OpCode::ExitIf: return "exit if";
      case OpCode::Channel: {
        const Type& type = kernel_.type(op.result);
        const std::string& message = op.word("message");
        return fmt::format("channel of {} slots, {}{}{}", op.integer("slots"), name(type.dtype),
                           str(type.shape), message.empty() ? "" : ", with " + message);
      }
      case OpCode::PushBegin: return "wait for a free slot";
      case OpCode::Pop: return "wait for a full slot";
      case OpCode::Release: return "release the slot";
      case OpCode::CopyAsync: return "asynchronous copy " + operands(op);
      case OpCode::StoreAsync: return "asynchronous store " + operands(op);
      case OpCode::AwaitStores: return "wait for stores";
      case OpCode::GemmAsync: return "asynchronous gemm " + operands(op);
      case OpCode::Await: return "wait for the gemm";
      case OpCode::NextTile: return op.operand(1) ? "next tile, by the counter" : "next tile";
      case OpCode::SoftmaxStep:
        return op.operand(6) ? "softmax step that may guess" : "softmax step";
      default: return "";
    }
  }

  static bool is_gemm(const Op& op) {
    return op.code == OpCode::Gemm || op.code == OpCode::GemmAsync;
  }

  // "shared f16[64, 64] -> fragment f32[64, 64]": what is read, what is written.
  std::string operands(const Op& op) const {
    static constexpr const char* kSpaces[] = {"", "global ", "shared ", "fragment "};
    std::vector<std::string> all;
    const bool gemm = is_gemm(op);  // into a fragment always
    const size_t inputs = gemm ? 2 : 1;
    for (size_t i = 0; i <= inputs; ++i) {
      const Type& type = kernel_.type(op.operands[i]);
      all.push_back(fmt::format("{}{}{}",
                                gemm && i == inputs ? "" : kSpaces[static_cast<size_t>(type.space)],
                                name(type.dtype), str(type.shape)));
    }
    const std::string written = std::move(all.back());
    all.pop_back();
    return fmt::format("{} -> {}", fmt::join(all, ", "), written);
  }

  std::string conversion(const Op& op) const {
    const auto from = layout(op.operands[0]), to = layout(op.operands[1]);
    if (!from || !to) return "layouts differ";
    const auto bytes = static_cast<int>(size_of(kernel_.type(op.operands[0]).dtype));
    return plan_conversion(*from, *to, bytes).kind == Conversion::Kind::Shuffle
               ? "layouts differ: shuffles within each warp"
               : "layouts differ: other registers of the same thread, free";
  }
  std::optional<Layout> layout(Value tile) const {
    auto found = allocs_.find(tile.id);
    return found == allocs_.end() ? std::nullopt : layout_of(kernel_.op(found->second));
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

  // Of the gemms, on all of the board; loops of unknown rounds count as one round.
  double gemm_seconds(RegionId region, const Board& board) const {
    double seconds = 0;
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (is_gemm(op)) {
        const DType dtype = kernel_.type(op.operands[0]).dtype;
        const double tensor = board.tensor_tflops * (size_of(dtype) == 1 ? 2 : 1);
        const double fma = dtype == F64 ? board.f64_tflops : board.f32_tflops;
        const bool on_tensor_cores =
            op.code == OpCode::GemmAsync || op.word("instruction") == "mma";
        const double rate = on_tensor_cores ? tensor : fma;
        seconds += estimate_work(kernel_, op).flops / (rate * 1e12);
      }
      const int64_t rounds = op.code == OpCode::For ? constant_rounds(kernel_, op) : 0;
      for (RegionId inner : op.regions)
        seconds += gemm_seconds(inner, board) * static_cast<double>(rounds ? rounds : 1);
    }
    return seconds;
  }

  void roofline(RegionId body) const {
    const RegionId hot = hottest(body);
    const WorkEstimate work = estimate_work(kernel_, hot);
    const double moved = work.global_read + work.global_written;
    add("\n  {}\n", hot == body ? "a block: each loop once, each branch"
                                : "a round of the innermost loop with gemms");
    if (work.flops > 0) fact("gemms", quantity(work.flops, "FLOP"));
    if (work.elements > 0)
      fact("elementwise", fmt::format("{:.0f} operations, {:.0f} of them exponentials",
                                      work.elements, work.exponentials));
    fact("memory", fmt::format("{} read, {} written", byte_text(work.global_read),
                               byte_text(work.global_written)));
    auto board = std::find_if(kBoards.begin(), kBoards.end(),
                              [&](const Board& b) { return b.target == target_.name; });
    if (board == kBoards.end() || moved <= 0) return;
    const double arithmetic =
        gemm_seconds(hot, *board) + work.elements / (board->f32_tflops / 2 * 1e12);
    const double memory = moved / (board->bandwidth_gbs * 1e9);
    const bool by_memory = memory > arithmetic;
    fact("roofline", fmt::format("a whole {} needs {:.3g} ns for the arithmetic, {:.3g} ns for the",
                                 board->name, arithmetic * 1e9, memory * 1e9));
    fact("",
         fmt::format("memory if no cache helps: bound by {}", by_memory ? "memory" : "arithmetic"));
    if (work.flops <= 0) return;
    std::string bound =
        fmt::format("{:.3g} FLOP a byte; at most {:.3g} TFLOP/s", work.flops / moved,
                    work.flops / std::max(arithmetic, memory) / 1e12);
    if (by_memory)
      bound += fmt::format(", {:.3g} if all is in a cache", work.flops / arithmetic / 1e12);
    fact("", bound);
  }

  const Kernel& kernel_;
  const GpuTarget& target_;
  std::string& text_;
  std::map<uint32_t, OpId> allocs_;  // by the tile's value
};

// A kernel on its way through the passes.
struct Stages {
  Kernel unscheduled;  // no instruction chosen yet
  Kernel scheduled;    // channels are channels still
  Kernel lowered;
};
Stages stages_of(const Kernel& kernel, std::string_view arch) {
  Stages stages{kernel, kernel, kernel};
  bool scheduled = false, chosen = false;
  const auto watch = [&](const PassRun& run, const Kernel& now) {
    chosen |= run.name == "choose_instructions";
    scheduled |= run.name == "lower_channels";
    if (!chosen) stages.unscheduled = now;
    if (!scheduled) stages.scheduled = now;
  };
  stages.lowered = lowered(kernel, Tier::Sm80, arch, nullptr, {.after_each = watch});
  if (!chosen) stages.unscheduled = stages.lowered;
  if (!scheduled) stages.scheduled = stages.lowered;
  return stages;
}

std::vector<OpId> launches_of(const Kernel& kernel) {
  std::vector<OpId> launches;
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch) launches.push_back(id);
  return launches;
}

}  // namespace

std::string explain(const Kernel& kernel, std::string_view arch) {
  const Stages stages = stages_of(kernel, arch);
  const Kernel& lowered = stages.lowered;
  const GpuCode code = compile_ptx(lowered);
  const std::vector<EntryResources> all = entry_resources(kernel, code, arch);
  std::string text =
      fmt::format("kernel {} for {}{}\n", kernel.name, arch, kernel.fast_math ? ", fast math" : "");
  if (!kernel.note.empty()) text += "  " + kernel.note + "\n";
  Explanation explanation(lowered, gpu_target(arch), text);
  const std::vector<OpId> launches = launches_of(lowered);
  for (size_t i = 0; i < launches.size(); ++i) {
    const bool late = first_late_op(kernel);
    const Op& before = stages.unscheduled.op(launches_of(stages.unscheduled).at(i));
    explanation.launch(lowered.op(launches[i]), code.launches.at(i),
                       i < all.size() ? &all[i] : nullptr,
                       late ? "" : launch_warps_reason(stages.unscheduled, before));
    if (!late) text += explain_pipelines(stages.scheduled, lowered, i);
  }
  return text;
}

std::string byte_text(double bytes) {
  return quantity(bytes, "B", 1024);
}

std::string place(const Loc& loc) {
  if (!loc.known()) return "";
  std::error_code error;
  const auto here = std::filesystem::current_path(error);
  std::string file = std::filesystem::path(loc.file).lexically_proximate(here).string();
  if (error || file.size() >= std::string_view(loc.file).size()) file = loc.file;
  return fmt::format("{}:{}", file, loc.line);
}

}  // namespace kiln
