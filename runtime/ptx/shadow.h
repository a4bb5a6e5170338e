// Who touched which bytes, and what came before what: finds data races, reads of shared memory that
// nothing was written to, uses of copies that were not awaited, and writes that the async proxy
// does not see.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace kiln::ptx {

// Who does something at a time of its own: the warps of a block, by index, then what goes on beside
// them. Each has a clock.
using AgentId = uint16_t;

// Vector clocks of the agents of a block. A warp has one clock, and for each warp there is the
// moment its lanes last met. What some of its lanes alone release or wait for is theirs until all
// meet: each such lane is an agent besides, and what it knows more than its warp is kept for it.
class Clocks {
 public:
  using Vector = std::vector<uint32_t>;  // by agent; what is missing is 0

  // How far each agent is, as somebody knows; and up to where the async proxy (TMA, wgmma) sees
  // what warps did to shared memory by ordinary instructions: up to their proxy fences.
  struct Known {
    Vector clocks, proxied;
    void clear();
  };

  // A lane of a warp; and what goes on beside the warps, as agents: the wgmma of a warp; what a
  // thread's bulk copies out of shared memory read there, and what they write; the copies that a
  // mbarrier counts.
  enum class Kind : uint8_t { Warp, Lane, Wgmma, BulkReads, BulkWrites, Mbarrier };
  struct Key {
    Kind kind;
    uint32_t id;  // a warp, a thread, an address of shared memory
  };
  // Lanes of a warp that do something together.
  struct Lanes {
    uint32_t warp, mask;
    bool all;  // that live
  };
  // One of them.
  struct Lane {
    uint32_t warp;
    int lane;
  };

  void reset(uint32_t warps);
  AgentId agent(Kind kind, uint32_t id);  // the same for the same
  Key key(AgentId agent) const { return keys_[agent]; }
  bool is_warp(AgentId agent) const { return agent < warps_; }

  uint32_t now(uint32_t warp) const { return known_[warp].clocks[warp]; }
  // What the agent did at `clock` — of a warp, its lane `lane` — comes before what `later` does
  // now.
  bool ordered(AgentId agent, int lane, uint32_t clock, Lane later) const {
    return ordered_for_all(agent, clock, later.warp) ||
           (any_lane_ && ordered_by_lanes(agent, lane, clock, later));
  }
  // … for all lanes of both.
  bool ordered_for_all(AgentId agent, uint32_t clock, uint32_t later) const {
    return agent == later ? clock < met_[later] : clock <= known_[later].clocks[agent];
  }
  // … and the async proxy sees it.
  bool proxied(uint32_t warp, uint32_t clock, Lane later) const;
  void lanes_meet(uint32_t warp);

  void release(Lanes who, Known& to);  // `to` learns what they know
  void acquire(Lanes who, const Known& from);
  void learn(Lanes who, AgentId agent, uint32_t clock);  // that the agent is so far
  static void learn(Known& to, AgentId agent, uint32_t clock);
  static void join(Known& to, const Known& from);
  void fence_proxy(Lanes who);

  // Strong accesses carry order between warps through fences, or if they say so.
  void fence(uint32_t warp);
  void strong_write(uint32_t warp, uint64_t address, bool releases);
  void strong_read(uint32_t warp, uint64_t address, bool acquires);

 private:
  // Lanes that know more than their warp, and what.
  using Apart = std::unordered_map<int, Known>;
  static uint64_t key_of(Kind kind, uint32_t id) { return static_cast<uint64_t>(kind) << 32 | id; }
  bool ordered_by_lanes(AgentId agent, int lane, uint32_t clock, Lane later) const;

  uint32_t warps_ = 0;
  std::vector<Known> known_, fenced_, seen_;  // by warp; those of known_ have all agents
  std::vector<Apart> apart_;
  Vector met_;
  bool any_lane_ = false;  // is an agent, or knows more
  std::vector<Key> keys_;
  std::unordered_map<uint64_t, AgentId> agents_;
  std::unordered_map<uint64_t, Known> locations_;
};

