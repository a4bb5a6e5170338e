// GpuCode as bytes, for the disk cache. (A cubin is bytes already and has an entry of its own.)
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/nvptx.h"

namespace kiln {

std::string encode(const GpuCode& code);

// None if the bytes are not exactly one encoded GpuCode; never reads or allocates beyond them.
std::optional<GpuCode> decode_gpu_code(std::string_view bytes);

}  // namespace kiln
