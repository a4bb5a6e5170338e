// Memory as instructions see it: from a lane's address to the host's bytes, with all the checks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/ptx/lanes.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {

enum class Intent : uint8_t { Read, Write };

// How strong an access is; as bits of Instruction::a of loads and stores.
inline constexpr uint8_t kStrong = 1, kAcquire = 2, kRelease = 4;
inline constexpr uint8_t kReads = 8;  // of a write that gives back what was there

// The addresses of the lanes: the operand and the instruction's offset.
void lane_addresses(Warp& warp, const Instruction& in, const Operand& base, uint64_t* addresses);

// Accesses of one instruction to `bytes` bytes at each lane's address.
class Access {
 public:
  Access(Warp& warp, Space space, uint32_t bytes, Intent intent, uint32_t alignment = 0)
      : warp_(warp),
        space_(space),
        bytes_(bytes),
        alignment_(alignment ? alignment : bytes),
        intent_(intent) {}

  // The bytes' place; a fault if there is none or they are misaligned.
  std::byte* find(int lane, uint64_t address);
  // Notes the access for the detectors. Before a write is done: `value` tells writes that change
  // nothing. After find(), whose space it uses.
  void note(int lane, uint64_t address, uint8_t strength, const std::byte* place,
            const std::byte* value = nullptr, bool async = false);
  // How many bytes note() notes, where they are not as many as find() finds.
  void of(uint32_t bytes) { bytes_ = bytes; }
  Space space() const { return found_; }  // that find() saw last
  // What is noted is another's, whose clock it is: of what the lane begins and does not await.
  void by(AgentId agent, uint32_t clock) {
    agent_ = agent;
    clock_ = clock;
  }

 private:
  [[noreturn]] void fault(FindingKind kind, int lane, uint64_t address);
  std::byte* find_global(int lane, uint64_t address);
  void report(const Clash& clash, int lane, uint64_t address);

  Warp& warp_;
  Space space_;
  Space found_ = Space::Generic;
  uint32_t bytes_, alignment_;
  Intent intent_;
  AgentId agent_ = 0;
  uint32_t clock_ = 0;
};

// "shared address 0x410 ('tile' + 16)", "global address 0x… (16 bytes past the end of 'q')".
std::string describe_address(const Grid& grid, Space space, uint64_t address);

// Counters of one request.
void count_shared(InstructionProfile& profile, const uint64_t* addresses, uint32_t mask,
                  uint32_t bytes);
uint64_t count_global(InstructionProfile& profile, const uint64_t* addresses, uint32_t mask,
                      uint32_t bytes);  // sectors
void count_access(Warp& warp, Space space, const uint64_t* addresses, uint32_t mask,
                  uint32_t bytes);

}  // namespace kiln::ptx
