#include "runtime/host_artifact.h"

#include "runtime/slot_bytes.h"

namespace kiln {

std::string encode(const HostObject& object) {
  ByteWriter out;
  out.number(object.launches.size());
  for (const HostLaunch& launch : object.launches) {
    out.string(launch.entry);
    out.number(launch.scratch_bytes);
    write_slots(out, launch.slots);
  }
  out.string(object.code);
  return out.take();
}

std::optional<HostObject> decode_host_object(std::string_view bytes) {
  // Vectors grow as elements are read, so that a false count cannot allocate more than the bytes
  // hold.
  ByteReader in(bytes);
  HostObject object;
  for (uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    std::string entry(in.string());
    const uint64_t scratch_bytes = in.number();
    auto slots = read_slots(in);
    if (!slots) return std::nullopt;
    object.launches.push_back({std::move(entry), std::move(*slots), scratch_bytes});
  }
  object.code = in.string();
  return in.at_end() ? std::optional(std::move(object)) : std::nullopt;
}

}  // namespace kiln
