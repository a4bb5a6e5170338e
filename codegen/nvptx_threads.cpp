// This thread's part of a layout: coordinates from register, lane and warp.
#include "codegen/nvptx_emit_impl.h"
#include "ir/error.h"

namespace kiln::nvptx {
namespace {

bool is_power_of_two(int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

int64_t log2_of(int64_t value) {
  int64_t bits = 0;
  while (int64_t{1} << bits < value) ++bits;
  return bits;
}

// source / divisor % extent * stride of a value that is not negative.
Val term(Builder& b, const Term& t, Val source) {
  auto& ir = b.ir;
  Val value = source;
  if (t.divisor != 1)
    value = is_power_of_two(t.divisor) ? ir.CreateLShr(value, b.i32(log2_of(t.divisor)))
                                       : ir.CreateUDiv(value, b.i32(t.divisor));
  value = is_power_of_two(t.extent) ? ir.CreateAnd(value, b.i32(t.extent - 1))
                                    : ir.CreateURem(value, b.i32(t.extent));
  if (t.stride == 1) return value;
  return is_power_of_two(t.stride) ? ir.CreateShl(value, b.i32(log2_of(t.stride)))
                                   : ir.CreateMul(value, b.i32(t.stride));
}

// The constant parts are gathered, so that registers of one thread differ by constants only.
Val sum_of(Builder& b, const std::vector<Term>& terms, std::span<const Val> sources,
           bool exclusive) {
  auto& ir = b.ir;
  Val variable = nullptr;
  int64_t constant = 0;
  for (const Term& t : terms) {
    Val source = sources[static_cast<size_t>(t.source)];
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(source)) {
      const int64_t value = t(known->getSExtValue());
      constant = exclusive ? constant ^ value : constant + value;
      continue;
    }
    Val value = term(b, t, source);
    if (!variable)
      variable = value;
    else
      variable = exclusive ? ir.CreateXor(variable, value) : ir.CreateAdd(variable, value);
  }
  if (!variable) return b.i32(constant);
  if (constant == 0) return variable;
  return exclusive ? ir.CreateXor(variable, b.i32(constant))
                   : ir.CreateAdd(variable, b.i32(constant));
}

}  // namespace

Val Emitter::evaluate(const Formula& formula, std::span<const Val> sources) {
  if (formula.is_sum()) {
    std::vector<Term> all = formula.atom;
    all.insert(all.end(), formula.digits.begin(), formula.digits.end());
    return sum_of(b, all, sources, false);
  }
  Val atom = sum_of(b, formula.atom, sources, true);
  if (formula.digits.empty()) return atom;
  return b.ir.CreateAdd(atom, sum_of(b, formula.digits, sources, false));
}

Values Emitter::coordinate(const Layout& layout, Val reg) {
  const Val sources[] = {reg, lane_, warp_, b.i32(0)};
  Values result;
  for (int axis = 0; axis < layout.rank(); ++axis)
    result.push_back(evaluate(coordinate_formula(layout, axis), sources));
  return result;
}

Values Emitter::coordinate(const Layout& layout, int64_t reg) {
  return coordinate(layout, b.i32(reg));
}

Val Emitter::in_tile(const Layout& layout, std::span<const Val> coordinate) {
  if (!layout.is_padded()) return nullptr;
  const Coordinate padded = layout.padded_shape();
  Val inside = nullptr;
  for (size_t axis = 0; axis < coordinate.size(); ++axis)
    if (padded[axis] > layout.shape()[axis])
      inside = b.both(inside, b.ir.CreateICmpSLT(coordinate[axis], b.i32(layout.shape()[axis])));
  return inside;
}

// The coordinate costs a dozen instructions, for nothing where there is no padding.
Val Emitter::in_tile(const Layout& layout, int64_t reg) {
  return layout.is_padded() ? in_tile(layout, coordinate(layout, reg)) : nullptr;
}

}  // namespace kiln::nvptx
