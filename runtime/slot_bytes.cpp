#include "runtime/slot_bytes.h"

#include <algorithm>

namespace kiln {

namespace {

void write_map(ByteWriter& out, const TensorMap& map) {
  out.number(map.box.size(), 1);
  for (int64_t extent : map.box) out.number(static_cast<uint64_t>(extent));
  out.number(static_cast<uint64_t>(map.panel));
  out.number(map.by_panels, 1);
}

std::optional<TensorMap> read_map(ByteReader& in) {
  TensorMap map;
  for (uint64_t left = in.number(1); left > 0; --left)
    map.box.push_back(static_cast<int64_t>(in.number()));
  map.panel = static_cast<int64_t>(in.number());
  const uint64_t by_panels = in.number(1);
  map.by_panels = by_panels != 0;
  const bool sound =
      in.ok() && by_panels <= 1 && map.panel > 0 && !map.box.empty() &&
      std::all_of(map.box.begin(), map.box.end(), [](int64_t extent) { return extent > 0; });
  return sound ? std::optional(std::move(map)) : std::nullopt;
}

}  // namespace

void write_slots(ByteWriter& out, const std::vector<Slot>& slots) {
  out.number(slots.size());
  for (const Slot& slot : slots) {
    out.number(static_cast<uint64_t>(slot.kind), 1);
    out.string(slot.name);
    out.number(static_cast<uint64_t>(slot.axis), 4);
    if (slot.kind == Slot::Kind::Map) write_map(out, slot.map);
  }
}

std::optional<std::vector<Slot>> read_slots(ByteReader& in) {
  // Grows as slots are read, so that a false count cannot allocate more than the bytes hold.
  std::vector<Slot> slots;
  for (uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    const uint64_t kind = in.number(1);
    std::string name(in.string());
    const int axis = static_cast<int>(in.number(4));
    if (kind > static_cast<uint64_t>(Slot::Kind::Map) || axis < 0) return std::nullopt;
    slots.push_back({static_cast<Slot::Kind>(kind), std::move(name), axis});
    if (slots.back().kind != Slot::Kind::Map) continue;
    auto map = read_map(in);
    if (!map) return std::nullopt;
    slots.back().map = std::move(*map);
  }
  return in.ok() ? std::optional(std::move(slots)) : std::nullopt;
}

}  // namespace kiln
