// A simple clock for one block that has a multiprocessor for itself: when its warps issue, when what
// they begin is done, what they wait for. Good enough to tell which of two schedules is faster, and
// why; no simulator of the hardware.
//
// Between two instructions that a warp cannot go on without (waits, branches, stores, products) its
// arithmetic counts as scheduled by a perfect ptxas: an instruction takes a turn to issue, and its
// result is there after its operands, its pipe and its latency, but nobody waits for it before.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/ptx/program.h"
#include "runtime/ptx/ptx.h"

namespace kiln::ptx {

class Warp;

class Clock {
 public:
  Clock(const Entry& entry, uint32_t warps);

  // Of an instruction that is about to run; its time is then `now`.
  void issue(uint32_t warp, const Instruction& in);
  uint64_t now(uint32_t warp) const { return warps_[warp].now; }
  uint64_t next(uint32_t warp) const { return warps_[warp].next; }
  // The warp cannot go on before `until`.
  void wait(uint32_t warp, uint64_t until, Interval::Kind what, const Instruction& in);

  // When what the warp begins now is done.
  uint64_t product(uint32_t warp, const Instruction& in, int columns);
  uint64_t copy(uint32_t warp, const Instruction& in, uint64_t bytes);
  uint64_t small_copy(uint32_t warp) const;  // cp.async
  // When others see what the warp does to an mbarrier or a barrier now.
  uint64_t arrival(uint32_t warp) const;

  Timeline take();  // what has happened

 private:
  struct WarpClock {
    uint64_t now = 0, next = 0;           // when the last instruction was issued; the next can be
    uint64_t busy_since = 0;              // began to issue without a wait
    int32_t first_line = 0, last_line = 0;
    std::vector<uint64_t> ready;          // by slot
    std::vector<uint64_t> predicate_ready;
  };
  static constexpr int kParts = 4;  // of a multiprocessor; warp w is in part w % 4
  struct Part {
    uint64_t issue = 0;  // free from then on
    uint64_t special = 0, convert = 0, tensor = 0;
  };
  enum class Pipe : uint8_t { None, Arithmetic, Special, Convert, Exchange, Shared, Global, Atomic };
  struct Cost {
    Pipe pipe;
    bool goes_on;  // the warp, before the result is there
  };
  static Pipe pipe_of(const Instruction& in);
  static Cost cost_of(const Instruction& in);
  uint64_t operands_ready(const WarpClock& warp, const Instruction& in) const;
  void set_ready(WarpClock& warp, const Instruction& in, uint64_t at);
  void end_busy(uint32_t warp);

  const Instruction* const code_;
  std::vector<Cost> costs_;  // of the code
  std::vector<WarpClock> warps_;
  Part parts_[kParts];
  uint64_t exchange_ = 0, copies_ = 0;  // the whole multiprocessor's pipes, free from then on
  Timeline timeline_;
};

}  // namespace kiln::ptx
