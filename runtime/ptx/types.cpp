#include "runtime/ptx/types.h"

#include <iterator>

namespace kiln::ptx {
namespace {

struct Row {
  std::string_view name;
  int bytes;
};

constexpr Row kTypes[] = {
    {"pred", 0},  {"b8", 1},     {"b16", 2},    {"b32", 4},   {"b64", 8},    {"b128", 16},
    {"u8", 1},    {"u16", 2},    {"u32", 4},    {"u64", 8},   {"s8", 1},     {"s16", 2},
    {"s32", 4},   {"s64", 8},    {"f16", 2},    {"bf16", 2},  {"f32", 4},    {"f64", 8},
    {"tf32", 4},  {"e4m3", 1},   {"e5m2", 1},   {"f16x2", 4}, {"bf16x2", 4}, {"u16x2", 4},
    {"s16x2", 4}, {"e4m3x2", 2}, {"e5m2x2", 2}, {"f32x2", 8},
};
constexpr std::string_view kSpaces[] = {"generic", "global", "shared", "local", "const", "param"};

}  // namespace

std::optional<Type> type_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypes); ++i)
    if (kTypes[i].name == name) return static_cast<Type>(i);
  return std::nullopt;
}

std::string_view name(Type type) {
  return kTypes[static_cast<size_t>(type)].name;
}

int bytes_of(Type type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

std::string_view name(Space space) {
  return kSpaces[static_cast<size_t>(space)];
}

}  // namespace kiln::ptx
