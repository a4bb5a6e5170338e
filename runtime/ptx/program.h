// A decoded program: what the executor runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ptx/syntax.h"
#include "runtime/ptx/types.h"

namespace kiln::ptx {

class Warp;
struct Instruction;

// Does what the instruction says for the lanes of `mask` (never 0).
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t mask);

enum class OperandRole : uint8_t { Use, Define };

// A register (slot ≥ 0), or a constant (slot < 0: the constant ~slot). A slot holds 32 lanes of 4
// bytes and is the unit that wider registers take several of; predicates have slots of their own, a
// bit a lane.
struct Operand {
  int32_t slot = 0;
  uint8_t bytes = 4;  // a lane: 4, 8 or 16; 0: a predicate
  OperandRole role = OperandRole::Use;
  bool negated = false;  // of a predicate that is read
};

// What the scheduler must do about an instruction.
enum class Flow : uint8_t {
  Next,
  Branch,       // to target, the lanes of the guard
  BranchTable,  // operand 0 indexes targets
  Exit,
  Barrier,  // handler arrives; the warp may wait
  Yield,    // lets others run, then as Next
  Wait,     // handler may leave the split waiting, and then runs again
};

// Which counters of the access the instruction feeds.
enum class Touches : uint8_t { Nothing, Shared, Global };

struct Instruction {
  Handler run = nullptr;
  const Operand* operand = nullptr;
  uint32_t operands = 0;  // how many
  int32_t guard = -1;     // predicate's slot
  bool guard_negated = false;
  Flow flow = Flow::Next;
  bool leader = false;         // of a basic block
  bool check_defined = false;  // an operand may be a register that nothing was written to
  bool check_flight = false;   // an operand may be a register of a wgmma
  bool uniform = true;         // of a wgmma: descriptors are the same in all lanes, for ptxas
  // Lanes wait for each other before it: those that the operand `members` names, or, if that is −1,
  // all that live.
  bool together = false;
  int8_t members = -1;
  Space space = Space::Generic;
  Touches touches = Touches::Nothing;
  uint8_t count = 1;        // of a vector, of matrices
  uint8_t a = 0, b = 0;     // what the handler wants to know
  int32_t target = -1;      // of a branch
  int32_t order = 0;        // of its block: of two blocks, the lower runs first
  int64_t immediate = 0;    // an address's offset, a table, a size
  const Statement* source;  // never null in a decoded program
};

// A special register in the file: written once, before the block starts.
enum class Special : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NwarpId,
  Zero,
  One,
  LaneMaskEq,
  LaneMaskLt,
  LaneMaskLe,
  LaneMaskGt,
  LaneMaskGe,
  DynamicShared,
  TotalShared,
};

struct Entry {
  std::string name;
  std::vector<Instruction> code;  // never empty, ends in an exit
  std::vector<Operand> operands;
  std::vector<std::vector<int32_t>> tables;  // of BranchTable
  // Constants, 32 lanes each: constants of 4 bytes at 128·i, wider ones at the next slots.
  std::vector<uint32_t> constants;
  int32_t slots = 0, predicates = 0;                  // a warp's
  std::vector<std::pair<Special, int32_t>> specials;  // and their slots
  // Registers that may be read before they are written: a bit for each in Warp::defined.
  std::map<int32_t, int32_t> watched;      // slot → bit; predicates are ~slot
  std::vector<std::string> watched_names;  // by bit
  std::vector<std::string> wgmma_names;  // by slot: a register of a wgmma, or empty; or none at all
  std::vector<Variable> parameters;
  uint64_t parameter_bytes = 0;
  uint64_t static_shared = 0;      // bytes from kSharedBase; dynamic shared memory follows
  uint64_t shared_alignment = 16;  // of dynamic shared memory
  uint64_t local_bytes = 0;
  std::vector<Variable> shared_variables;  // offset = address
  uint64_t required_threads[3] = {0, 0, 0};
  uint64_t most_threads = 0;
  uint64_t least_blocks = 1, most_registers = 0;  // .minnctapersm, .maxnreg (0: none)
};

// A .global or .const variable of the module.
struct Storage {
  Variable variable;
  std::unique_ptr<std::byte[]> memory;  // over-allocated for the alignment
  std::byte* begin = nullptr;
};

struct Module {
  SyntaxTree tree;
  std::map<std::string, Entry, std::less<>> entries;
  std::map<std::string, Storage, std::less<>> storage;

  std::string_view file(int index) const {
    auto it = tree.files.find(index);
    return it == tree.files.end() ? std::string_view() : std::string_view(it->second);
  }
};

// Blocks and the order in which divergent lanes run them. order.cpp
void order_blocks(Entry& entry);
// Which wgmma have uniform descriptors. Before registers get slots. uniform.cpp
void find_uniform(Entry& entry, const Function& function);
// Virtual registers of the function get slots; those that may be read before they are written are
// watched. allocate.cpp
void allocate_registers(Entry& entry, const Function& function);

}  // namespace kiln::ptx
