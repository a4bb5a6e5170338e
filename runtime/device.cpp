#include "runtime/device.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/host_device.h"
#include "runtime/interpreter_device.h"

namespace kiln {

const std::vector<std::string_view>& device_names() {
  static const std::vector<std::string_view> names = {"host", "interpreter"};
  return names;
}

Device& device(std::string_view name) {
  if (name == "host") return host_device();
  if (name == "interpreter") return interpreter_device();
  throw UserError(fmt::format("there is no device '{}'", name),
                  fmt::format("one of {}", fmt::join(device_names(), ", ")));
}

}  // namespace kiln
