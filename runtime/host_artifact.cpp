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
    out.number(launch.roles.size());
    for (const HostRole& role : launch.roles) {
      out.string(role.name);
      out.string(role.entry);
    }
    out.number(launch.waits.size());
    for (const HostWait& wait : launch.waits) {
      out.string(wait.loc.file);
      out.number(static_cast<uint64_t>(wait.loc.line), 4);
      out.string(wait.what);
    }
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
    HostLaunch launch{std::move(entry), std::move(*slots), scratch_bytes};
    for (uint64_t roles = in.number(); roles > 0 && in.ok(); --roles) {
      std::string name(in.string());
      launch.roles.push_back({std::move(name), std::string(in.string())});
    }
    for (uint64_t waits = in.number(); waits > 0 && in.ok(); --waits) {
      const std::string_view file = in.string();
      const int line = static_cast<int>(in.number(4));
      const std::string_view what = in.string();
      if (file.find('\0') != file.npos || line < 0) return std::nullopt;
      if (in.ok()) launch.waits.push_back({{intern(file), line}, std::string(what)});
    }
    object.launches.push_back(std::move(launch));
  }
  object.code = in.string();
  return in.at_end() ? std::optional(std::move(object)) : std::nullopt;
}

}  // namespace kiln
