// The slots of a launch as bytes: what the cached code of every tier holds.
#pragma once

#include <optional>
#include <vector>

#include "codegen/abi.h"
#include "runtime/bytes.h"

namespace kiln {

void write_slots(ByteWriter& out, const std::vector<Slot>& slots);
std::optional<std::vector<Slot>> read_slots(ByteReader& in);  // none if they are not sound

}  // namespace kiln
