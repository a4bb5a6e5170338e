// Updates of an element that others may update at the same time. ir/ops.def, `atomic`.
#pragma once

#include "dsl/storage.h"

namespace kiln {
inline namespace dsl {

// element = element + value (max, min, …) in one step; gives the old element, which the order of
// arrival decides. For elements of tensors (not outputs) and shared tiles of i32, u32, i64, u64,
// and f32 and f64 but for and, or, xor; the value is of that dtype, or widens to it. In a parallel,
// points may meet in one element, which nothing but atomics may touch there. Out of range: nothing,
// and 0.
Expr atomic_add(const Element& element, Arg value, Loc loc = Loc::here());
Expr atomic_max(const Element& element, Arg value, Loc loc = Loc::here());
Expr atomic_min(const Element& element, Arg value, Loc loc = Loc::here());
Expr atomic_and(const Element& element, Arg value, Loc loc = Loc::here());
Expr atomic_or(const Element& element, Arg value, Loc loc = Loc::here());
Expr atomic_xor(const Element& element, Arg value, Loc loc = Loc::here());
Expr atomic_exchange(const Element& element, Arg value, Loc loc = Loc::here());

}  // namespace dsl
}  // namespace kiln
