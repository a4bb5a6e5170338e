#include "runtime/ptx/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/ptx/ptx.h"

namespace kiln::ptx {
namespace {

// What lies in the 128 bytes.
struct Encoded {
  uint64_t magic, address;
  uint64_t extents[5];
  uint64_t strides[4];  // of axes 1 to 4
  uint16_t box[5];
  uint8_t steps[5];
  uint8_t rank, type, swizzle, nan;
  uint32_t sum;  // of what stands before
};
static_assert(sizeof(Encoded) <= kTensorMapBytes);

constexpr uint64_t kMagic = 0x70616d7872746b01;
constexpr Type kTypes[] = {Type::U8,  Type::U16, Type::U32,  Type::S32, Type::U64,
                           Type::S64, Type::F16, Type::BF16, Type::F32, Type::F64};

uint32_t sum_of(const Encoded& encoded) {
  uint32_t sum = 2166136261;  // FNV-1a
  std::byte bytes[offsetof(Encoded, sum)];
  std::memcpy(bytes, &encoded, sizeof bytes);
  for (std::byte each : bytes) sum = (sum ^ static_cast<uint32_t>(each)) * 16777619;
  return sum;
}

void expect(bool holds, std::string_view field, uint64_t got, std::string_view expected) {
  if (!holds) throw Error(fmt::format("tensor map: {}: expected {}, got {}", field, expected, got));
}

void check(const TensorMap& map) {
  expect(map.rank >= 1 && map.rank <= 5, "rank", static_cast<uint64_t>(map.rank), "1 to 5");
  expect(std::find(std::begin(kTypes), std::end(kTypes), map.type) != std::end(kTypes), "type",
         static_cast<uint64_t>(map.type), "a type of tensor maps");
  expect(map.address % 16 == 0, "address", map.address, "a multiple of 16");
  const auto size = static_cast<uint64_t>(bytes_of(map.type));
  for (int axis = 0; axis < map.rank; ++axis) {
    const std::string at = fmt::format("[{}]", axis);
    expect(map.extents[axis] <= uint64_t{1} << 32, "extents" + at, map.extents[axis], "up to 2^32");
    expect(map.box[axis] >= 1 && map.box[axis] <= 256, "box" + at, map.box[axis], "1 to 256");
    expect(map.steps[axis] >= 1 && map.steps[axis] <= 8, "steps" + at, map.steps[axis], "1 to 8");
    if (axis == 0) continue;
    expect(map.strides[axis] % 16 == 0 && map.strides[axis] < uint64_t{1} << 40, "strides" + at,
           map.strides[axis], "a multiple of 16 under 2^40");
  }
  const uint64_t row = map.box[0] * size;
  expect(row % 16 == 0, "box[0]", map.box[0], "a multiple of 16 bytes");
  expect(map.swizzle == 0 || map.swizzle == 32 || map.swizzle == 64 || map.swizzle == 128,
         "swizzle", map.swizzle, "0, 32, 64 or 128");
  expect(map.swizzle == 0 || row <= map.swizzle, "box[0]", map.box[0],
         fmt::format("no more than the swizzle's {} bytes", map.swizzle));
  expect(!map.nan || is_float(map.type), "nan", 1, "a type of floating-point numbers");
}

}  // namespace

TensorMapBytes encode(const TensorMap& map) {
  check(map);
  Encoded encoded{};
  encoded.magic = kMagic;
  encoded.address = map.address;
  for (int axis = 0; axis < 5; ++axis) {
    const bool used = axis < map.rank;
    encoded.extents[axis] = used ? map.extents[axis] : 1;
    if (axis > 0) encoded.strides[axis - 1] = used ? map.strides[axis] : 0;
    encoded.box[axis] = static_cast<uint16_t>(used ? map.box[axis] : 1);
    encoded.steps[axis] = static_cast<uint8_t>(used ? map.steps[axis] : 1);
  }
  encoded.rank = static_cast<uint8_t>(map.rank);
  encoded.type = static_cast<uint8_t>(map.type);
  encoded.swizzle = static_cast<uint8_t>(map.swizzle);
  encoded.nan = map.nan;
  encoded.sum = sum_of(encoded);
  TensorMapBytes bytes{};
  std::memcpy(bytes.data(), &encoded, sizeof encoded);
  return bytes;
}

std::optional<TensorMap> decode_tensor_map(const std::byte* bytes) {
  Encoded encoded;
  std::memcpy(&encoded, bytes, sizeof encoded);
  if (encoded.magic != kMagic || encoded.sum != sum_of(encoded)) return std::nullopt;
  TensorMap map;
  map.rank = encoded.rank;
  map.type = static_cast<Type>(encoded.type);
  map.address = encoded.address;
  for (int axis = 0; axis < std::min<int>(encoded.rank, 5); ++axis) {
    map.extents[axis] = encoded.extents[axis];
    map.strides[axis] = axis > 0 ? encoded.strides[axis - 1] : 0;
    map.box[axis] = encoded.box[axis];
    map.steps[axis] = encoded.steps[axis];
  }
  map.swizzle = encoded.swizzle;
  map.nan = encoded.nan != 0;
  try {
    check(map);
  } catch (const Error&) {
    return std::nullopt;
  }
  return map;
}

}  // namespace kiln::ptx
