// Tensor maps of the emulator. A GPU's are opaque (CUtensorMap); these say the same in 128 bytes of
// our own, and a kernel gets them as it would a GPU's: a parameter, or in global memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/ptx/types.h"

namespace kiln::ptx {

// As cuTensorMapEncodeTiled takes it, without interleaving: axes innermost first. An extent may be
// 0: all is then outside.
struct TensorMap {
  int rank = 0;          // 1 to 5
  Type type = Type::U8;  // of an element: U8, U16, U32, S32, U64, S64, F16, BF16, F32, F64
  uint64_t address = 0;  // a multiple of 16
  uint64_t extents[5] = {};
  uint64_t strides[5] = {};             // bytes; strides[0] is not looked at: an element
  uint32_t box[5] = {};                 // elements of the tensor, 1 to 256
  uint32_t steps[5] = {1, 1, 1, 1, 1};  // element strides, 1 to 8; steps[0] is not looked at
  uint32_t swizzle = 0;                 // bytes: 0, 32, 64, 128
  bool nan = false;                     // what is outside reads as NaN, not as 0

  uint32_t boxed(int axis) const {  // elements that a copy moves along the axis
    return axis == 0 ? box[0] : (box[axis] + steps[axis] - 1) / steps[axis];
  }
  bool operator==(const TensorMap&) const = default;
};

inline constexpr size_t kTensorMapBytes = 128;
using TensorMapBytes = std::array<std::byte, kTensorMapBytes>;

// ptx::Error naming the field if a GPU would not take it.
TensorMapBytes encode(const TensorMap& map);
// None if the bytes are no tensor map.
std::optional<TensorMap> decode_tensor_map(const std::byte* bytes);

}  // namespace kiln::ptx
