// Parsing, and launches: blocks in parallel over the host's threads.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {

Program parse(std::string_view text) {
  auto module = std::make_shared<Module>();
  module->tree = parse_syntax(text);
  for (Function& function : module->tree.functions) {
    const auto [place, is_new] = module->entries.try_emplace(function.name);
    if (!is_new)
      throw Error(fmt::format("entry '{}' is defined twice", function.name), function.line);
    Entry& entry = place->second;
    entry.name = function.name;
    for (const Variable& variable : function.variables)
      if (variable.space == Space::Param) entry.parameters.push_back(variable);
    entry.parameter_bytes = function.parameter_bytes;
    std::copy(std::begin(function.required_threads), std::end(function.required_threads),
              entry.required_threads);
    entry.most_threads = function.most_threads;
    entry.least_blocks = std::max<uint64_t>(function.least_blocks, 1);
    entry.most_registers = function.most_registers;
    Decoder(function, *module, entry).run();
    order_blocks(entry);
    find_uniform(entry, function);
    allocate_registers(entry, function);
  }
  return Program(std::move(module));
}

namespace {

const Entry& entry_named(const Program& program, std::string_view name) {
  const auto& entries = program.module().entries;
  auto it = entries.find(name);
  if (it != entries.end()) return it->second;
  throw Error(fmt::format("there is no entry '{}'; there are: {}", name,
                          fmt::join(program.entries(), ", ")));
}

constexpr uint64_t kMostThreads = 1024;
constexpr uint64_t kMostShared = uint64_t{1} << 20;

void check_launch(const Entry& entry, Dim3 grid, Dim3 block, size_t dynamic_shared,
                  size_t parameters) {
  uint64_t threads = uint64_t{block.x} * block.y * block.z;
  auto describe = [](Dim3 d) { return fmt::format("({}, {}, {})", d.x, d.y, d.z); };
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    throw Error(fmt::format("{}: an empty grid {}", entry.name, describe(grid)));
  if (block.x == 0 || block.y == 0 || block.z == 0 || block.x > kMostThreads ||
      block.y > kMostThreads || block.z > kMostThreads || threads > kMostThreads)
    throw Error(fmt::format("{}: a block {}, expected 1 to {} threads", entry.name, describe(block),
                            kMostThreads));
  const uint64_t* needed = entry.required_threads;
  if (needed[0] != 0 && (needed[0] != block.x || needed[1] != block.y || needed[2] != block.z))
    throw Error(fmt::format("{}: a block {}, the entry requires ({}, {}, {})", entry.name,
                            describe(block), needed[0], needed[1], needed[2]));
  if (entry.most_threads != 0 && threads > entry.most_threads)
    throw Error(fmt::format("{}: {} threads a block, the entry takes at most {}", entry.name,
                            threads, entry.most_threads));
  if (dynamic_shared > kMostShared)
    throw Error(fmt::format("{}: {} bytes of shared memory", entry.name, dynamic_shared));
  if (parameters != entry.parameter_bytes)
    throw Error(fmt::format("{}: {} bytes of parameters, expected {}", entry.name, parameters,
                            entry.parameter_bytes));
}

// All blocks of a grid, taken in order by several threads.
class Run {
 public:
  explicit Run(const Grid& grid) : grid_(grid) {}

  Report run() {
    uint64_t blocks = uint64_t{grid_.grid.x} * grid_.grid.y * grid_.grid.z;
    if (grid_.options.only_block) blocks = 1;
    uint64_t threads = grid_.options.threads > 0
                           ? static_cast<uint64_t>(grid_.options.threads)
                           : std::max<uint64_t>(1, std::thread::hardware_concurrency());
    threads = std::min(threads, blocks);
    profile_.resize(grid_.entry.code.size());
    std::vector<std::thread> others;
    for (uint64_t i = 1; i < threads; ++i) others.emplace_back([&] { work(blocks); });
    work(blocks);
    for (std::thread& thread : others) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    Report report = finish();
    report.timeline = std::move(timeline_);
    return report;
  }

 private:
  using Found = std::pair<uint64_t, Finding>;  // by block
  static constexpr uint64_t kNone = ~uint64_t{0};

  void work(uint64_t blocks) {
    std::vector<InstructionProfile> profile(grid_.entry.code.size());
    std::vector<Found> found;
    uint64_t faulted = kNone;
    auto between =
        blocks > 1 && grid_.options.check_races ? std::make_unique<GridShadow>() : nullptr;
    try {
      Block block(grid_, profile, between.get());
      for (uint64_t at; !stop_ && (at = next_++) < blocks;) {
        if (between) between->begin(at);
        try {
          block.run(grid_.options.only_block.value_or(grid_.block_at(at)));
          if (block.clock) timeline_ = block.clock->take();  // of one block at most
        } catch (Fault& fault) {
          block.findings.push_back(std::move(fault.finding));
          faulted = at;
          stop_ = true;
        }
        if (between) between->end();
        for (Finding& finding : block.findings) found.emplace_back(at, std::move(finding));
        block.findings.clear();
      }
    } catch (...) {
      std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      stop_ = true;
    }
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < profile.size(); ++i) {
      InstructionProfile &to = profile_[i], &from = profile[i];
      to.warps += from.warps;
      to.lanes += from.lanes;
      to.wavefronts += from.wavefronts;
      to.conflicts += from.conflicts;
      to.sectors += from.sectors;
      to.bytes += from.bytes;
      to.held_back += from.held_back;
      to.completed += from.completed;
      to.bulk_bytes += from.bulk_bytes;
    }
    for (Found& each : found) found_.push_back(std::move(each));
    last_ = std::min(last_, faulted);
    if (between) between_.push_back(std::move(between));
  }

