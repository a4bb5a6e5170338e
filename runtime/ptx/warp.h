// The state of a block that runs: its warps, their lanes' registers, shared memory, barriers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ptx/bulk.h"
#include "runtime/ptx/clock.h"
#include "runtime/ptx/flight.h"
#include "runtime/ptx/grid_shadow.h"
#include "runtime/ptx/mbarrier.h"
#include "runtime/ptx/program.h"
#include "runtime/ptx/ptx.h"
#include "runtime/ptx/shadow.h"

namespace kiln::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffff;
inline constexpr int kSlotBytes = kLanes * 4;
inline constexpr int kBarriers = 16;

class Block;

// What is the same for all blocks of a launch.
struct Grid {
  const Module& module;
  const Entry& entry;
  Dim3 grid, block;
  uint64_t shared_bytes;  // static and dynamic
  uint64_t dynamic_shared;
  std::span<const std::byte> parameters;
  std::vector<Memory::Range> ranges;  // of global memory, by address
  Options options;
  uint32_t threads() const { return block.x * block.y * block.z; }
  Dim3 block_at(uint64_t number) const {  // x before y before z
    return {static_cast<uint32_t>(number % grid.x), static_cast<uint32_t>(number / grid.x % grid.y),
            static_cast<uint32_t>(number / grid.x / grid.y)};
  }
};

// What an instruction did, over all blocks that one host thread ran.
struct InstructionProfile {
  uint64_t warps = 0, lanes = 0, wavefronts = 0, conflicts = 0, sectors = 0, bytes = 0;
  uint64_t held_back = 0, completed = 0, bulk_bytes = 0;
};

// Ends a block: there is nothing to go on with.
struct Fault {
  Finding finding;
};

enum class SplitState : uint8_t {
  Ready,
  Converging,
  AtBarrier,
  AtMbarrier,
  ForRegisters,
  AtCluster
};

// Lanes of a warp that are at one instruction together.
struct Split {
  int32_t at = 0;
  uint32_t lanes = 0;
  SplitState state = SplitState::Ready;
  uint8_t barrier = 0;     // that it waits at
  uint64_t last_turn = 0;  // when it ran
  uint64_t mbarrier = 0;   // that it waits at,
  uint32_t parity = 0;     // for a phase of this parity,
  int32_t tried = -1;      // the instruction that has failed once,
  bool timed_out = false;  // and that may go on without
};

// A cp.async that was issued and not yet awaited.
struct PendingCopy {
  uint64_t to;            // shared address
  const std::byte* from;  // null: zeros
  uint8_t bytes, from_bytes;
  uint8_t lane;
  bool done;  // copied already
  uint32_t group;
  int32_t instruction;
  uint64_t due = 0;  // by the clock
};

// Registers of a lane that a launch gives its warps, as ptxas allots them: all that as many blocks
// as the entry asks for leave each (.reqntid or .maxntid, .minnctapersm, .maxnreg). 0: not known.
uint64_t launch_registers(const Grid& grid);

class Warp {
 public:
  Warp(Block& block, uint32_t index);
  void reset();  // for another block

  // 32 lanes of an operand; each 4 bytes, or 8, or 16.
  std::byte* at(const Operand& operand) {
    return operand.slot >= 0 ? file_ + static_cast<size_t>(operand.slot) * kSlotBytes
                             : const_cast<std::byte*>(constants_) +
                                   static_cast<size_t>(~operand.slot) * kSlotBytes;
  }
  uint32_t predicate(const Operand& operand) const {
    uint32_t lanes = operand.slot >= 0 ? predicates_[static_cast<size_t>(operand.slot)] : kAllLanes;
    return operand.negated ? ~lanes : lanes;
  }
  void set_predicate(const Operand& operand, uint32_t mask, uint32_t lanes) {
    uint32_t& all = predicates_[static_cast<size_t>(operand.slot)];
    all = (all & ~mask) | (lanes & mask);
  }
  uint32_t guard(const Instruction& instruction) const {
    uint32_t lanes = predicates_[static_cast<size_t>(instruction.guard)];
    return instruction.guard_negated ? ~lanes : lanes;
  }

  // Runs until it waits or its turn is over; whether it did anything.
  bool run();
  bool done() const { return splits_.empty(); }
  uint32_t live() const;
  Clocks::Lanes lanes(uint32_t mask) const { return {index, mask, mask == live()}; }

  // Findings, about the instruction that runs.
  [[noreturn]] void fault(FindingKind kind, std::string message, std::string advice);
  void report(FindingKind kind, std::string message, std::string advice);
  void report_at(int32_t position, Finding finding);  // about another instruction
  std::string thread_name(int lane) const;
  int32_t position() const { return position_; }
  const Instruction& instruction() const;  // that runs
  // By the clock, if there is one.
  void wait_until(uint64_t clock, Interval::Kind what, uint64_t mbarrier = 0);

  Block& block() { return block_; }
  InstructionProfile& profile();

