#include "passes/work_estimate.h"

#include "ir/walk.h"
#include "passes/gemm_plan.h"

namespace kiln {
namespace {

bool is_exponential(OpCode code) {
  return code >= OpCode::Exp && code <= OpCode::Tanh;
}

double bytes_of(const Type& type, double elements) {
  return elements * static_cast<double>(size_of(type.dtype));
}

double points_of(const Op& parallel) {
  return static_cast<double>(count(parallel.ints("extents")));
}

WorkEstimate copy_work(const Kernel& kernel, const Op& op) {
  WorkEstimate work;
  const Type &from = kernel.type(op.operands[0]), &to = kernel.type(op.operands[1]);
  const auto elements = static_cast<double>(count(is_static(to.shape) ? to.shape : from.shape));
  if (from.space == Space::Global) work.global_read = bytes_of(from, elements);
  if (to.space == Space::Global) work.global_written = bytes_of(to, elements);
  return work;
}

WorkEstimate parallel_work(const Kernel& kernel, const Op& op) {
  WorkEstimate work;
  const double points = points_of(op);
  for (OpId id : kernel.region(op.regions[0]).ops) {
    const Op& inner = kernel.op(id);
    switch (inner.code) {
      case OpCode::Const: break;
      case OpCode::Load:
        if (kernel.type(inner.operands[0]).space == Space::Global)
          work.global_read += bytes_of(kernel.type(inner.operands[0]), points);
        break;
      case OpCode::Store:
      case OpCode::Atomic:
        if (kernel.type(inner.operands[1]).space == Space::Global)
          work.global_written += bytes_of(kernel.type(inner.operands[1]), points);
        break;
      default:
        work.elements += points;
        if (is_exponential(inner.code)) work.exponentials += points;
    }
  }
  return work;
}

}  // namespace

WorkEstimate& WorkEstimate::operator+=(const WorkEstimate& other) {
  flops += other.flops;
  elements += other.elements;
  exponentials += other.exponentials;
  global_read += other.global_read;
  global_written += other.global_written;
  return *this;
}

WorkEstimate WorkEstimate::times(double rounds) const {
  return {flops * rounds, elements * rounds, exponentials * rounds, global_read * rounds,
          global_written * rounds};
}

WorkEstimate estimate_work(const Kernel& kernel, const Op& op) {
  WorkEstimate work;
  switch (op.code) {
    case OpCode::Gemm:
    case OpCode::GemmAsync: {
      const GemmShape shape = gemm_shape(kernel, op);
      work.flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                   static_cast<double>(shape.k);
      return work;
    }
    case OpCode::Copy:
    case OpCode::CopyAsync:
    case OpCode::StoreAsync: return copy_work(kernel, op);
    case OpCode::Parallel: return parallel_work(kernel, op);
    case OpCode::Reduce:
      work.elements = static_cast<double>(count(kernel.type(op.operands[0]).shape));
      return work;
    case OpCode::SoftmaxStep:  // scaled, exponentiated, added up
      work.exponentials = static_cast<double>(count(kernel.type(op.operands[0]).shape));
      work.elements = 3 * work.exponentials;
      return work;
    case OpCode::ScaleRows:
      work.elements = static_cast<double>(count(kernel.type(op.operands[0]).shape));
      return work;
    default: return work;
  }
}

int64_t constant_rounds(const Kernel& kernel, const Op& loop) {
  if (loop.code != OpCode::For) return 0;
  const auto begin = constant_int(kernel, loop.operands[0]),
             end = constant_int(kernel, loop.operands[1]),
             step = constant_int(kernel, loop.operands[2]);
  if (!begin || !end || !step || *step <= 0 || *end <= *begin) return 0;
  return (*end - *begin + *step - 1) / *step;
}

WorkEstimate estimate_work(const Kernel& kernel, RegionId region) {
  WorkEstimate work;
  for (OpId id : kernel.region(region).ops) {
    const Op& op = kernel.op(id);
    work += estimate_work(kernel, op);
    if (op.code == OpCode::Parallel) continue;
    const double rounds = static_cast<double>(std::max<int64_t>(constant_rounds(kernel, op), 1));
    for (RegionId inner : op.regions) work += estimate_work(kernel, inner).times(rounds);
  }
  return work;
}

}  // namespace kiln