  Report finish() {
    Report report;
    // All blocks up to the first that ended the grid have run, whatever the number of threads.
    std::erase_if(found_, [&](const Found& found) { return found.first > last_; });
    for (const BlockRace& race : GridShadow::races(between_, last_))
      found_.emplace_back(race.second.block, race_between_blocks(grid_, race));
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& a, const Found& b) { return a.first < b.first; });
    for (Found& found : found_) {
      Finding& finding = found.second;
      bool known = std::any_of(report.findings.begin(), report.findings.end(), [&](auto& other) {
        return other.kind == finding.kind && other.ptx_line == finding.ptx_line;
      });
      if (!known && report.findings.size() < grid_.options.max_findings)
        report.findings.push_back(std::move(finding));
    }
    for (size_t i = 0; i < profile_.size(); ++i)
      if (profile_[i].warps > 0) count(report, grid_.entry.code[i], profile_[i]);
    return report;
  }

  void count(Report& report, const Instruction& in, const InstructionProfile& did) const {
    Counters& all = report.counters;
    all.warp_instructions += did.warps;
    all.lane_instructions += did.lanes;
    all.instructions[std::string(in.source->opcode)] += did.warps;
    if (in.touches == Touches::Shared) all.shared_requests += did.warps;
    if (in.touches == Touches::Global) all.global_requests += did.warps;
    if (in.flow == Flow::Barrier) all.barriers += did.warps;
    all.shared_wavefronts += did.wavefronts;
    all.bank_conflicts += did.conflicts;
    all.global_sectors += did.sectors;
    all.global_bytes += did.bytes;
    all.bulk_bytes += did.bulk_bytes;
    if (in.source->line == 0) return;
    report.lines.push_back({in.source->line, in.source->full,
                            std::string(grid_.module.file(in.source->source.file)),
                            in.source->source.line, did.warps, did.lanes, did.wavefronts,
                            did.conflicts, did.sectors, did.held_back, did.completed});
  }

  const Grid& grid_;
  std::atomic<uint64_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::vector<InstructionProfile> profile_;
  std::vector<Found> found_;
  Timeline timeline_;
  uint64_t last_ = kNone;                             // block that counts
  std::vector<std::unique_ptr<GridShadow>> between_;  // of each host thread
};

}  // namespace

std::vector<std::string> Program::entries() const {
  std::vector<std::string> names;
  for (auto& [name, entry] : module_->entries) names.push_back(name);
  return names;
}

size_t Program::parameter_bytes(std::string_view entry) const {
  return entry_named(*this, entry).parameter_bytes;
}

Report launch(const Program& program, std::string_view name, Dim3 grid, Dim3 block,
              size_t dynamic_shared, std::span<const std::byte> parameters, const Memory& memory,
              const Options& options) {
  const Entry& entry = entry_named(program, name);
  check_launch(entry, grid, block, dynamic_shared, parameters.size());
  if (const auto& only = options.only_block;
      only && (only->x >= grid.x || only->y >= grid.y || only->z >= grid.z))
    throw Error("the only block to run is outside of the grid");
  if (const auto& at = options.timeline;
      at && (at->x >= grid.x || at->y >= grid.y || at->z >= grid.z ||
             options.only_block.value_or(*at) != *at))
    throw Error("the block of the timeline is none of those that run");
  uint64_t begin = kSharedBase + entry.static_shared;
  begin = (begin + entry.shared_alignment - 1) / entry.shared_alignment * entry.shared_alignment;
  uint64_t end = dynamic_shared > 0 ? begin + dynamic_shared : kSharedBase + entry.static_shared;
  Grid all{program.module(), entry,           grid,   block, end - kSharedBase, dynamic_shared,
           parameters,       memory.ranges(), options};
  for (auto& [variable_name, storage] : program.module().storage) {
    auto address = reinterpret_cast<uint64_t>(storage.begin);
    all.ranges.push_back({address, address + storage.variable.bytes, variable_name,
                          storage.variable.space == Space::Global});
  }
  std::sort(all.ranges.begin(), all.ranges.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return Run(all).run();
}

void Memory::add(const void* begin, size_t bytes, std::string name, bool writable) {
  auto address = reinterpret_cast<uint64_t>(begin);
  std::unique_lock lock(mutex_);
  ranges_[address] = {address, address + bytes, std::move(name), writable};
}

void Memory::remove(const void* begin) {
  std::unique_lock lock(mutex_);
  ranges_.erase(reinterpret_cast<uint64_t>(begin));
}

void Memory::rename(const void* begin, std::string name) {
  std::unique_lock lock(mutex_);
  auto it = ranges_.find(reinterpret_cast<uint64_t>(begin));
  if (it != ranges_.end()) it->second.name = std::move(name);
}

std::vector<Memory::Range> Memory::ranges() const {
  std::shared_lock lock(mutex_);
  std::vector<Range> all;
  for (auto& [begin, range] : ranges_) all.push_back(range);
  return all;
}

}  // namespace kiln::ptx
