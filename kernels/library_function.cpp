#include "kernels/library_function.h"

#include <fmt/format.h>

namespace kiln {

Device& device_for(Device& device, std::string_view target) {
  const std::string_view name = device.name();
  if (target.empty() || target == device.target() || (target == "host" && name == "host"))
    return device;
  try {  // an emulator's name may hold its architecture
    return kiln::device(name.starts_with("emulator") ? "emulator" : name, target);
  } catch (const UserError& error) {
    throw UserError(fmt::format("target: {}", error.message()), error.hint());
  }
}

}  // namespace kiln
