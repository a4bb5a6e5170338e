// LLVM's FileCheck as a function.
#pragma once

#include <string>

namespace kiln::testing {

// Whether `text` satisfies the CHECK lines of `checks`; `report` gets FileCheck's explanation.
bool file_check(const std::string& checks, const std::string& text, std::string& report);

}  // namespace kiln::testing
