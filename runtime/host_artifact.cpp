#include "runtime/host_artifact.h"

#include "runtime/bytes.h"

namespace kiln {

std::string encode(const HostObject& object) {
  ByteWriter out;
  out.number(object.launches.size());
  for (const HostLaunch& launch : object.launches) {
    out.string(launch.entry);
    out.number(launch.scratch_bytes);
    out.number(launch.slots.size());
    for (const Slot& slot : launch.slots) {
      out.number(static_cast<uint64_t>(slot.kind), 1);
      out.string(slot.name);
      out.number(static_cast<uint64_t>(slot.axis), 4);
    }
  }
  out.string(object.code);
  return out.take();
}

static Slot read_slot(ByteReader& in, bool& valid) {
  Slot slot;
  uint64_t kind = in.number(1);
  valid = valid && kind <= static_cast<uint64_t>(Slot::Kind::Param);
  slot.kind = static_cast<Slot::Kind>(kind);
  slot.name = in.string();
  slot.axis = static_cast<int>(in.number(4));
  valid = valid && slot.axis >= 0;
  return slot;
}

std::optional<HostObject> decode_host_object(std::string_view bytes) {
  // Vectors grow as elements are read, so that a false count cannot allocate more than the bytes
  // hold.
  ByteReader in(bytes);
  HostObject object;
  bool valid = true;
  uint64_t launches = in.number();
  for (uint64_t i = 0; i < launches && in.ok() && valid; ++i) {
    HostLaunch launch;
    launch.entry = in.string();
    launch.scratch_bytes = in.number();
    uint64_t slots = in.number();
    for (uint64_t k = 0; k < slots && in.ok() && valid; ++k)
      launch.slots.push_back(read_slot(in, valid));
    object.launches.push_back(std::move(launch));
  }
  object.code = in.string();
  if (!valid || !in.at_end()) return std::nullopt;
  return object;
}

}  // namespace kiln
