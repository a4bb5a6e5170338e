// Copies by where they come from and where they go.
#pragma once

#include "codegen/nvptx_walk_impl.h"

namespace kiln::nvptx {

// Between tensors and shared tiles. `pad` is of the source's dtype. `async`: by cp.async where
// vectors allow; the caller commits the group.
void copy_memory(Emitter& emitter, const Place& from, const Place& to, const Scalar& pad,
                 bool async);
void fill_memory(Emitter& emitter, const Place& to, Val value);  // of the place's dtype

// Does a fragment only wait, between a load from memory and a store to it?
bool waits_only(const Kernel& kernel, Value tile);
// `waits`: the fragment does, while others need registers.
void load_fragment(Emitter& emitter, const Place& from, Fragment& to, const Scalar& pad,
                   bool waits);
void store_fragment(Emitter& emitter, const Fragment& from, const Place& to);
// Each thread has what it needs, InternalError if not.
void copy_fragment(Emitter& emitter, const Loc& loc, const Fragment& from, Fragment& to);

// The elements of a value, or of a vector of values; and back.
Values elements_of(Builder& b, Val value, int64_t width);
Val vector_of(Builder& b, std::span<const Val> elements);

}  // namespace kiln::nvptx
