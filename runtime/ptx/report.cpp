// Findings: where they are and how they read.
#include <fmt/format.h>

#include <utility>

#include "runtime/ptx/access.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {
namespace {

constexpr std::string_view kKinds[] = {"out of bounds",
                                       "misaligned access",
                                       "write to read-only memory",
                                       "uninitialised shared memory",
                                       "uninitialised register",
                                       "data race",
                                       "copy not awaited",
                                       "divergent warp",
                                       "deadlock",
                                       "instruction limit",
                                       "trap",
                                       "missing proxy fence",
                                       "register in flight",
                                       "mbarrier protocol",
                                       "register budget"};

}  // namespace

Error::Error(const std::string& message, int line)
    : std::runtime_error(line > 0 ? fmt::format("PTX line {}: {}", line, message) : message),
      line_(line) {}

std::string_view name(FindingKind kind) {
  return kKinds[static_cast<size_t>(kind)];
}

std::string Finding::text() const {
  std::string text;
  if (!file.empty()) text += fmt::format("{}:{}: ", file, line);
  text +=
      fmt::format("{}: {}\n  block ({}, {}, {})", name(kind), message, block.x, block.y, block.z);
  if (ptx_line > 0) text += fmt::format(", PTX line {}: {}", ptx_line, instruction);
  if (!advice.empty()) text += fmt::format("\n  try: {}", advice);
  return text;
}

void locate(const Grid& grid, int32_t position, Finding& finding) {
  if (position < 0 || static_cast<size_t>(position) >= grid.entry.code.size()) return;
  const Statement& source = *grid.entry.code[static_cast<size_t>(position)].source;
  finding.ptx_line = source.line;
  finding.instruction = source.full;
  finding.file = grid.module.file(source.source.file);
  finding.line = source.source.line;
}

std::string describe(const Grid& grid, int32_t position) {
  Finding place{};
  locate(grid, position, place);
  std::string user = place.file.empty() ? "" : fmt::format(", {}:{}", place.file, place.line);
  return fmt::format("at PTX line {} ({}){}", place.ptx_line, place.instruction, user);
}

Finding race_between_blocks(const Grid& grid, const BlockRace& race) {
  auto block = [&](const BlockAccess& access) {
    Dim3 at = grid.block_at(access.block);
    return fmt::format("block ({}, {}, {}) {}", at.x, at.y, at.z,
                       access.write ? "writes" : "reads");
  };
  Finding finding{
      FindingKind::Race,
      fmt::format("{} {}; {} it {} and nothing orders the blocks of a launch", block(race.second),
                  describe_address(grid, Space::Global, race.address), block(race.first),
                  describe(grid, race.first.instruction)),
      "let one block do both, use atomics, or do one of them in a launch of its own"};
  finding.block = grid.block_at(race.second.block);
  locate(grid, race.second.instruction, finding);
  return finding;
}

void Warp::fault(FindingKind kind, std::string message, std::string advice) {
  Finding finding{kind, std::move(message), std::move(advice)};
  finding.block = block_.index;
  locate(block_.grid, position_, finding);
  throw Fault{std::move(finding)};
}

void Warp::report(FindingKind kind, std::string message, std::string advice) {
  auto& findings = block_.findings;
  if (findings.size() >= block_.grid.options.max_findings) return;
  Finding finding{kind, std::move(message), std::move(advice)};
  finding.block = block_.index;
  locate(block_.grid, position_, finding);
  for (const Finding& other : findings)
    if (other.kind == kind && other.ptx_line == finding.ptx_line) return;
  findings.push_back(std::move(finding));
}

void Warp::report_at(int32_t position, Finding finding) {
  const int32_t here = std::exchange(position_, position);
  report(finding.kind, std::move(finding.message), std::move(finding.advice));
  position_ = here;
}

std::string Warp::thread_name(int lane) const {
  const Dim3& block = block_.grid.block;
  uint32_t id = thread(lane);
  if (block.y == 1 && block.z == 1) return fmt::format("thread {}", id);
  return fmt::format("thread ({}, {}, {})", id % block.x, id / block.x % block.y,
                     id / block.x / block.y);
}

}  // namespace kiln::ptx
