// Which blocks of a launch touched which bytes of global memory: finds races between blocks. They
// run in any order, at once or one after the other; only atomics and other strong accesses, and
// what these order with fences, are safe between them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::ptx {

// What one block does to a byte with one instruction.
struct BlockAccess {
  uint64_t block = 0;  // x before y before z
  int32_t instruction = 0;
  bool write = false, strong = false;
  bool acquired = false;   // the block had seen what another released
  bool published = false;  // … and others can see that it has done this
  uint32_t releases = 0;   // of the block before
  bool same_kind(const BlockAccess& other) const {
    return write == other.write && strong == other.strong && acquired == other.acquired;
  }
};

struct BlockRace {
  BlockAccess first, second;  // by block
  uint64_t address;
};

// Of the blocks that one host thread runs, which it takes in ascending order. For each byte and
// kind of access the first two blocks are known, so what is found depends on no order.
class GridShadow {
 public:
  void begin(uint64_t block);
  void end();
  void note(uint64_t address, uint32_t bytes, int32_t instruction, bool write, bool strong);
  void fence();
  void strong_access(bool reads, bool writes, bool acquires, bool releases);

  // Races among blocks 0 … last, one for each instruction of the later block, by address.
  static std::vector<BlockRace> races(std::span<const std::unique_ptr<GridShadow>> shadows,
                                      uint64_t last);

 private:
  friend class RaceSearch;
  static constexpr uint64_t kPageWords = 1024;
  static constexpr uint32_t kParted = uint32_t{1} << 31;  // or'ed to an index of parts_
  // Of each 4 bytes the set of accesses, or of each byte where narrower accesses have parted them.
  using Page = std::array<uint32_t, kPageWords>;

  uint32_t& word(uint64_t address);
  uint32_t access(int32_t instruction, bool write, bool strong);
  uint32_t with(uint32_t set, uint32_t access);

  std::vector<BlockAccess> accesses_;
  std::unordered_map<uint64_t, uint32_t> of_block_;  // the block's accesses, by kind
  uint64_t last_kind_ = ~uint64_t{0};                // looked up there
  uint32_t last_access_ = 0;
  std::vector<std::vector<uint32_t>> sets_ = {{}};  // of accesses; 0 is the empty one
  std::unordered_map<uint64_t, uint32_t> larger_;   // set and access → set
  uint64_t last_growth_ = ~uint64_t{0};             // looked up there
  uint32_t last_set_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  uint64_t last_page_ = ~uint64_t{0};
  Page* words_ = nullptr;
  std::vector<std::array<uint32_t, 4>> parts_;

  // Of the block that runs: a fence, then a strong write, publish what was before the fence.
  uint64_t block_ = 0;
  size_t first_access_ = 0;
  uint32_t releases_ = 0, fenced_ = 0, published_ = 0;
  bool seen_ = false, acquired_ = false;
};

}  // namespace kiln::ptx
