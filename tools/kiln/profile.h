// What the emulator counted, for people.
#pragma once

#include "runtime/ptx/ptx.h"

namespace kiln::cli {

// The counters, and what each line of the user's source (of the PTX if it names none) did; to
// stdout.
void print_profile(const ptx::Report& report);

// "i", "i,j" or "i,j,k", none negative; missing ones are `missing`. UserError naming the option.
ptx::Dim3 parse_dim3(const char* option, const std::string& text, uint32_t missing);

}  // namespace kiln::cli
