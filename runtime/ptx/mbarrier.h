// mbarriers: phases that complete when all arrivals are in and all bytes that were expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/ptx/shadow.h"
#include "runtime/ptx/types.h"

namespace kiln::ptx {

class Block;
class Warp;
struct BulkCopy;

// PTX ISA, "mbarrier": a phase is complete when nothing is pending and its bytes are in; the next
// then begins by itself.
struct Mbarrier {
  uint64_t address = 0;
  uint32_t count = 0;            // arrivals that a phase takes
  uint32_t pending = 0;          // of this phase
  int64_t bytes = 0;             // expected and not yet in (tx-count)
  uint32_t phases = 0;           // completed
  AgentId agent = 0;             // of the copies that it counts, whose clock is phases + 1
  uint32_t maker = 0, made = 0;  // warp that initialised it, and when
  int maker_lane = 0;
  bool published = false;  // the async proxy sees that it is initialised
  int32_t position = -1;   // of what last changed it
  struct Arrival {
    AgentId warp = 0;
    int lane = 0;
    uint32_t clock = 0;
  };
  std::optional<Arrival> ended;     // the last phase, if an arrival did
  uint32_t polls = 0;               // waits that failed, in a row
  uint64_t due = 0, completed = 0;  // by the clock: this phase's arrivals; the last one's end
  Clocks::Known arrived, complete;  // by those of this phase; by those of all before
  std::vector<int64_t> seen;        // by warp: phases that it last saw completed, or −1
  std::vector<int32_t> arrivals;    // of this phase, by position of the instruction
  std::vector<int32_t> unseen;      // of those before, as far as no wait has seen them complete

  bool passed(uint32_t parity) const { return (phases & 1) != parity; }
};

// Those of a block, by address of shared memory.
class Mbarriers {
 public:
  static constexpr int64_t kMost = (1 << 20) - 1;  // arrivals, bytes
  static constexpr int kAddressBits = 20;          // of the identity of its agent, the low ones

  explicit Mbarriers(Block& block) : block_(block) {}
  void reset() {
    all_.clear();
    made_ = 0;
  }

  void init(Warp& warp, int lane, uint64_t address, uint32_t count);
  void invalidate(Warp& warp, int lane, uint64_t address);
  // A fault if there is none; a finding if nothing orders it after its initialisation, or if the
  // async proxy is to use it and need not see that.
  Mbarrier& find(Warp& warp, int lane, uint64_t address, bool async = false);
  Mbarrier* at(uint64_t address);

  // As often as `count` says, by one of `lanes`; these release what they did, if any are named.
  void arrive(Warp& warp, Mbarrier& barrier, uint32_t count, uint32_t lanes);
  void expect(Warp& warp, Mbarrier& barrier, int64_t bytes);  // negative: they are in
  // By a copy; `warp` is whose it was.
  void complete(Warp& warp, Mbarrier& barrier, const BulkCopy& copy);
  void see(Warp& warp, Mbarrier& barrier, uint32_t lanes, bool acquires);  // their wait passed
  // Whether a lane knows, without asking, that so many phases are complete.
  bool is_known(const Warp& warp, int lane, const Mbarrier& barrier, uint32_t phases) const;
  void publish(uint32_t warp, int lane);  // its proxy fence
  void finish(Warp& warp);                // all threads have left
  std::string describe(uint64_t address) const;

 private:
  void complete_if_done(Mbarrier& barrier, std::optional<Mbarrier::Arrival> by);
  Block& block_;
  uint32_t made_ = 0;
  std::unordered_map<uint64_t, Mbarrier> all_;
};

// The address in shared memory of the mbarrier that a lane names; a fault if none can be there.
uint64_t barrier_address(Warp& warp, Space space, int lane, uint64_t address);

}  // namespace kiln::ptx
