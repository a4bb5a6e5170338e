#include "tools/kiln/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/emulator_device.h"
#include "tools/kiln/common.h"

namespace kiln::cli {
namespace {

void print_counters(const ptx::Counters& counters) {
  auto row = [](uint64_t count, const char* what) { fmt::print("{:>14}  {}\n", count, what); };
  row(counters.warp_instructions, "instructions of warps");
  row(counters.lane_instructions, "instructions of lanes");
  row(counters.shared_requests, "instructions that access shared memory");
  row(counters.shared_wavefronts, "wavefronts of them");
  row(counters.bank_conflicts, "wavefronts that are bank conflicts");
  row(counters.global_requests, "instructions that access global memory");
  row(counters.global_sectors, "sectors of 32 bytes of them");
  row(counters.global_bytes, "bytes of global memory that lanes asked for");
  row(counters.barriers, "arrivals of warps at barriers");
  std::vector<std::pair<std::string, uint64_t>> classes(counters.instructions.begin(),
                                                        counters.instructions.end());
  std::stable_sort(classes.begin(), classes.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  fmt::print("\ninstructions of warps by name:");
  for (const auto& [name, count] : classes) fmt::print(" {} {}", name, count);
  fmt::print("\n");
}

}  // namespace

void print_profile(const ptx::Report& report) {
  print_counters(report.counters);
  std::map<std::pair<std::string, int>, ptx::LineProfile> lines;  // by place
  for (const ptx::LineProfile& line : report.lines) {
    const bool known = !line.file.empty();
    auto [it, fresh] = lines.try_emplace({line.file, known ? line.line : line.ptx_line}, line);
    if (fresh) continue;
    ptx::LineProfile& sum = it->second;
    sum.warps += line.warps;
    sum.lanes += line.lanes;
    sum.wavefronts += line.wavefronts;
    sum.conflicts += line.conflicts;
    sum.sectors += line.sectors;
  }
  fmt::print("\n{:>12} {:>14} {:>12} {:>12} {:>12}  line\n", "warps", "lanes", "wavefronts",
             "conflicts", "sectors");
  for (const auto& [key, line] : lines)
    fmt::print("{:>12} {:>14} {:>12} {:>12} {:>12}  {}\n", line.warps, line.lanes, line.wavefronts,
               line.conflicts, line.sectors,
               line.file.empty() ? fmt::format("PTX line {}: {}", line.ptx_line, line.instruction)
                                 : place({intern(line.file), line.line}));
}

void add_emulator_options(CLI::App& command, EmulatorChoice& choice) {
  command
      .add_option("--block-only", choice.only,
                  "in the emulator: run this block of the grid alone; the rest is left out")
      ->type_name("I[,J[,K]]");
  command.add_flag("--profile", choice.profile,
                   "in the emulator: print counters, and what each line did");
}

void run_emulated(const Executable& executable, const Bindings& bindings,
                  const EmulatorChoice& choice) {
  ptx::Options options = emulator_options();
  if (!choice.only.empty()) options.only_block = parse_dim3("--block-only", choice.only, 0);
  std::vector<ptx::Report> reports;
  try {
    reports = emulate(executable, bindings, options);
  } catch (const ptx::Error& error) {
    throw UserError(error.what());
  }
  std::string findings;
  for (const ptx::Report& report : reports) {
    if (choice.profile) print_profile(report);
    for (const ptx::Finding& finding : report.findings)
      findings += fmt::format("\n{}", finding.text());
  }
  if (!findings.empty()) throw DeviceError("the emulator found:" + findings);
}

ptx::Dim3 parse_dim3(const char* option, const std::string& text, uint32_t missing) {
  uint32_t values[3] = {missing, missing, missing};
  const char *at = text.data(), *end = at + text.size();
  for (uint32_t& value : values) {
    auto [next, error] = std::from_chars(at, end, value);
    at = next;
    if (error != std::errc()) break;
    if (at == end) return {values[0], values[1], values[2]};
    if (*at++ != ',') break;
  }
  throw UserError(
      fmt::format("{}: expected one to three whole numbers as 4,2,1, got '{}'", option, text));
}

}  // namespace kiln::cli
