// Layouts as one line of text, exact and canonical: equal layouts have equal texts.
//
//     [16, 40] reg (0, 1) (8, 0) lane (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) digit 5 reg 4 axis 1 8
//
// The shape; for each resource that the atom uses, the images of its bits; the digits as extent,
// resource, stride and either `axis`, its number and stride, or `copies`; and, if a shared tile
// ends in a gap, `pitch` and the extent of its offsets.
#pragma once

#include <string>
#include <string_view>

#include "ir/layout/layout.h"

namespace kiln {

std::string layout_text(const Layout& layout);

// The layout that layout_text wrote. UserError if the text is not of that form, or breaks the law
// of layouts.
Layout parse_layout(std::string_view text);

}  // namespace kiln
