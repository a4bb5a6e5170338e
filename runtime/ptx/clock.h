// A simple clock for one block that has a multiprocessor for itself: when its warps issue, when
// what they begin is done, what they wait for. Good enough to tell which of two schedules is
// faster, and why; no simulator of the hardware.
//
// A warp issues in order, and ptxas has ordered straight-line code well: up to the next instruction
// that nothing may move over (a wait, a branch, a store, a product, …) each takes one turn to
// issue, runs as soon as its operands and its pipe are there, and holds up those alone that need
// its result. The one that nothing may move over comes when all before it have begun; wgmma.fence
// when their results are there. Branches over a few instructions are predicates: they and what they
// guard keep their turn among such instructions, and others move over them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "runtime/ptx/program.h"
#include "runtime/ptx/ptx.h"

namespace kiln::ptx {

// When a pipe is taken. What is issued later may begin earlier: its operands may be there earlier.
class Calendar {
 public:
  // From the first moment on, `from` or later, that has so much time free; that moment.
  uint64_t take(uint64_t from, uint64_t time);

 private:
  std::map<uint64_t, uint64_t> taken_;  // begin to end
};

class Clock {
 public:
  Clock(const Entry& entry, Dim3 block, uint32_t warps);

  // Of an instruction that is about to run, or that its predicate turns off for all lanes.
  void issue(uint32_t warp, const Instruction& in, bool runs);
  uint64_t next(uint32_t warp) const { return warps_[warp].next; }  // when it can issue again
  // The warp cannot go on before `until`; because of that mbarrier, if it is one.
  void wait(uint32_t warp, uint64_t until, Interval::Kind what, const Instruction& in,
            uint64_t mbarrier = 0);

  // When what the warp begins now is done.
  uint64_t product(uint32_t warp, const Instruction& in, int columns, bool a_in_registers);
  uint64_t copy(uint32_t warp, const Instruction& in, bool load, uint64_t mbarrier, uint64_t bytes);
  uint64_t small_copy(uint32_t warp) const;  // cp.async
  // The warp stores to so many sectors of global memory. The next store waits until those before
  // this one are out.
  void store(uint32_t warp, uint64_t sectors);
  // The results of a wgmma are there: they have been awaited.
  void results(uint32_t warp, const Instruction& in, uint64_t at);
  // When others see what the warp does to an mbarrier or a barrier now.
  uint64_t arrival(uint32_t warp) const;

  Timeline take();  // what has happened

 private:
  struct WarpClock {
    uint64_t now = 0, next = 0;     // when the last instruction was issued; the next can be
    uint64_t free = 0;              // the next can be that may move over predicated ones
    uint64_t issued = 0, done = 0;  // when all have begun; when their results are there
    uint64_t busy_since = 0;        // began to issue without a wait
    int32_t first_line = 0, last_line = 0;
    std::vector<uint64_t> ready;            // by slot
    std::vector<uint64_t> predicate_ready;  // as an operand
    std::vector<uint64_t> guard_ready;      // of a branch
  };
  static constexpr int kParts = 4;  // of a multiprocessor; warp w is in part w % 4
  struct Part {
    Calendar issue;
    Calendar special, integer;  // in thirds of a clock
    uint64_t tensor = 0;        // free from then on
  };
  // To or from the L2 cache.
  struct Path {
    uint64_t free = 0;  // from then on, in clocks times bytes a clock

    // When so many bytes are through.
    uint64_t take(uint64_t from, uint64_t bytes);
  };
  enum class Pipe : uint8_t { None, Float, Integer, Special, Exchange, Shared, Global, Atomic };
  // Moves; is predicated, and keeps its turn among what does not move; nothing moves over it.
  enum class Order : uint8_t { Moves, InTurn, Whole };
  struct Cost {
    Pipe pipe;
    Order order;
    bool fence;  // wgmma.fence
  };
  static Pipe pipe_of(const Instruction& in);
  static Cost cost_of(const Instruction& in);
  // Of branches that ptxas makes predicates of, and what they guard.
  void find_predicated(const Entry& entry);
  uint64_t operands_ready(const WarpClock& warp, const Instruction& in) const;
  void set_ready(WarpClock& warp, const Instruction& in, uint64_t at, uint64_t guard_at);
  void add(Interval interval, const Instruction& in);
  void end_busy(uint32_t warp);

  const Instruction* const code_;
  std::vector<Cost> costs_;  // of the code
  std::vector<WarpClock> warps_;
  Part parts_[kParts];
  Calendar exchange_;  // the whole multiprocessor's, as what follows
  Path in_, out_;
  Timeline timeline_;
};

}  // namespace kiln::ptx
