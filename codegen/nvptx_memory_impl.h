// Accesses to memory whose address is known.
#pragma once

#include "codegen/nvptx_emit_impl.h"

namespace kiln::nvptx {

// Emitter::read and write at a pointer into the place.
Val read_at(Emitter& emitter, const Place& place, Val pointer, Val condition, int width = 1,
            Val otherwise = nullptr);
void write_at(Emitter& emitter, const Place& place, Val pointer, Val value, Val condition,
              int width = 1);

Axis whole_axis(Builder& b, int64_t extent);  // of a shared tile

// The part of an axis that starts at an index (which is in `at`) and has `size` elements.
Axis slice_axis(Builder& b, Axis axis, Val index, Interval at, int64_t size);

}  // namespace kiln::nvptx
