#include "runtime/gpu_artifact.h"

#include "runtime/slot_bytes.h"

namespace kiln {

std::string encode(const GpuCode& code) {
  ByteWriter out;
  out.number(code.launches.size());
  for (const GpuLaunch& launch : code.launches) {
    out.string(launch.entry);
    out.number(static_cast<uint64_t>(launch.threads), 4);
    out.number(static_cast<uint64_t>(launch.shared_bytes), 4);
    out.number(launch.early ? 1 : 0, 1);
    write_slots(out, launch.slots);
  }
  out.string(code.ptx);
  return out.take();
}

std::optional<GpuCode> decode_gpu_code(std::string_view bytes) {
  ByteReader in(bytes);
  GpuCode code;
  for (uint64_t left = in.number(); left > 0 && in.ok(); --left) {
    std::string entry(in.string());
    const int threads = static_cast<int>(in.number(4));
    const int shared_bytes = static_cast<int>(in.number(4));
    const uint64_t early = in.number(1);
    auto slots = read_slots(in);
    if (!slots || threads <= 0 || shared_bytes < 0 || early > 1) return std::nullopt;
    code.launches.push_back(
        {std::move(entry), std::move(*slots), threads, shared_bytes, early == 1});
  }
  code.ptx = in.string();
  return in.at_end() ? std::optional(std::move(code)) : std::nullopt;
}

}  // namespace kiln
