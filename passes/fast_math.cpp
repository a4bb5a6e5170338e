// Contraction (a·b + c in one rounding) is left to code generators: they know what it costs.
#include "passes/passes.h"

#include "ir/walk.h"

namespace kiln {

void fast_math(Kernel& kernel) {
  if (!kernel.fast_math) return;
  walk(kernel, kernel.body, [&](OpId id) {
    Op& op = kernel.op(id);
    if (!info(op.code).attr("fast") || !is_float(kernel.type(op.result).dtype)) return;
    op.attrs.set("fast", true);
  });
}

}  // namespace kiln
