// The reference of the language, generated from the op table.
#pragma once

#include <string>

namespace kiln {

// The text of ir/LANGUAGE.md.
std::string language_reference();

}  // namespace kiln
