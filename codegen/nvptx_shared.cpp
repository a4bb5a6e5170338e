// Addresses in shared memory: one formula a thread, then constants.
#include "codegen/nvptx_shared_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "ir/error.h"
#include "ir/layout/access.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

constexpr int kDepth = 8;  // of an expression: sums of sums may share operands
constexpr int64_t kMost = int64_t{1} << 31;

// The largest power of two that divides all multiples of a divisor, 0 if these are only 0. Only
// powers of two survive arithmetic that wraps.
int64_t power_of(int64_t divisor) {
  return std::min(divisor & -divisor, kMost);
}

int64_t divisor_of(Val value, int depth) {
  if (auto* constant = llvm::dyn_cast<llvm::ConstantInt>(value))
    return std::abs(constant->getSExtValue());
  auto* op = llvm::dyn_cast<llvm::Instruction>(value);
  if (!op || depth == 0) return 1;
  const auto of = [&](unsigned operand) { return divisor_of(op->getOperand(operand), depth - 1); };
  switch (op->getOpcode()) {
    case llvm::Instruction::Mul: return power_of(power_of(of(0)) * power_of(of(1)));
    case llvm::Instruction::Add:
    case llvm::Instruction::Sub: return power_of(std::gcd(of(0), of(1)));
    case llvm::Instruction::Select: return std::gcd(of(1), of(2));
    default: return 1;
  }
}

}  // namespace

int64_t known_divisor(Val value) {
  return divisor_of(value, kDepth);
}

int64_t view_vector(const Place& place, int axis) {
  int64_t width = vector_width(*place.layout, axis);
  const int64_t start = known_divisor(place.axes[static_cast<size_t>(axis)].start);
  while (start % width != 0) width /= 2;
  return width;
}

struct SharedAddresses::Impl {
  Emitter& e;
  Place place;
  Layout walk, stored;  // both in vectors
  Formula offset;
  int64_t bytes;        // of a vector
  Values starts;        // of the view, in vectors
  Coordinate divisors;  // of the starts
  std::optional<std::vector<OffsetStep>> steps;
  std::map<int64_t, Val> flipped;  // by flip: the address of a thread

  Impl(Emitter& emitter, const Place& of, const Layout& by, int axis, int64_t v)
      : e(emitter),
        place(of),
        walk(by),
        stored(v > 1 ? in_vectors(*of.layout, axis, v) : *of.layout),
        offset(owner_formula(stored, Resource::Offset)),
        bytes(v * static_cast<int64_t>(size_of(of.dtype))) {
    for (const Axis& along : place.axes) {
      starts.push_back(along.start);
      divisors.push_back(known_divisor(along.start));
    }
    if (v > 1) in_vectors_along(static_cast<size_t>(axis), v);
    find_steps();
    if (steps)
      for (const OffsetStep& step : *steps) flipped.try_emplace(step.flip, nullptr);
    if (flipped.empty()) return;
    Val base = evaluate(0);
    for (auto& [flip, address] : flipped) address = at(e.b.ir.CreateXor(base, e.b.i32(flip)));
  }

  void in_vectors_along(size_t axis, int64_t v) {
    Axis& along = place.axes[axis];
    if (along.size % v != 0 || divisors[axis] % v != 0)
      throw InternalError(fmt::format("vectors of {} elements are not aligned in a view", v));
    along.size /= v;
    divisors[axis] /= v;
    starts[axis] = e.b.ir.CreateSDiv(along.start, e.b.i32(v), "", true);
  }

  // The constants hold for every place where the view may begin: at a multiple of what is known to
  // divide its start. Not if the walk's padding leaves the view: nobody wrote what is there.
  void find_steps() {
    if (!place.surely_inside()) return;
    const Coordinate needed = walk.padded_shape();
    for (size_t axis = 0; axis < needed.size(); ++axis)
      if (needed[axis] != place.axes[axis].size) return;
    steps = offset_steps(walk, stored, divisors);
  }

  // The offset of a register in vectors. Padding has the address of some element of the view.
  Val evaluate(int64_t reg) {
    Values c = e.coordinate(walk, reg);
    const Coordinate padded = walk.padded_shape();
    for (size_t axis = 0; axis < c.size(); ++axis) {
      const int64_t size = place.axes[axis].size;
      if (padded[axis] > size) {
        Val last = e.b.i32(size - 1);
        c[axis] = e.b.ir.CreateSelect(e.b.ir.CreateICmpSLT(c[axis], last), c[axis], last);
      }
      c[axis] = e.b.ir.CreateAdd(c[axis], starts[axis]);
    }
    return e.evaluate(offset, c);
  }
  Val at(Val vectors) { return add(place.pointer, e.b.ir.CreateMul(vectors, e.b.i32(bytes))); }
  Val add(Val pointer, Val distance) {
    return e.b.ir.CreateGEP(e.b.ir.getInt8Ty(), pointer, distance);
  }
};

SharedAddresses::SharedAddresses(Emitter& emitter, const Place& place, const Layout& walk, int axis,
                                 int64_t v)
    : impl_(std::make_shared<Impl>(emitter, place, walk, axis, v)) {}

Val SharedAddresses::operator()(int64_t reg) {
  if (!impl_->steps) return impl_->at(impl_->evaluate(reg));
  const OffsetStep& step = (*impl_->steps)[static_cast<size_t>(reg)];
  Val address = impl_->flipped.at(step.flip);
  return step.add == 0 ? address : impl_->add(address, impl_->e.b.i32(step.add * impl_->bytes));
}

}  // namespace kiln::nvptx
