// Constant folding and the identities of scalar ops.
#pragma once

#include "ir/builder.h"

namespace kiln {

// A cheaper or more canonical value that equals the op's result bit for bit, its ops appended
// through the builder; none if the op is as good as it gets.
Value simpler(Builder& build, const Op& op);

}  // namespace kiln
