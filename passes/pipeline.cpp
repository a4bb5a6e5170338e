#include "passes/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <sstream>

#include "ir/error.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/passes.h"

namespace kiln {
namespace {

#ifdef NDEBUG
constexpr bool kAlwaysVerify = false;
#else
constexpr bool kAlwaysVerify = true;
#endif

void verify_after(const Kernel& kernel, const Pass& pass) {
  try {
    verify(kernel, IrStage::Lowered);
  } catch (const Error& error) {
    throw InternalError(error.loc(),
                        fmt::format("pass '{}' broke the kernel: {}", pass.name, error.message()));
  }
}

bool is_in(const std::vector<Pass>& passes, std::string_view name) {
  return std::any_of(passes.begin(), passes.end(),
                     [&](const Pass& pass) { return pass.name == name; });
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// The passes of the GPU tier know neither roles nor asynchrony, and would spoil what was chosen;
// but that channels of blocks without roles are lowered, and then they are ops like others.
void require_unscheduled(const Kernel& kernel, std::span<const Pass> passes) {
  const Op* late = first_late_op(kernel);
  if (!late) return;
  for (const Pass& pass : passes) {
    if (pass.name == "lower_channels" && only_channels(kernel)) return;
    if (is_in(pipeline_for(Tier::Sm80), pass.name) && !is_in(pipeline_for(Tier::Host), pass.name))
      throw UserError(late->loc,
                      fmt::format("{}: a kernel with this op is scheduled already; expected one "
                                  "that pass '{}' is to schedule",
                                  info(late->code).name, pass.name),
                      "compile it as it is");
  }
}

PassRun timed(Kernel& kernel, const Pass& pass) {
  auto start = std::chrono::steady_clock::now();
  pass.run(kernel);
  std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return {pass.name, took.count(), false};
}

std::vector<Pass> passes(std::initializer_list<std::string_view> names) {
  std::vector<Pass> list;
  for (std::string_view name : names) list.push_back(pass_named(name));
  return list;
}

}  // namespace

bool only_channels(const Kernel& kernel) {
  bool only = true;
  walk(kernel, kernel.body, [&](OpId id) {
    const OpCode code = kernel.op(id).code;
    const bool late = code >= OpCode::Roles && code <= OpCode::NextTile;
    const bool of_channels = code >= OpCode::Channel && code <= OpCode::CopyAsync;
    only &= !late || of_channels;
  });
  return only;
}

const std::vector<Pass>& all_passes() {
  static const std::vector<Pass> table = {
      {"atomics_in_parallel", atomics_in_parallel, "atomics of one thread to parallels of a point"},
      {"choose_instructions", choose_instructions, "warps, and instructions of gemms and copies"},
      {"common_subexpressions", common_subexpressions, "merges equal pure ops", true},
      {"compact_selected", compact_selected,
       "selected loops to loops over lists of what is selected", true},
      {"dead_code", dead_code, "removes what contributes to no tensor", true},
      {"exp_to_exp2", exp_to_exp2,
       "exp and log to base 2, the factor folded into a scale (fast math)", true},
      {"expand_gather", expand_gather, "gather and scatter to parallel"},
      {"expand_local_arrays", expand_local_arrays, "local arrays to variables and selects"},
      {"expand_online_softmax", expand_online_softmax,
       "online softmax to reduce, parallel, scalars"},
      {"expand_rasterize", expand_rasterize, "the order of blocks to arithmetic on their indices"},
      {"expand_row_ops", expand_row_ops, "arg_reduce, cumsum and sort to reduce, loops, parallel"},
      {"fast_math", fast_math, "marks float arithmetic that may be fused and approximated", true},
      {"flatten_loops", flatten_loops, "pipelined loops in each other to one", true},
      {"hoist_invariants", hoist_invariants, "moves pure ops out of loops they do not depend on",
       true},
      {"infer_layouts", infer_layouts, "layouts of tiles and loops, and conversions between them"},
      {"insert_barriers", insert_barriers, "barriers and waits between conflicting accesses"},
      {"issue_copies_early", issue_copies_early,
       "cp_async copies before work that can overlap them", true},
      {"lower_channels", lower_channels,
       "channels of one agent to rings of shared tiles, waits and barriers"},
      {"lower_selected", lower_selected, "selected loops to serial loops with a test"},
      {"make_async", make_async, "copies of pipelined loops fetched rounds ahead, into channels",
       true},
      {"pipeline_gemms", pipeline_gemms, "the first of two dependent gemms computed a round ahead",
       true},
      {"plan_shared_memory", plan_shared_memory, "places of shared tiles"},
      {"simplify", simplify, "folds constants, identities, constant branches, short loops", true},
      {"slices_through_shared", slices_through_shared,
       "slices of fragments become slices of shared tiles"},
      {"stage_stores", stage_stores,
       "copies from registers to tensors through shared memory, in whole vectors", true},
      {"unroll", unroll, "copies the bodies of unroll loops"},
  };
  return table;
}

const Pass& pass_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Pass& pass : all_passes()) {
    if (pass.name == name) return pass;
    names.push_back(pass.name);
  }
  throw UserError(fmt::format("no pass is named '{}'", name),
                  fmt::format("one of {}", fmt::join(names, ", ")));
}

