#include "ir/ranges.h"

#include <algorithm>
#include <limits>

#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

Interval all_of(DType dtype) {
  if (dtype == Bool) return {0, 1};
  if (!is_int(dtype) || size_of(dtype) == 8) return {kInt64Min, kInt64Max};
  int bits = static_cast<int>(8 * size_of(dtype));
  if (is_unsigned_int(dtype)) return {0, (int64_t{1} << bits) - 1};
  return {-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1};
}

// Bounds of a result that would not wrap; everything if it might.
Interval unless_wrapped(__int128 low, __int128 high, Interval all) {
  if (low < all.low || high > all.high) return all;
  return {static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Interval product(Interval a, Interval b, Interval all) {
  __int128 ends[] = {static_cast<__int128>(a.low) * b.low, static_cast<__int128>(a.low) * b.high,
                     static_cast<__int128>(a.high) * b.low, static_cast<__int128>(a.high) * b.high};
  return unless_wrapped(*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4), all);
}

}  // namespace

Ranges::Ranges(const Kernel& kernel) : kernel_(kernel) {
  walk(kernel, kernel.body, [&](OpId id) {
    for (RegionId region : kernel.op(id).regions)
      for (Value argument : kernel.region(region).args) owner_[argument.id] = id;
  });
}

Interval Ranges::of(Value value) {
  if (auto it = known_.find(value.id); it != known_.end()) return it->second;
  Interval interval = compute(value);
  known_[value.id] = interval;
  return interval;
}

Ranges::Known Ranges::assume(Value condition) {
  Known before = known_;
  narrow(condition);
  return before;
}

void Ranges::narrow(Value condition) {
  const OpId def = kernel_.def(condition);
  if (!def) return;
  const Op& op = kernel_.op(def);
  if (op.code == OpCode::And)
    for (Value part : op.operands) narrow(part);
  if (op.code != OpCode::Compare) return;
  const DType dtype = kernel_.type(op.operands[0]).dtype;
  if (!is_int(dtype) || dtype == U64) return;
  Value less = op.operands[0], more = op.operands[1];
  const std::string& kind = op.word("kind");
  if (kind == "gt" || kind == "ge") std::swap(less, more);
  const bool equal = kind == "eq", strict = kind == "lt" || kind == "gt";
  if (!equal && !strict && kind != "le" && kind != "ge") return;
  const Interval a = of(less), b = of(more);
  if (strict && (a.low == kInt64Max || b.high == kInt64Min)) return;
  narrow(less, equal ? b.low : a.low, b.high - strict);
  narrow(more, a.low + strict, equal ? a.high : b.high);
}

// What cannot be is left as it was: it does not run.
void Ranges::narrow(Value value, int64_t low, int64_t high) {
  const Interval now = of(value);
  low = std::max(low, now.low), high = std::min(high, now.high);
  if (low <= high) known_[value.id] = {low, high};
}

Interval Ranges::compute(Value value) {
  Interval all = all_of(kernel_.type(value).dtype);
  if (OpId def = kernel_.def(value)) return of_op(kernel_.op(def), all);
  auto it = owner_.find(value.id);
  if (it == owner_.end()) return all;
  const Op& op = kernel_.op(it->second);
  if (op.code == OpCode::Launch) return {0, all.high};
  if (op.code == OpCode::For) {
    Interval begin = of(op.operands[0]), end = of(op.operands[1]);
    return {begin.low, std::max(begin.low, end.high - 1)};
  }
  if (op.code == OpCode::Parallel) {
    const std::vector<Value>& args = kernel_.region(op.regions[0]).args;
    size_t axis = static_cast<size_t>(std::find(args.begin(), args.end(), value) - args.begin());
    return {0, std::max<int64_t>(0, op.ints("extents")[axis] - 1)};
  }
  return all;
}

Interval Ranges::of_op(const Op& op, Interval all) {
  auto operand = [&](size_t i) { return of(op.operands[i]); };
  const DType dtype = kernel_.type(op.result).dtype;
  // Bounds are kept signed, so of unsigned 64-bit arithmetic nothing is known.
  if (!is_int(dtype) || (dtype == U64 && op.code != OpCode::Const)) return all;
  switch (op.code) {
    case OpCode::Const: {
      int64_t value = constant_value(kernel_, op).i;
      return {value, value};
    }
    case OpCode::Dim: return {0, all.high};
    case OpCode::Add: {
      Interval a = operand(0), b = operand(1);
      return unless_wrapped(static_cast<__int128>(a.low) + b.low,
                            static_cast<__int128>(a.high) + b.high, all);
    }
    case OpCode::Sub: {
      Interval a = operand(0), b = operand(1);
      return unless_wrapped(static_cast<__int128>(a.low) - b.high,
                            static_cast<__int128>(a.high) - b.low, all);
    }
    case OpCode::Mul: return product(operand(0), operand(1), all);
    case OpCode::Min: {
      Interval a = operand(0), b = operand(1);
      return {std::min(a.low, b.low), std::min(a.high, b.high)};
    }
    case OpCode::Max: {
      Interval a = operand(0), b = operand(1);
      return {std::max(a.low, b.low), std::max(a.high, b.high)};
    }
    case OpCode::Select: {
      Interval a = operand(1), b = operand(2);
      return {std::min(a.low, b.low), std::max(a.high, b.high)};
    }
    case OpCode::FloorDiv: {
      Interval a = operand(0), b = operand(1);
      if (b.low != b.high || b.low <= 0 || size_of(dtype) == 8) return all;
      return {floor_div(a.low, b.low), floor_div(a.high, b.low)};
    }
    case OpCode::FloorMod: {
      Interval b = operand(1);
      return b.low >= 0 ? Interval{0, std::max<int64_t>(0, b.high - 1)} : all;
    }
    case OpCode::Cast: {
      if (!is_int(kernel_.type(op.operands[0]).dtype)) return all;
      Interval a = operand(0);
      return unless_wrapped(a.low, a.high, all);
    }
    default: return all;
  }
}

}  // namespace kiln
