#include "runtime/ptx/arithmetic.h"

namespace kiln::ptx {
namespace {

void decode_any(Decoder& d) {
  Type type = d.type();
  if (type == Type::F32)
    if (const auto narrow = d.maybe_type()) return decode_mixed(d, *narrow);
  switch (type) {
    case Type::F32:
    case Type::F64:
    case Type::F32x2: return decode_float(d, type);
    case Type::F16:
    case Type::BF16:
    case Type::F16x2:
    case Type::BF16x2: return decode_half(d, type);
    default: return decode_integer(d, type);
  }
}

constexpr Mnemonic kMnemonics[] = {
    {"add", decode_any}, {"sub", decode_any}, {"mul", decode_any}, {"mad", decode_any},
    {"fma", decode_any}, {"div", decode_any}, {"min", decode_any}, {"max", decode_any},
    {"neg", decode_any}, {"abs", decode_any},
};

}  // namespace

std::span<const Mnemonic> arithmetic_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
