// What the wgmma of a warp have under way: registers that nothing may touch, products to come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kiln::ptx {

class Warp;
struct Instruction;

// One instruction of one warp, begun and not yet awaited.
struct Wgmma {
  const Instruction* in;
  uint64_t a, b;  // descriptors; a only if it is in shared memory
  bool adds;      // to the accumulators
  uint32_t group;
  bool done;         // computed already
  uint64_t due = 0;  // by the clock
};

// PTX ISA, "Asynchronous warpgroup level matrix instructions". Registers are slots of a warp.
class Flight {
 public:
  void resize(size_t slots) { registers_.resize(slots); }
  void reset();

  // Of an instruction that is no wgmma and names registers of one.
  void check(Warp& warp, const Instruction& in);
  // Whether a wgmma does not look at the accumulator that this operand is.
  static bool ignores(Warp& warp, const Instruction& in, uint32_t operand);

  uint32_t group() const { return committed_; }  // that comes next
  void begin(Warp& warp, const Wgmma& wgmma);
  void fence() { ++epoch_; }
  void commit() { ++committed_; }
  void wait(Warp& warp, uint32_t open);    // all groups but that many
  void compute(Warp& warp, size_t count);  // the first ones pending, if they are not yet

 private:
  struct Register {
    uint32_t accumulator = 0, source = 0;  // of a wgmma of this group + 1
    uint32_t columns = 0;                  // of that wgmma
    uint32_t touched = 0;                  // at this epoch, by another instruction
    int32_t position = -1;                 // of the wgmma
  };
  void check_own(Warp& warp, const Wgmma& wgmma);

  std::vector<Register> registers_;
  std::vector<Wgmma> pending_;
  uint32_t committed_ = 0, retired_ = 0;  // groups
  uint32_t epoch_ = 0;                    // fences
};

// wgmma.cpp
void multiply(Warp& warp, const Wgmma& wgmma);
int columns_of(const Instruction& wgmma);
bool a_in_registers(const Instruction& wgmma);

}  // namespace kiln::ptx
