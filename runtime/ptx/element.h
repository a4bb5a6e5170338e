// Elements of the tensor cores' operands as numbers.
#pragma once

#include <bit>
#include <cstdint>

#include "ir/dtype.h"
#include "runtime/ptx/numeric.h"
#include "runtime/ptx/types.h"

namespace kiln::ptx {

struct Fp8Table {
  double e4m3[256], e5m2[256];
  Fp8Table() {
    for (int i = 0; i < 256; ++i) {
      e4m3[i] = from_bits8(kiln::E4M3, static_cast<uint8_t>(i));
      e5m2[i] = from_bits8(kiln::E5M2, static_cast<uint8_t>(i));
    }
  }
};
inline const Fp8Table& fp8() {
  static const Fp8Table table;
  return table;
}

// The value of the element in the low bits of a register.
template <Type T>
inline double element(uint64_t bits) {
  if constexpr (T == Type::F16) return to_float(Half{static_cast<uint16_t>(bits)});
  if constexpr (T == Type::BF16) return to_float(BFloat{static_cast<uint16_t>(bits)});
  if constexpr (T == Type::TF32)  // the low 13 bits are not looked at
    return std::bit_cast<float>(static_cast<uint32_t>(bits) & 0xffffe000);
  if constexpr (T == Type::F32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if constexpr (T == Type::F64) return std::bit_cast<double>(bits);
  if constexpr (T == Type::E4M3) return fp8().e4m3[bits & 0xff];
  if constexpr (T == Type::E5M2) return fp8().e5m2[bits & 0xff];
  if constexpr (T == Type::S8) return static_cast<int8_t>(bits);
  if constexpr (T == Type::U8) return static_cast<uint8_t>(bits);
  return static_cast<int32_t>(bits);
}

// The same for a type that is known when it runs.
inline double element_of(Type type, uint64_t bits) {
  switch (type) {
    case Type::F16: return element<Type::F16>(bits);
    case Type::BF16: return element<Type::BF16>(bits);
    case Type::TF32: return element<Type::TF32>(bits);
    case Type::F32: return element<Type::F32>(bits);
    case Type::F64: return element<Type::F64>(bits);
    case Type::E4M3: return element<Type::E4M3>(bits);
    case Type::E5M2: return element<Type::E5M2>(bits);
    case Type::S8: return element<Type::S8>(bits);
    case Type::U8: return element<Type::U8>(bits);
    default: return element<Type::S32>(bits);
  }
}

}  // namespace kiln::ptx
