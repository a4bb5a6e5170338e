#include "runtime/lowering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <sstream>

#include "ir/canon.h"
#include "ir/error.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "runtime/environment.h"

namespace kiln {
namespace {

void require_attribute(const Op& op, const char* attribute, bool given) {
  if (!given)
    throw UserError(op.loc,
                    fmt::format("{}: has no {}; expected one, as no pass runs on a kernel with "
                                "roles or asynchronous ops",
                                info(op.code).name, attribute),
                    "write it, or run the kernel on the host");
}

// `places`: in shared memory too, which no pass will choose.
void require_placed(const Kernel& kernel, const Op& op, bool places) {
  switch (op.code) {
    case OpCode::Launch: return require_attribute(op, "warps", op.integer("warps") > 0);
    case OpCode::Parallel: return require_attribute(op, "layout", !op.word("layout").empty());
    case OpCode::Alloc: {
      const Type& tile = kernel.type(op.result);
      if (tile.rank() == 0 && tile.space == Space::Fragment) return;  // one way only
      if (tile.space == Space::Local)
        throw UserError(op.loc,
                        "alloc: no pass takes local arrays apart in a kernel with roles or "
                        "asynchronous ops",
                        "a scalar variable an element, or run the kernel on the host");
      require_attribute(op, "layout", !op.word("layout").empty());
      if (places && tile.space == Space::Shared)
        require_attribute(op, "offset", op.integer("offset") >= 0);
      return;
    }
    case OpCode::Channel:
      if (places) require_attribute(op, "control", op.integer("control") >= 0);
      if (kernel.type(op.result).rank() == 0) return;
      require_attribute(op, "layout", !op.word("layout").empty());
      if (places) require_attribute(op, "offset", op.integer("offset") >= 0);
      return;
    default: return;
  }
}

}  // namespace

void require_lowered(const Kernel& kernel, std::string_view target) {
  constexpr std::string_view kOnly = "sm_90a";  // it alone has what the ops stand for
  const Op& late = *first_late_op(kernel);
  const bool by_hand = !only_channels(kernel);  // else passes lower and place them
  if (by_hand && kernel.target != kOnly)
    throw UserError(
        late.loc,
        fmt::format("{}: expected a kernel with {{target = \"{}\"}}, got {}", info(late.code).name,
                    kOnly, kernel.target.empty() ? "none" : kernel.target),
        "such a kernel is scheduled by hand, for one GPU; or run it on the host");
  if (by_hand && kernel.target != target)
    throw UserError(
        late.loc,
        fmt::format("kernel '{}' is scheduled for {}, the device's code is for {}", kernel.name,
                    kernel.target, target),
        fmt::format("a device of architecture {}, or the host, runs it", kernel.target));
  walk(kernel, kernel.body, [&](OpId id) { require_placed(kernel, kernel.op(id), by_hand); });
}

void leave_out_passes(Kernel& kernel) {
  std::string text = environment("KILN_WITHOUT").value_or("");
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream in(text);
  const std::vector<std::string> names(std::istream_iterator<std::string>(in), {});
  if (names.empty()) return;
  if (!kernel.without.empty()) kernel.without += ' ';
  kernel.without += passes_left_out(names);
}

Kernel compilable(const Kernel& kernel) {
  verify(kernel);
  Kernel result = canonical(kernel);
  leave_out_passes(result);
  return result;
}

Kernel lowered(const Kernel& kernel, Tier tier, std::string_view target, Dump* dump,
               PassOptions options) {
  if (tier != Tier::Host && first_late_op(kernel)) require_lowered(kernel, target);
  Kernel result = kernel;
  result.target = target;
  int stage = 0;
  if (dump && *dump) {
    dump->write("00_traced.tile", print(kernel));
    options.after_each = [&, own = options.after_each](const PassRun& pass, const Kernel& now) {
      dump->write(fmt::format("{:02}_{}.tile", ++stage, pass.name), print(now));
      if (own) own(pass, now);
    };
  }
  run_passes(result, passes_for(kernel, tier), options);
  return result;
}

std::vector<std::string> pass_names(Tier tier) {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline_for(tier))
    if (std::find(names.begin(), names.end(), pass.name) == names.end())
      names.emplace_back(pass.name);
  return names;
}

Kernel after_pass(const Kernel& kernel, Tier tier, std::string_view target, std::string_view pass) {
  std::string name(pass);
  std::replace(name.begin(), name.end(), '-', '_');
  const std::vector<std::string> names = pass_names(tier);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw UserError(fmt::format("the pipeline has no pass '{}'", name),
                    fmt::format("one of {}", fmt::join(names, ", ")));
  std::optional<Kernel> found;
  const auto watch = [&](const PassRun& run, const Kernel& now) {
    if (run.name == name) found = now;
  };
  lowered(kernel, tier, target, nullptr, {.after_each = watch});
  if (!found)
    throw UserError(
        fmt::format("pass '{}' does not run on kernel '{}', {}", name, kernel.name,
                    first_late_op(kernel) ? "which is scheduled already" : "it is left out"));
  return std::move(*found);
}

}  // namespace kiln
