#include "dsl/kernel.h"

#include <algorithm>

#include "dsl/tracer.h"
#include "ir/canon.h"
#include "ir/verify.h"
#include "ir/walk.h"

namespace kiln {
inline namespace dsl {
namespace {

// Elements are read where they are named, whether or not the value is needed: those reads that
// nothing uses go, and with them what only they used.
void drop_unused_reads(Kernel& kernel, RegionId region, std::vector<int>& uses) {
  std::vector<OpId> kept;
  std::vector<OpId> ops = kernel.region(region).ops;
  for (auto it = ops.rbegin(); it != ops.rend(); ++it) {
    const Op& op = kernel.op(*it);
    for (RegionId inner : op.regions) drop_unused_reads(kernel, inner, uses);
    bool removable = op.code == OpCode::Load || info(op.code).pure;
    if (removable && uses[op.result.id] == 0) {
      for (Value operand : op.operands) --uses[operand.id];
    } else {
      kept.push_back(*it);
    }
  }
  std::reverse(kept.begin(), kept.end());
  kernel.region(region).ops = std::move(kept);
}

}  // namespace

Kernel trace(const std::string& name, TraceOptions options, const std::function<void()>& body,
             Loc loc) {
  Tracer tracer(name, loc);
  body();
  Kernel kernel = tracer.finish();
  kernel.fast_math = options.fast_math;
  kernel.note = options.note;
  std::vector<int> uses = use_counts(kernel);
  drop_unused_reads(kernel, kernel.body, uses);
  verify(kernel, IrStage::Traced);
  return canonical(kernel);
}

}  // namespace dsl
}  // namespace kiln
