// The reference interpreter as a device: kernels run as they were traced, no pass touches them.
#pragma once

#include "runtime/device.h"

namespace kiln {

Device& interpreter_device();

}  // namespace kiln
