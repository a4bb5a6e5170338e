// The fundamental types of PTX.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln::ptx {

enum class Type : uint8_t {
  Pred,
  B8,
  B16,
  B32,
  B64,
  B128,
  U8,
  U16,
  U32,
  U64,
  S8,
  S16,
  S32,
  S64,
  F16,
  BF16,
  F32,
  F64,
  TF32,
  E4M3,
  E5M2,
  F16x2,
  BF16x2,
  U16x2,
  S16x2,
  E4M3x2,
  E5M2x2,
  F32x2,
};

std::optional<Type> type_named(std::string_view name);  // "f16x2"
std::string_view name(Type type);
int bytes_of(Type type);  // 0 for predicates

constexpr bool is_signed(Type type) {
  return type >= Type::S8 && type <= Type::S64;
}
constexpr bool is_unsigned(Type type) {
  return type >= Type::U8 && type <= Type::U64;
}
constexpr bool is_bits(Type type) {
  return type >= Type::B8 && type <= Type::B128;
}
constexpr bool is_integer(Type type) {
  return type >= Type::U8 && type <= Type::S64;
}
constexpr bool is_float(Type type) {
  return type >= Type::F16 && type <= Type::TF32;
}

enum class Space : uint8_t { Generic, Global, Shared, Local, Const, Param };
std::string_view name(Space space);

// Windows of the generic address space, beyond any address of the host. Shared memory begins at a
// nonzero address, as on a GPU, where the system keeps the first KiB of a block's share.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 60;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << 60;
inline constexpr uint64_t kParamWindow = uint64_t{3} << 60;
inline constexpr uint64_t kWindowMask = uint64_t{3} << 60;
inline constexpr uint64_t kSharedBase = 1024;

}  // namespace kiln::ptx
