// HostObject as bytes, for the disk cache.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/host.h"

namespace kiln {

std::string encode(const HostObject& object);

// None if the bytes are not exactly one encoded object; never reads or allocates beyond them.
std::optional<HostObject> decode_host_object(std::string_view bytes);

}  // namespace kiln
