// The text form of a kernel (`.tile`); ir/LANGUAGE.md describes it.
#pragma once

#include <string>

#include "ir/kernel.h"

namespace kiln {

struct PrintOptions {
  bool locations = false;  // ` at "file":line` after each op that has one
};
// Numbers are exact, values are named `%op.N` (or after the tensor, dim or param) in order of
// appearance: parse(print(k)) prints the same text, and equal kernels print equal texts.
std::string print(const Kernel& kernel, const PrintOptions& options = {});
std::string print_op(const Kernel& kernel, OpId op);  // one line, without regions, for messages

}  // namespace kiln
