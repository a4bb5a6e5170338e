#include "tools/kiln/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>
#include <vector>

#include "ir/error.h"
#include "runtime/emulator_device.h"
#include "runtime/explain.h"
#include "tools/npy/file.h"

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
}

void print_header(const char* what) {
  fmt::print("\n{:>12} {:>14} {:>12} {:>12} {:>12}  {}\n", "warps", "lanes", "wavefronts",
             "conflicts", "sectors", what);
}

void print_row(const ptx::LineProfile& line, const std::string& what) {
  fmt::print("{:>12} {:>14} {:>12} {:>12} {:>12}  {}\n", line.warps, line.lanes, line.wavefronts,
             line.conflicts, line.sectors, what);
}

void add(ptx::LineProfile& sum, const ptx::LineProfile& line) {
  sum.warps += line.warps;
  sum.lanes += line.lanes;
  sum.wavefronts += line.wavefronts;
  sum.conflicts += line.conflicts;
  sum.sectors += line.sectors;
}

// "ld.shared" of "ld.shared.v4.b32", "cp.async" of "cp.async.cg.shared.global", "mul" of "mul.f32",
// "wgmma" of "wgmma.mma_async.…", "cp.async.bulk.load" of all bulk copies into shared memory.
std::string class_of(const std::string& instruction) {
  const auto has = [&](const char* part) { return instruction.find(part) != instruction.npos; };
  const size_t first = instruction.find('.');
  const std::string name = instruction.substr(0, first);
  if (name == "cp") {
    if (!has(".global")) return instruction;  // groups, which are no copies
    if (!has(".bulk")) return "cp.async";
    const bool stores = instruction.find(".global") < instruction.find(".shared");
    return name + (has("reduce") ? ".reduce" : "") + ".async.bulk" + (stores ? ".store" : ".load");
  }
  if (has("wgmma.mma_async")) return name;
  if (name == "wgmma" || name == "mbarrier" || name == "fence" || has("bar.warp"))
    return instruction.substr(0, instruction.find('.', first + 1));
  for (const char* space : {".global", ".shared", ".local", ".param", ".const"})
    if (has(space)) return name + space;
  return name;
}

}  // namespace

void print_profile(const ptx::Report& report) {
  print_counters(report.counters);
  std::map<std::string, ptx::LineProfile> classes;
  std::map<std::pair<std::string, int>, ptx::LineProfile> lines;  // by place
  for (const ptx::LineProfile& line : report.lines) {
    if (auto [it, fresh] = classes.try_emplace(class_of(line.instruction), line); !fresh)
      add(it->second, line);
    const int number = line.file.empty() ? line.ptx_line : line.line;
    if (auto [it, fresh] = lines.try_emplace({line.file, number}, line); !fresh)
      add(it->second, line);
  }
  std::vector<std::pair<std::string, ptx::LineProfile>> sorted(classes.begin(), classes.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.warps > b.second.warps; });
  print_header("instruction");
  for (const auto& [name, sum] : sorted) print_row(sum, name);
  print_header("line");
  for (const auto& [key, line] : lines)
    print_row(line, line.file.empty()
                        ? fmt::format("PTX line {}: {}", line.ptx_line, line.instruction)
                        : place({intern(line.file), line.line}));
}

void write_timeline(const std::string& path, const ptx::Timeline& timeline) {
  write_file(path, {ptx::trace_events(timeline)});
  fmt::print("{}: {} clocks of block {} {} {}, the tensor cores busy {:.0f} % of them\n", path,
             timeline.clocks, timeline.block.x, timeline.block.y, timeline.block.z,
             100 * timeline.tensor_share());
}

void add_emulator_options(CLI::App& command, EmulatorChoice& choice) {
  command
      .add_option("--block-only", choice.only,
                  "in the emulator: run this block of the grid alone; the rest is left out")
      ->type_name("I[,J[,K]]");
  command.add_flag("--profile", choice.profile,
                   "in the emulator: print counters, and what each line did");
  command
      .add_option(
          "--timeline", choice.timeline,
          "in the emulator: what the warps of a block do when, as JSON for ui.perfetto.dev; of the "
          "block of --block-only or the first, in the longest launch")
      ->type_name("FILE.json");
}

Device& chosen_device(const DeviceChoice& device, const EmulatorChoice& choice) {
  if (choice.given() && !device.device.starts_with("emulator"))
    throw UserError("--block-only, --profile, --timeline: only the emulator can do that",
                    "--device emulator");
  if (!choice.only.empty()) parse_dim3("--block-only", choice.only, 0);  // or it is said at once
  if (!choice.timeline.empty()) check_output_paths({{"--timeline", choice.timeline}});
  return chosen_device(device);
}

void run_emulated(const Executable& executable, const Bindings& bindings,
                  const EmulatorChoice& choice) {
  ptx::Options options = emulator_options();
  if (!choice.only.empty()) options.only_block = parse_dim3("--block-only", choice.only, 0);
  if (!choice.timeline.empty()) options.timeline = options.only_block.value_or(ptx::Dim3{0, 0, 0});
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
  if (!choice.timeline.empty()) {
    const auto clocks = [](const ptx::Report& report) { return report.timeline.clocks; };
    write_timeline(choice.timeline, std::ranges::max(reports, {}, clocks).timeline);
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