  // Of an instruction with Flow::Wait: the split waits for the mbarrier's phase, or for what
  // another warp does, and then runs it again. A wait for an mbarrier fails once before, as it may:
  // who does not try again goes on without.
  void wait_for(uint64_t mbarrier, uint32_t parity);
  void wait_for(SplitState what);
  // Whether the split has not failed at this instruction yet; now it has.
  bool tries_first() { return std::exchange(splits_[current_].tried, position_) != position_; }
  void forget_tries() { splits_[current_].tried = -1; }
  bool must_wait() const { return splits_[current_].state != SplitState::Ready; }

  std::byte* local(int lane);
  uint32_t thread(int lane) const { return index * kLanes + static_cast<uint32_t>(lane); }

  const uint32_t index;
  uint32_t exists = 0;                    // lanes that are threads of the block
  const Memory::Range* recent = nullptr;  // that an access was in
  uint32_t carry = 0;                     // the condition code of add.cc
  std::vector<PendingCopy> pending;
  uint32_t cluster_phases[kLanes] = {};  // each lane has arrived at its cluster's barrier
  uint32_t groups[kLanes] = {};          // cp.async groups each lane has committed
  uint64_t turns = 0;                    // instructions executed
  Flight flight;                         // its wgmma
  uint64_t registers = 0;                // of a lane, by setmaxnreg; 0: not known

 private:
  friend class Block;
  bool choose();  // the split that runs next; false if none can
  void merge_into_current();
  void step_split();
  void branch(const Instruction& instruction, uint32_t lanes);
  void branch_table(const Instruction& instruction, uint32_t lanes);
  void exit(uint32_t lanes);
  bool converge(const Instruction& instruction);
  void check_defined(const Instruction& instruction, uint32_t lanes);

  Block& block_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* file_;
  const std::byte* constants_;
  std::vector<uint32_t> predicates_;
  std::vector<uint32_t> defined_;  // lanes that wrote a watched register
  std::unique_ptr<std::byte[]> local_;
  std::vector<Split> splits_;
  size_t current_ = 0;
  int32_t position_ = 0;
  uint32_t unfair_ = 0;  // turns since lanes last met or parted
};

struct Barrier {
  uint32_t expected = 0;  // threads; 0: all that live
  uint32_t arrived = 0;
  int32_t position = -1;
  uint32_t votes = 0, voters = 0;  // of bar.red
  Clocks::Known known;             // by those that arrived
  uint64_t due = 0;                // when all have, by the clock
};

class Block {
 public:
  // `between`, if any, hears of the accesses to global memory that other blocks may see.
  Block(const Grid& grid, std::vector<InstructionProfile>& profile, GridShadow* between);
  void run(Dim3 index);

  void arrive(Warp& warp, int barrier, uint32_t lanes, uint32_t expected, bool waits,
              uint32_t votes);
  void thread_exited();  // barriers that wait for all may be complete
  // The barrier of a cluster of this block alone.
  void arrive_cluster(Warp& warp, uint32_t lanes);
  void wait_cluster(Warp& warp, uint32_t lanes);

  const Grid& grid;
  Dim3 index;
  std::vector<InstructionProfile>& profile;
  std::vector<std::byte> shared;  // from kSharedBase
  SharedShadow shadow;
  GlobalShadow global_shadow;
  GridShadow* const between;
  Clocks clocks;
  Mbarriers mbarriers{*this};
  BulkCopies bulk{*this};
  std::optional<Clock> clock;   // if there is to be a timeline
  uint64_t free_registers = 0;  // that setmaxnreg.dec gave back, of all lanes
  std::vector<Finding> findings;

  void wake(uint64_t mbarrier);     // a phase of it has completed
  void wake(SplitState what);       // all that wait for it
  void note_event() { ++events_; }  // something that a warp may wait for
  bool is_awaited(uint64_t mbarrier) const;
  bool chance();  // in random mode: whether to do it now
  Warp& warp(uint32_t index) { return *warps_[index]; }

 private:
  friend class Warp;
  void complete_if_arrived(int barrier);
  static void finish_reduction(Warp& warp, const Split& split, const Barrier& barrier);
  void complete_cluster_if_arrived();
  bool take_turns();  // whether any warp did something
  bool go_on();       // where no warp can: whether one can now
  void finish();
  [[noreturn]] void deadlock();
  std::string positions();

  std::vector<std::unique_ptr<Warp>> warps_;
  Barrier barriers_[kBarriers];
  struct Cluster {
    uint32_t phases = 0;  // completed
    Clocks::Known known, complete;
  } cluster_;
  uint64_t events_ = 0, last_events_ = 0;
  uint32_t fruitless_ = 0;  // times that waits ended without an event, in a row
  uint64_t random_ = 0;
};

// "line 12 (bar.sync 0), kernel.cpp:33".
std::string describe(const Grid& grid, int32_t position);
void locate(const Grid& grid, int32_t position, Finding& finding);  // fills in the place
Finding race_between_blocks(const Grid& grid, const BlockRace& race);
// The value of lane `lane`.
inline uint32_t lane32(const std::byte* lanes, int lane) {
  uint32_t value;
  __builtin_memcpy(&value, lanes + lane * 4, 4);
  return value;
}

}  // namespace kiln::ptx
