// The CPU: compiled code over a pool of threads.
#pragma once

#include "runtime/device.h"

namespace kiln {

Device& host_device();

}  // namespace kiln
