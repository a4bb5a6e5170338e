// Bulk copies under way: into shared memory, counted by an mbarrier, and out of it, in groups of
// the thread that began them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "runtime/ptx/types.h"

namespace kiln::ptx {

class Block;
class Warp;

enum class Reduction : uint8_t { None, Add, Min, Max, Inc, Dec, And, Or, Xor };

// A run of bytes on both sides.
struct BulkPiece {
  uint64_t shared;
  std::byte* global;  // null: none, of a load: filled
  uint32_t bytes;
};

struct BulkCopy {
  enum class Way : uint8_t { Load, Store, Arrive };  // Arrive: of cp.async, at an mbarrier
  Way way = Way::Load;
  std::vector<BulkPiece> pieces;
  uint32_t bytes = 0;     // that the mbarrier counts
  uint64_t mbarrier = 0;  // of a load
  uint32_t issued = 0;    // in this phase of it
  uint32_t thread = 0;
  uint32_t group = 0;     // of the thread's stores
  int32_t position = -1;  // of the instruction
  uint64_t due = 0;       // by the clock
  Reduction reduction = Reduction::None;
  Type type = Type::U8;  // of a reduction's elements, or of a fill's
  bool nan = false;      // fills with it, else with zeros
  bool read = false, written = false;
  std::vector<std::byte> data;  // of a store, once read
};

class BulkCopies {
 public:
  explicit BulkCopies(Block& block) : block_(block) {}
  void reset();

  uint32_t group(uint32_t thread) { return groups_[thread]; }
  void begin(BulkCopy copy);
  void commit(uint32_t thread) { ++groups_[thread]; }
  // The thread's groups but the last `open`: they have read, or all is done.
  void wait(Warp& warp, uint32_t thread, uint32_t open, bool reads_only);
  void perform_awaited(uint64_t mbarrier);  // what it counts
  bool perform_awaited();                   // what warps wait for; whether there was any
  void thread_exits(Warp& warp, uint32_t lanes);
  void finish();  // all threads have left

 private:
  uint64_t due(const BulkCopy& copy);  // by the clock, of one that begins now
  void load(BulkCopy& copy);
  void read(BulkCopy& copy);
  void write(BulkCopy& copy);
  void clean();

  Block& block_;
  std::vector<BulkCopy> copies_;
  std::unordered_map<uint32_t, uint32_t> groups_;  // that each thread has committed
};

// Element by element, to = to op from; a lane of atomics. bulk_reduce.cpp
void reduce(Reduction reduction, Type type, std::byte* to, const std::byte* from, size_t bytes);
// cp.async.mbarrier.arrive: the thread's copies are done, those at least that it began before.
void complete_copies(Warp& warp, int lane);  // async.cpp

}  // namespace kiln::ptx
