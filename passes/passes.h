// All passes. A pass is one free function in one file of its name: `needs` says what must have run,
// `leaves` what holds afterwards. A pass that cannot improve anything leaves the kernel as it is.
#pragma once

#include "ir/kernel.h"

namespace kiln {

// Folds constants and algebraic identities, canonicalises operand order, removes branches on
// constants and loops that run zero times.
// needs: nothing · leaves: the same results, bit for bit.
void simplify(Kernel& kernel);

// exp(x·c) → exp2(x·(c·log2 e)), log likewise, with the factor folded into an existing scale; only
// in kernels that allow fast math.
// needs: simplify · leaves: no exp or log of f32 in a fast_math kernel.
void exp_to_exp2(Kernel& kernel);

// Marks float arithmetic of fast_math kernels as `fast`: may be fused and approximated, but NaN and
// infinities stay what they are.
// needs: exp_to_exp2 · leaves: code generators may do so with what is marked.
void fast_math(Kernel& kernel);

// Turns `selected` loops into serial loops with a test.
// needs: nothing · leaves: no `selected`.
void lower_selected(Kernel& kernel);

// Turns softmax_step, scale_rows and softmax_finish into reduce, parallel and scalar ops.
// needs: nothing · leaves: none of those three.
void expand_online_softmax(Kernel& kernel);

// Turns arg_reduce, cumsum and sort into reduce, loops and parallel over shared tiles.
// needs: nothing · leaves: none of those three.
void expand_row_ops(Kernel& kernel);

// Turns local arrays into scalar variables, those of a parallel's points into values.
// needs: nothing · leaves: no local tiles.
void expand_local_arrays(Kernel& kernel);

// Turns gather and scatter into parallel.
// needs: nothing · leaves: neither.
void expand_gather(Kernel& kernel);

// Turns `rasterize` of launches into arithmetic on block indices.
// needs: nothing · leaves: no `rasterize`.
void expand_rasterize(Kernel& kernel);

// Replaces `for {kind = unroll}` by copies of its body.
// needs: constant bounds (a user error otherwise) · leaves: no unroll loops.
void unroll(Kernel& kernel);

// Merges equal pure ops of a region with those above them.
// needs: nothing · leaves: no two equal pure ops where one dominates the other.
void common_subexpressions(Kernel& kernel);

// Moves pure ops out of loops whose values they do not depend on.
// needs: nothing · leaves: loop-invariant pure ops outside.
void hoist_invariants(Kernel& kernel);

// Removes pure ops without uses, tiles that are only written and what writes them, empty structure.
// needs: nothing · leaves: every op contributes to a tensor, or synchronises.
void dead_code(Kernel& kernel);

// ---- GPU tiers. `kernel.target` names the GPU (gpu_target.h)
// -------------------------------------

// Turns `selected` loops with stages into loops over a list of what is selected, made in shared
// memory, chunk by chunk of the row; `ordered` or not in the order that `ordered` asks for.
// needs: nothing · leaves: no `selected` with stages.
void compact_selected(Kernel& kernel);

// Puts each atomic that stands outside of a parallel into one of a single point, for one thread.
// needs: nothing · leaves: atomics in parallels only.
void atomics_in_parallel(Kernel& kernel);

// Sends accesses to slices of fragments through shared memory: a thread has its own elements only.
// needs: no softmax ops · leaves: no slice of a fragment but constant whole ones' uses.
void slices_through_shared(Kernel& kernel);

// Chooses the number of warps of each launch, and for each gemm and each copy the instruction, with
// the reason in its attribute. Fragment operands of gemms that take none are copied to shared
// tiles. needs: slices_through_shared · leaves: `warps`, `instruction` and `reason` set.
void choose_instructions(Kernel& kernel);

// Gives every tile and parallel loop a layout, and inserts `convert` (or copies through shared
// memory) where two ops want different layouts of one fragment.
// needs: choose_instructions · leaves: all layouts set; every op finds what it reads in the threads
// that need it; reduce has its scratch.
void infer_layouts(Kernel& kernel);

// Fetches what the rounds of pipelined loops copy from global to shared memory `stages` − 1 rounds
// ahead, through channels, as far as that fits and leaves warps enough (resources.h). Loops and
// copies of which it cannot be done say why. needs: infer_layouts · leaves: channels that
// lower_channels takes.
void make_async(Kernel& kernel);

// Turns channels of launches without roles into shared tiles with the slots on their first axis,
// waits and barriers. needs: layouts of the channels · leaves: no channel but between roles; all
// that uses a ring is in order.
void lower_channels(Kernel& kernel);

// Moves cp_async copies up, past work that does not depend on them, to be under way meanwhile; not
// if shared memory would no longer do.
// needs: infer_layouts · leaves: the same results.
void issue_copies_early(Kernel& kernel);

// Places shared tiles in the block's shared memory; tiles that are never alive together share.
// needs: infer_layouts · leaves: `offset` of shared tiles and `shared` of launches set. UserError
// naming tiles and sizes if the target has less.
void plan_shared_memory(Kernel& kernel);

// Inserts the barriers, and the waits for cp_async copies, without which threads would see each
// other's shared or global elements too early or too late.
// needs: plan_shared_memory · leaves: no two conflicting accesses of two threads without a barrier
// between.
void insert_barriers(Kernel& kernel);

}  // namespace kiln
