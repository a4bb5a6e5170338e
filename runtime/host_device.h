// The CPU: compiled code over a pool of threads.
#pragma once

#include "runtime/device.h"

namespace kiln {

Device& host_device();

// The name of a kernel's entry in the disk cache: equal exactly if the code would be.
std::string host_cache_key(const Kernel& kernel);

}  // namespace kiln
