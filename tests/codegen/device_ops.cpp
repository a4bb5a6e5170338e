#include "tests/codegen/device_ops.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "codegen/nvptx_ops_impl.h"
#include "ir/interp.h"

namespace kiln::testing {
namespace {

bool takes(OpCode code, DType dtype) {
  switch (code) {
    case OpCode::Div: return is_float(dtype);
    case OpCode::FloorDiv:
    case OpCode::FloorMod:
    case OpCode::Shl:
    case OpCode::Shr: return is_int(dtype);
    case OpCode::Fma: return dtype == F32 || dtype == F64;
    case OpCode::And:
    case OpCode::Or:
    case OpCode::Xor:
    case OpCode::Not: return !is_float(dtype);
    case OpCode::Sqrt:
    case OpCode::Floor:
    case OpCode::Ceil: return dtype <= F64;
    default: return dtype != Bool;
  }
}

Attrs with(const char* name, AttrValue value) {
  Attrs attrs;
  attrs.set(name, std::move(value));
  return attrs;
}

}  // namespace

Operation::Operation(OpCode code, std::vector<DType> operands, DType result, Attrs attrs)
    : operands_(std::move(operands)), result_(result), kernel_(std::make_shared<Kernel>("op")) {
  Builder build(*kernel_);
  std::vector<Value> in;
  name_ = info(code).name;
  for (DType dtype : operands_) {
    Attrs parameter = with("name", fmt::format("x{}", in.size()));
    OpId id = build.emit(OpCode::Param, {}, parameter, Type::scalar(dtype));
    in.push_back(kernel_->op(id).result);
    name_ += fmt::format("_{}", kiln::name(dtype));
  }
  if (code == OpCode::Cast) name_ += fmt::format("_{}", kiln::name(result));
  id_ = build.emit(code, in, std::move(attrs), Type::scalar(result));
  if (code == OpCode::Compare) name_ += "_" + op().word("kind");
  if (info(code).attr("fast") && op().flag("fast")) name_ += "_fast";
}

Computation Operation::computation() const {
  return {name_, operands_, result_,
          [kernel = kernel_, id = id_](nvptx::Builder& b, std::span<const nvptx::Val> in) {
            return nvptx::scalar_op(b, *kernel, kernel->op(id), in);
          }};
}

Scalar Operation::expected(const std::vector<Scalar>& in) const {
  return evaluate(*kernel_, op(), in);
}

std::vector<Operation> exact_operations(DType dtype) {
  using enum OpCode;
  std::vector<Operation> operations;
  for (OpCode code : {Add, Sub, Mul, Div, FloorDiv, FloorMod, Min, Max, And, Or, Xor, Shl, Shr})
    if (takes(code, dtype)) operations.emplace_back(code, std::vector{dtype, dtype}, dtype);
  for (OpCode code : {Neg, Abs, Not, Sqrt, Floor, Ceil})
    if (takes(code, dtype)) operations.emplace_back(code, std::vector{dtype}, dtype);
  if (takes(Fma, dtype)) operations.emplace_back(Fma, std::vector{dtype, dtype, dtype}, dtype);
  for (const char* kind : {"eq", "ne", "lt", "le", "gt", "ge"})
    operations.emplace_back(Compare, std::vector{dtype, dtype}, Bool,
                            with("kind", std::string(kind)));
  operations.emplace_back(Select, std::vector{Bool, dtype, dtype}, dtype);
  return operations;
}

std::vector<Operation> casts(DType from) {
  std::vector<Operation> operations;
  for (DType to : kAllDTypes) operations.emplace_back(OpCode::Cast, std::vector{from}, to);
  return operations;
}

std::vector<Operation> functions(DType dtype, bool fast) {
  using enum OpCode;
  std::vector<Operation> operations;
  for (OpCode code : {Exp, Exp2, Log, Log2, Sqrt, Rsqrt, Tanh})
    operations.emplace_back(code, std::vector{dtype}, dtype, with("fast", fast));
  return operations;
}

Scalar from_bits(DType dtype, uint64_t bits) {
  return load_element(dtype, &bits);
}

uint64_t to_bits(const Scalar& value) {
  uint64_t bits = 0;
  store_element(value, &bits);
  return bits;
}

Scalar Values::draw(DType dtype) {
  const uint64_t kind = below(4);
  if (dtype == Bool) return Scalar::of_int(Bool, static_cast<int64_t>(kind % 2));
  const int64_t small = static_cast<int64_t>(below(200)) - 100;
  if (kind == 0) return from_bits(dtype, random_());
  if (!is_float(dtype)) {
    if (kind > 1) return Scalar::of_int(dtype, small / (kind == 2 ? 20 : 1));
    // Powers of two and their neighbours: the ends of every width.
    const uint64_t power = uint64_t{1} << below(64);
    return Scalar::of_int(dtype, static_cast<int64_t>(power + below(3) - 1));
  }
  if (kind == 1) {
    constexpr double kSpecial[] = {
        0.0,   1.0, INFINITY, NAN,     0x1p-149, 0x1p-126, 0x1.FFFFFEp127,
        57344, 448, 65504,    0x1p-24, 0x1p-14,  0x1p-9,   0x1p-16};
    const double value = kSpecial[below(std::size(kSpecial))];
    return Scalar::of_float(dtype, below(2) ? value : -value);
  }
  if (kind == 2) return Scalar::of_float(dtype, static_cast<double>(small) / 4);
  const double digits = static_cast<double>(random_()) * 0x1p-64;
  return Scalar::of_float(
      dtype, std::ldexp(digits, static_cast<int>(below(40)) - 20) * (below(2) ? 1 : -1));
}

Scalar Values::near_tie(DType from, DType to) {
  Scalar low, high;
  do {
    low = from_bits(to, random_());
    high = from_bits(to, to_bits(low) + 1);
  } while (!std::isfinite(low.f) || !std::isfinite(high.f));
  const double middle = low.f / 2 + high.f / 2;
  if (is_float(from)) {
    const uint64_t bits = to_bits(Scalar::of_float(from, middle));
    return from_bits(from, bits + below(3) - 1);
  }
  const auto nearest = static_cast<uint64_t>(convert(Scalar::of_float(F64, middle), from).i);
  return Scalar::of_int(from, static_cast<int64_t>(nearest + below(3) - 1));  // may wrap
}

}  // namespace kiln::testing
