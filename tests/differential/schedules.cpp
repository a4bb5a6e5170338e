// What a GPU's passes made of a program's loops, and which of them it does without.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <sstream>

#include "ir/walk.h"
#include "passes/pipeline.h"
#include "tests/differential/occurrences.h"

namespace kiln::differential {
namespace {

// Why copies are not fetched ahead, as make_async begins to say it.
constexpr const char* kDeclined[] = {
    "it fills a part of a tile",
    "its tile is looked at in another form",
    "its tile is used outside of the loop",
    "its tile is used before it in the round",
    "a second copy fills its tile in the round",
    "its tile is used in other rounds",
    "it stands in a loop inside",
    "it stands in the other side of a branch",
    "the loop writes its source",
    "its guard depends on",
    "its address depends on",
};
constexpr std::string_view kNot = "not fetched ahead: ";
constexpr std::string_view kAhead = " is computed a round ahead";  // pipeline_gemms
constexpr int kMostStages = 5;

std::string slots(int64_t number) {
  return fmt::format("schedule: fetched into {} slots", number);
}

void note_loop(const Op& op, Occurrences& found) {
  const std::string& reason = op.word("reason");
  if (reason.starts_with(kNot)) found.insert("schedule: a loop that fetches nothing ahead");
  if (reason.find(kAhead) != std::string::npos) found.insert("schedule: a gemm a round ahead");
  if (!reason.starts_with("fetches ")) return;
  found.insert("schedule: a loop that fetches ahead");
  for (int64_t number = 2; number <= kMostStages; ++number)
    if (reason.find(fmt::format("into {} slots", number)) != std::string::npos)
      found.insert(slots(number));
}

// `branches`: around it. One asks whether the round to fetch for is one, more are guards.
void note_copy(const Op& op, int branches, Occurrences& found) {
  const std::string& reason = op.word("reason");
  if (op.word("group") == "next" && branches > 1)
    found.insert("schedule: a guarded copy fetched ahead");
  const size_t at = reason.find(kNot);
  if (at == std::string::npos) return;
  for (const char* why : kDeclined)
    if (reason.find(why, at) != std::string::npos)
      found.insert(fmt::format("schedule: declined as {}", why));
}

void survey(const Kernel& kernel, RegionId region, int branches, Occurrences& found) {
  for (OpId id : kernel.region(region).ops) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::For) note_loop(op, found);
    if (op.code == OpCode::Copy) note_copy(op, branches, found);
    const int more = op.code == OpCode::If ? 1 : 0;
    for (RegionId inner : op.regions) survey(kernel, inner, branches + more, found);
  }
}

std::vector<std::string> left_out(const Kernel& kernel) {
  std::istringstream in(kernel.without);
  return {std::istream_iterator<std::string>(in), {}};
}

bool is_wide(const Kernel& kernel, const Op& selected) {
  const Type& row = kernel.type(selected.operands[0]);
  const int64_t listed = row.dtype == I32 ? 256 : 512;
  return std::any_of(row.shape.begin(), row.shape.end(),
                     [&](int64_t extent) { return extent > listed; });
}

void note_traced(const Kernel& kernel, Occurrences& found) {
  const std::vector<std::string> without = left_out(kernel);
  for (const std::string& pass : without) found.insert(fmt::format("without {}", pass));
  const bool compacts =
      std::find(without.begin(), without.end(), "compact_selected") == without.end();
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Launch && op.integer("warps") > 0)
      found.insert("schedule: as many warps as wished");
    if (op.code != OpCode::Selected || op.integer("stages") < 1 || !compacts) return;
    found.insert("schedule: selected loops over lists");
    if (is_wide(kernel, op)) found.insert("schedule: a list in several parts");
  });
}

}  // namespace

Occurrences schedules_of(const Kernel& kernel, const Kernel* lowered) {
  Occurrences found;
  note_traced(kernel, found);
  if (lowered) survey(*lowered, lowered->body, 0, found);
  return found;
}

std::vector<std::string> all_schedules() {
  std::vector<std::string> all = {
      "schedule: a loop that fetches ahead",    "schedule: a loop that fetches nothing ahead",
      "schedule: a guarded copy fetched ahead", "schedule: as many warps as wished",
      "schedule: selected loops over lists",    "schedule: a list in several parts",
      "schedule: a gemm a round ahead"};
  for (int64_t number = 2; number <= kMostStages; ++number) all.push_back(slots(number));
  for (const char* why : kDeclined) all.push_back(fmt::format("schedule: declined as {}", why));
  for (const Pass& pass : all_passes())
    if (pass.optional) all.push_back(fmt::format("without {}", pass.name));
  return all;
}

}  // namespace kiln::differential