// What is known of 4 bytes of memory, or of one where narrower accesses have parted them.
struct Cell {
  struct Read {
    uint32_t lanes = 0, clock = 0;
    uint32_t older_lanes = 0, older_clock = 0;  // that have not read again since
    int32_t instruction = -1;
    AgentId agent = 0;
  };
  uint32_t write_clock = 0;  // 0: not written
  int32_t write_instruction = -1;
  AgentId write_agent = 0;
  uint8_t write_lane = 0;
  bool strong = false, async = false;
  bool initialized = false;
  int32_t parts = -1;  // in the shadow's list
  Read reads[2];       // of the last two agents that read
};

// A lane of a warp, or what it has begun: `agent` then is another's, which does it at `clock`.
struct Accessor {
  uint32_t warp;
  int lane;
  int32_t instruction;
  bool strong = false;  // volatile, relaxed or stronger, atomic
  bool async = false;   // in flight until the thread's own wait
  AgentId agent = 0;    // 0: the warp itself
  uint32_t clock = 0;
};

// What an access clashes with.
struct Clash {
  enum class Kind : uint8_t { None, Write, Read, Async, Uninitialized, Proxy };
  Kind kind = Kind::None;
  AgentId agent = 0;  // the other
  int lane = 0;
  int32_t instruction = -1;
  explicit operator bool() const { return kind != Kind::None; }
};

Clash read_cell(Cell& cell, const Accessor& who, const Clocks& clocks);
Clash write_cell(Cell& cell, const Accessor& who, const Clocks& clocks);

// The cells of a shadow: `Derived` finds that of 4 bytes.
template <class Derived>
class Shadow {
 public:
  // Calls f(cell) for the cells of [address, address + bytes); the first clash it gives.
  template <class F>
  Clash visit(uint64_t address, uint32_t bytes, F f) {
    Clash first;
    auto note = [&](Cell& cell) {
      Clash clash = f(cell);
      if (clash && !first) first = clash;
    };
    for (uint64_t end = address + bytes; address < end;) {
      Cell& cell = static_cast<Derived*>(this)->cell(address);
      if (cell.parts < 0 && address % 4 == 0 && end - address >= 4) {
        note(cell);
        address += 4;
        continue;
      }
      if (cell.parts < 0) part(cell);
      auto& parts = parts_[static_cast<size_t>(cell.parts)];
      do note(parts[address % 4]);
      while (++address < end && address % 4 != 0);
    }
    return first;
  }

 protected:
  void forget_parts() { parts_.clear(); }

 private:
  void part(Cell& cell) {
    parts_.push_back({cell, cell, cell, cell});
    cell.parts = static_cast<int32_t>(parts_.size()) - 1;
  }
  std::vector<std::array<Cell, 4>> parts_;
};

class SharedShadow : public Shadow<SharedShadow> {
 public:
  void reset(uint64_t bytes) {
    cells_.assign((bytes + 3) / 4, Cell{});
    forget_parts();
  }
  Cell& cell(uint64_t offset) { return cells_[offset / 4]; }  // from the base

 private:
  std::vector<Cell> cells_;
};

class GlobalShadow : public Shadow<GlobalShadow> {
 public:
  void reset();
  Cell& cell(uint64_t address) {
    uint64_t page = address / kPageBytes;
    if (page != last_) find(page);
    return (*cells_)[address % kPageBytes / 4];
  }

 private:
  static constexpr uint64_t kPageBytes = 2048;
  using Page = std::array<Cell, kPageBytes / 4>;
  void find(uint64_t page);

  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::vector<std::unique_ptr<Page>> free_;
  uint64_t last_ = ~uint64_t{0};
  Page* cells_ = nullptr;
};

}  // namespace kiln::ptx
