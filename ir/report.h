// What kernels say while they run: device_assert and watch, in the same words on every device.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "ir/error.h"
#include "ir/kernel.h"

namespace kiln {

// Of a device_assert that did not hold; `block`: where first, if that is known.
UserError assertion_error(Loc loc, const std::string& text,
                          std::optional<std::array<int64_t, 3>> block = std::nullopt);

// What a watch says to the log (ir/log.h): its headline, block and type, then the elements, row by
// row. `element` gives one in row-major order; none if it was never written.
std::string watch_headline(Loc loc, const std::string& text);
std::string watch_text(const std::string& headline, const std::array<int64_t, 3>& block,
                       const Type& type,
                       const std::function<std::optional<Scalar>(int64_t)>& element);

}  // namespace kiln
