// old = atomic v, x[i]  →  parallel (1) { was = atomic v, x[i]; t[0] = was }   old = load t[0]
// with t a shared tile, from which every thread has the old value; without t where nothing uses it.
#include <unordered_set>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {

void atomics_in_parallel(Kernel& kernel) {
  const std::vector<int> uses = use_counts(kernel);
  std::unordered_set<uint32_t> bodies;  // regions of parallels
  walk(kernel, kernel.body, [&](OpId id) {
    if (kernel.op(id).code == OpCode::Parallel) bodies.insert(kernel.op(id).regions[0].id);
  });
  ValueMap names;
  rewrite(kernel, kernel.body, names, [&](Builder& build, OpId id) {
    const Op op = kernel.op(id);
    if (op.code != OpCode::Atomic || bodies.contains(build.region().id)) return false;
    const bool used = uses[op.result.id] > 0;
    const DType dtype = kernel.type(op.result).dtype;
    Value kept = used ? build.alloc(Space::Shared, dtype, {1}) : Value{};
    build.parallel({1}, [&](std::span<const Value> point) {
      Value old = build.atomic(op.word("kind").c_str(), op.operands[0], op.operands[1],
                               {op.operands.begin() + 2, op.operands.end()});
      if (used) build.store(old, kept, {point[0]});
    });
    if (used) names[op.result.id] = build.load(kept, {build.constant(I32, 0)});
    return true;
  });
}

}  // namespace kiln
