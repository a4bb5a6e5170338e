// The law of the IR; verify.cpp's head comment lists it.
#pragma once

#include "ir/kernel.h"

namespace kiln {

// Throws UserError at the location of the first op that breaks a rule: the rule, expected and got.
void verify(const Kernel& kernel);

}  // namespace kiln
