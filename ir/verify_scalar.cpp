// Rules of scalar ops.
#include <fmt/format.h>

#include "ir/dtype_rules.h"
#include "ir/verify_impl.h"

namespace kiln {
namespace {

void require_result(const Law& law, const Op& op, DType dtype) {
  if (law.type(op.result).dtype != dtype)
    law.fail(op,
             fmt::format("the result: expected {}, got {}", name(dtype), str(law.type(op.result))),
             "cast the result");
}

// Operands from `first` on have one dtype.
DType require_agreement(const Law& law, const Op& op, size_t first) {
  const DType dtype = law.type(op.operands[first]).dtype;
  for (size_t i = first + 1; i < op.operands.size(); ++i) {
    const DType other = law.type(op.operands[i]).dtype;
    if (other != dtype)
      law.fail(op,
               fmt::format("operands differ: {} is {}, {} is {}", operand_name(op, first),
                           name(dtype), operand_name(op, i), name(other)),
               "cast one of them");
  }
  return dtype;
}

void check_const(const Law& law, const Op& op) {
  const DType dtype = law.type(op.result).dtype;
  const AttrValue& value = op.attr("value");
  if (const auto* number = std::get_if<int64_t>(&value)) {
    const bool exact =
        is_float(dtype)
            ? round_to(dtype, static_cast<double>(*number)) == static_cast<double>(*number) &&
                  (*number > -(int64_t{1} << 53) && *number < (int64_t{1} << 53))
            : wrap_to(dtype, *number) == *number;
    if (!exact)
      law.fail(op, fmt::format("{} is not a value of {}", *number, name(dtype)), "a wider dtype");
    return;
  }
  const double number = std::get<double>(value);
  if (!is_float(dtype))
    law.fail(op, fmt::format("expected an integer for {}, got {}", name(dtype), number),
             "a float dtype, or a whole number without a point");
  const bool nan = number != number;
  if (!nan && round_to(dtype, number) != number)
    law.fail(op, fmt::format("{} is not a value of {}", number, name(dtype)),
             fmt::format("the nearest is {}", round_to(dtype, number)));
}

// What an op computes on: whether a dtype is among it, and what all of them are called, if
// anything.
struct Domain {
  std::string_view words;
  bool (*holds)(DType);

  std::string text() const { return words.empty() ? dtypes_text(holds) : std::string(words); }
};

Domain domain_of(OpCode code) {
  switch (code) {
    case OpCode::Div: return {"floats", is_float};
    case OpCode::FloorDiv:
    case OpCode::FloorMod:
    case OpCode::Shl:
    case OpCode::Shr: return {"integers", is_int};
    case OpCode::Fma: return {"", [](DType d) { return d == F32 || d == F64; }};
    case OpCode::And:
    case OpCode::Or:
    case OpCode::Xor:
    case OpCode::Not: return {"integers or bool", [](DType d) { return !is_float(d); }};
    case OpCode::Exp:
    case OpCode::Exp2:
    case OpCode::Log:
    case OpCode::Log2:
    case OpCode::Sqrt:
    case OpCode::Rsqrt:
    case OpCode::Tanh:
    case OpCode::Floor:
    case OpCode::Ceil: return {"", [](DType d) { return d <= F64; }};
    default: return {"numbers", [](DType d) { return d != Bool; }};
  }
}

std::string domain_hint(OpCode code, DType dtype) {
  if (code == OpCode::Div && is_int(dtype)) return "use floordiv, or cast to a float";
  if ((code == OpCode::FloorDiv || code == OpCode::FloorMod) && is_float(dtype))
    return "use div, or cast to an integer";
  return "cast it";
}

}  // namespace

void check_scalar(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::Const: return check_const(law, op);
    case OpCode::Cast: return;
    case OpCode::Compare: require_agreement(law, op, 0); return require_result(law, op, Bool);
    case OpCode::Select:
      if (law.type(op.operands[0]).dtype != Bool)
        law.fail(op, fmt::format("condition: expected bool, got {}", str(law.type(op.operands[0]))),
                 "compare it with something");
      return require_result(law, op, require_agreement(law, op, 1));
    default: break;
  }
  const DType dtype = require_agreement(law, op, 0);
  const Domain domain = domain_of(op.code);
  if (!domain.holds(dtype))
    law.fail(op, fmt::format("expected {}, got {}", domain.text(), name(dtype)),
             domain_hint(op.code, dtype));
  require_result(law, op, dtype);
}

}  // namespace kiln
