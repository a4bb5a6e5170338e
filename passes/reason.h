// What a pass says of its choice, behind what others said: shown by the dump and `kiln explain`.
#pragma once

#include <string>

#include "ir/kernel.h"

namespace kiln {

inline void add_reason(Op& op, const std::string& text) {
  const std::string before = op.word("reason");
  op.attrs.set("reason", before.empty() ? text : before + "; " + text);
}

}  // namespace kiln
