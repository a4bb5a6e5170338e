// What is under way in which part of a round.
#include <fmt/format.h>

#include <iterator>

#include "ir/walk.h"
#include "passes/passes.h"
#include "runtime/explain.h"
#include "runtime/timeline.h"

namespace kiln {
namespace {

OpId launch_number(const Kernel& kernel, size_t number) {
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch && number-- == 0) return id;
  return {};
}

bool has_channels(const Kernel& kernel, OpId loop) {
  bool found = false;
  walk(kernel, kernel.op(loop).regions[0],
       [&](OpId id) { found |= kernel.op(id).code == OpCode::Pop; });
  return found;
}

void add_rows(std::string& text, const char* when, const std::vector<TimelineRow>& rows) {
  for (const TimelineRow& row : rows) {
    fmt::format_to(std::back_inserter(text), "    {:<10} {:<62} {:>8}\n", when, row.what,
                   byte_text(static_cast<double>(row.bytes)));
    when = "";
  }
}

std::string text_of(const Timeline& found, const Op& loop) {
  std::string text;
  const auto out = std::back_inserter(text);
  const std::string& reason = loop.word("reason");
  fmt::format_to(out, "\n  pipeline       {}{}{}\n", place(loop.loc), reason.empty() ? "" : ": ",
                 reason);
  for (const std::string& ring : found.rings) fmt::format_to(out, "    {}\n", ring);
  fmt::format_to(out, "    {:<10} {:<62} {:>8}\n", "", "", "under way");
  add_rows(text, "before", found.before);
  add_rows(text, "round i", found.round);
  if (found.most_bytes > 0)
    fmt::format_to(out, "    at most {} under way at once\n",
                   byte_text(static_cast<double>(found.most_bytes)));
  return text;
}

}  // namespace

std::string explain_pipelines(Kernel scheduled, const Kernel& lowered, size_t launch) {
  // What it does to the copies beside channels it does to them before these are lowered as well.
  if (scheduled.without.find("issue_copies_early") == std::string::npos)
    issue_copies_early(scheduled);
  const OpId before = launch_number(scheduled, launch), after = launch_number(lowered, launch);
  const std::vector<OpId> loops = pipelined_loops(scheduled, before);
  const std::vector<OpId> same = pipelined_loops(lowered, after);
  std::string text;
  for (size_t i = 0; i < loops.size(); ++i) {
    const Op& loop = scheduled.op(loops[i]);
    // Without channels waits tell more, and copies may still have moved.
    if (has_channels(scheduled, loops[i]) || i >= same.size())
      text += text_of(timeline(scheduled, before, loops[i]), loop);
    else
      text += text_of(timeline(lowered, after, same[i]), loop);
  }
  return text;
}

}  // namespace kiln
