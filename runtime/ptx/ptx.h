// The PTX emulator: runs PTX text on the CPU and reports what a GPU would do silently wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::ptx {

// The text is not PTX that the emulator knows, or a launch does not fit its entry. what() names the
// line.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, int line = 0);
  int line() const { return line_; }  // of the PTX text, 0 if of none

 private:
  int line_;
};

struct Module;  // program.h

// A parsed and decoded PTX text with its module's variables. Copies share both.
class Program {
 public:
  explicit Program(std::shared_ptr<const Module> module) : module_(std::move(module)) {}
  const Module& module() const { return *module_; }
  std::vector<std::string> entries() const;
  // Bytes of the entry's parameters, each aligned to its size; Error if there is no such entry.
  size_t parameter_bytes(std::string_view entry) const;

 private:
  std::shared_ptr<const Module> module_;
};

Program parse(std::string_view text);

// What a kernel may touch of the host's memory, with names for reports. Safe from many threads.
class Memory {
 public:
  struct Range {
    uint64_t begin, end;
    std::string name;
    bool writable;
  };
  void add(const void* begin, size_t bytes, std::string name, bool writable = true);
  void remove(const void* begin);
  void rename(const void* begin, std::string name);  // nothing if there is no such allocation
  std::vector<Range> ranges() const;                 // by address

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
};

// When cp.async and bulk copies copy and wgmma multiplies.
enum class AsyncMode : uint8_t {
  AtIssue,   // when it is executed
  AtLatest,  // when a wait demands it, or never before the thread's end
  Random,    // at some moment between, as Options::seed says
};

// What goes on for some clocks of a block's timeline.
struct Interval {
  enum class Kind : uint8_t {
    Issue,         // the warp goes on without a wait
    WaitBarrier,   // bar.sync
    WaitMbarrier,  // a phase
    WaitProducts,  // wgmma.wait_group
    WaitCopies,    // cp.async.bulk.wait_group, cp.async.wait_group
    Product,       // wgmma in the tensor cores of the warp's quarter of the multiprocessor
    Load,          // a bulk copy into shared memory under way, begun by the warp
    Store,         // one out of it
  };
  Kind kind;
  uint32_t warp;
  uint64_t begin, end;                // clocks
  uint64_t mbarrier = 0;              // shared address, of a load and of a wait; or 0
  uint64_t bytes = 0;                 // of a copy
  int first_line = 0, last_line = 0;  // of PTX; of Issue the first and the last one issued
};
std::string_view name(Interval::Kind kind);

// Of one block that has a multiprocessor for itself, by the costs of clock.cpp: an estimate.
struct Timeline {
  std::string entry;
  Dim3 block;
  uint32_t warps = 0;
  uint64_t clocks = 0;              // until the last warp has left
  uint64_t tensor_clocks = 0;       // of wgmma, summed over the four quarters
  std::vector<Interval> intervals;  // by begin
  // How much of the tensor cores' time had a product, 0 to 1.
  double tensor_share() const {
    return clocks == 0 ? 0 : static_cast<double>(tensor_clocks) / (4 * static_cast<double>(clocks));
  }
};
// As JSON that chrome://tracing and ui.perfetto.dev show (Trace Event Format, complete events): a
// row a warp with its waits, a row a quarter of the tensor cores, a row a stage — an mbarrier that
// counts copies — with its loads. A clock is shown as a microsecond.
std::string trace_events(const Timeline& timeline);

struct Options {
  AsyncMode async = AsyncMode::AtIssue;
  uint64_t seed = 1;
  bool check_races = true;                        // within a block, and between blocks
  bool check_uninitialized = true;                // shared memory and registers
  std::optional<Dim3> only_block;                 // run this block alone
  std::optional<Dim3> timeline;                   // Report::timeline of this block
  int threads = 0;                                // of the host; 0: one a core
  uint64_t max_instructions = uint64_t{1} << 32;  // of the warps of one block
  size_t max_findings = 32;
};

enum class FindingKind : uint8_t {
  OutOfBounds,
  Misaligned,
  ReadOnly,
  UninitializedShared,
  UninitializedRegister,
  Race,
  AsyncNotAwaited,
  DivergentWarp,
  Deadlock,
  InstructionLimit,
  Trap,
  ProxyFence,        // the async proxy need not see what was written
  RegisterInFlight,  // of a wgmma that was not awaited, or without wgmma.fence
  Mbarrier,          // a wrong number of arrivals or bytes, phases that nobody saw, no mbarrier
  RegisterBudget,    // setmaxnreg
};
std::string_view name(FindingKind kind);

struct Finding {
  FindingKind kind;
  std::string message;  // what happened, where in memory, to which thread
  std::string advice;
  int ptx_line = 0;
  std::string instruction;  // "ld.shared.b32"
  std::string file;         // of the user's source; empty if the PTX does not tell
  int line = 0;
  Dim3 block;
  std::string text() const;  // all of it, for people
};

// Deterministic figures, of warps unless they say lanes.
struct Counters {
  std::map<std::string, uint64_t> instructions;  // by base mnemonic
  uint64_t warp_instructions = 0;
  uint64_t lane_instructions = 0;
  uint64_t shared_requests = 0;    // instructions that access shared memory
  uint64_t shared_wavefronts = 0;  // passes that the 32 banks need for them
  uint64_t bank_conflicts = 0;     // wavefronts beyond what the bytes need
  uint64_t global_requests = 0;
  uint64_t global_sectors = 0;  // of 32 bytes, distinct within a request
  uint64_t global_bytes = 0;    // asked for by lanes
  uint64_t barriers = 0;        // arrivals of warps
  uint64_t bulk_bytes = 0;      // that bulk copies moved, both ways, those outside of a tensor too
};

// What the instructions of one PTX line did.
struct LineProfile {
  int ptx_line;
  std::string instruction, file;
  int line;
  uint64_t warps, lanes, wavefronts, conflicts, sectors;
  uint64_t held_back;  // lanes that came with a warp, and that its predicate held back
  uint64_t completed;  // copies and products that a wait completed; of arrivals, those whose phase
                       // a wait saw complete
};

struct Report {
  std::vector<Finding> findings;  // by block, then as found
  Counters counters;
  std::vector<LineProfile> lines;  // of the instructions that ran, by PTX line
  Timeline timeline;               // if Options asks for one
};

// Runs a grid. A finding that leaves nothing to go on with (out of bounds, deadlock, …) ends its
// block and the grid; others are collected, one an instruction and kind. `parameters` are laid out
// as Program::parameter_bytes says. Error if the launch does not fit the entry.
Report launch(const Program& program, std::string_view entry, Dim3 grid, Dim3 block,
              size_t dynamic_shared, std::span<const std::byte> parameters, const Memory& memory,
              const Options& options = {});

}  // namespace kiln::ptx
