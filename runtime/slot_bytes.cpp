#include "runtime/slot_bytes.h"

namespace kiln {

void write_slots(ByteWriter& out, const std::vector<Slot>& slots) {
  out.number(slots.size());
  for (const Slot& slot : slots) {
    out.number(static_cast<uint64_t>(slot.kind), 1);
    out.string(slot.name);
    out.number(static_cast<uint64_t>(slot.axis), 4);
  }
}

std::optional<std::vector<Slot>> read_slots(ByteReader& in) {
  // Grows as slots are read, so that a false count cannot allocate more than the bytes hold.
  std::vector<Slot> slots;
  for (uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    const uint64_t kind = in.number(1);
    std::string name(in.string());
    const int axis = static_cast<int>(in.number(4));
    if (kind > static_cast<uint64_t>(Slot::Kind::Param) || axis < 0) return std::nullopt;
    slots.push_back({static_cast<Slot::Kind>(kind), std::move(name), axis});
  }
  return in.ok() ? std::optional(std::move(slots)) : std::nullopt;
}

}  // namespace kiln
