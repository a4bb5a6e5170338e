// Inline assembly, for what has no intrinsic, and to hold values in their place.
#pragma once

#include <string>

#include "codegen/nvptx_builder_impl.h"

namespace kiln::nvptx {

// A statement with effects that all threads run together. `results` are the types of its outputs,
// $0 …; the arguments' constraints follow theirs.
Values assembly(Builder& b, const std::string& text, const std::string& constraints,
                std::span<llvm::Type* const> results, std::span<const Val> arguments);

// The same values, f32, f64, i32 or i64, as they are from here on: nothing that uses the results
// moves before this point, and nothing that the values depend on behind it.
Values held_here(Builder& b, std::span<const Val> values);

}  // namespace kiln::nvptx