// First what the user wrote takes its final size (and blocks their order, whose arithmetic is
// simplified with the rest): constants decide bounds, unrolling makes more
// constants, which leave of a local array the elements that are meant. Then whole-tile ops become
// loops: the softmax before exp_to_exp2, which must see its logarithm; `selected` before hoisting,
// which must see its loop. Clean-up follows, hoisting before merging, because equal ops of sibling
// loops meet outside; dead code goes once nothing makes more. fast_math is last: it marks
// everything there is.
const std::vector<Pass>& pipeline_for(Tier tier) {
  static const std::vector<Pass> host = passes({
      "expand_rasterize",
      "simplify",
      "unroll",
      "expand_local_arrays",
      "expand_online_softmax",
      "expand_row_ops",
      "expand_gather",
      "lower_selected",
      "exp_to_exp2",
      "simplify",
      "hoist_invariants",
      "common_subexpressions",
      "dead_code",
      "fast_math",
  });
  // A GPU does the same, but that a block first lists together what is selected, and then spreads
  // the work over threads.
  static const std::vector<Pass> sm80 = [] {
    std::vector<Pass> list = host;
    list.insert(std::find_if(list.begin(), list.end(),
                             [](const Pass& pass) { return pass.name == "expand_row_ops"; }),
                pass_named("compact_selected"));
    for (const Pass& pass :
         passes({"flatten_loops", "simplify", "atomics_in_parallel", "slices_through_shared",
                 "choose_instructions", "infer_layouts", "make_async", "pipeline_gemms",
                 "lower_channels", "issue_copies_early", "stage_stores", "plan_shared_memory",
                 "insert_barriers"}))
      list.push_back(pass);
    return list;
  }();
  switch (tier) {
    case Tier::Host: return host;
    case Tier::Sm80: return sm80;
  }
  throw InternalError("no such tier");
}

std::vector<Pass> passes_for(const Kernel& kernel, Tier tier) {
  std::vector<Pass> list = pipeline_for(tier);
  if (const Op* late = first_late_op(kernel); late && tier == Tier::Host)
    list =
        passes({"expand_local_arrays", "expand_online_softmax", "expand_row_ops", "expand_gather"});
  else if (late)
    list = only_channels(kernel)
               ? passes({"lower_channels", "plan_shared_memory", "insert_barriers"})
               : std::vector<Pass>{};
  const std::vector<std::string> out = words(kernel.without);
  passes_left_out(out);
  std::erase_if(list, [&](const Pass& pass) {
    return std::find(out.begin(), out.end(), pass.name) != out.end();
  });
  return list;
}

std::string passes_left_out(const std::vector<std::string>& names) {
  std::string text;
  for (std::string name : names) {
    std::replace(name.begin(), name.end(), '-', '_');
    std::vector<std::string_view> optional;
    bool found = false;
    for (const Pass& pass : all_passes()) {
      if (pass.optional) optional.push_back(pass.name);
      found |= pass.optional && pass.name == name;
    }
    if (!found)
      throw UserError(fmt::format("pass '{}' cannot be left out", name),
                      fmt::format("one of {}", fmt::join(optional, ", ")));
    text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

void run_passes(Kernel& kernel, std::span<const Pass> passes, const PassOptions& options) {
  verify(kernel);
  require_unscheduled(kernel, passes);
  const bool verify_each = options.verify_each || kAlwaysVerify;
  const Kernel before = verify_each ? Kernel() : kernel;
  std::string text = options.after_each ? print(kernel) : "";
  for (const Pass& pass : passes) {
    PassRun run = timed(kernel, pass);
    if (verify_each) verify_after(kernel, pass);
    if (!options.after_each) continue;
    std::string now = print(kernel);
    run.changed = now != text;
    text = std::move(now);
    options.after_each(run, kernel);
  }
  if (verify_each) return;
  try {
    verify(kernel, IrStage::Lowered);
  } catch (const Error&) {
    // Run again from the start to name the pass.
    kernel = before;
    run_passes(kernel, passes, {.verify_each = true, .after_each = {}});
    throw;
  }
}

std::string pipeline_fingerprint(Tier tier) {
  std::vector<std::string_view> names;
  for (const Pass& pass : pipeline_for(tier)) names.push_back(pass.name);
  return fmt::format("{}:{}", tier == Tier::Host ? "host" : "sm80", fmt::join(names, ","));
}

}  // namespace kiln
