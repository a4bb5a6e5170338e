// What compiled code is told at launch, the same for every backend and stable across processes:
// slots name the kernel's interface, not values of one lowered kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// How a tensor-map copy (TMA) goes through a tensor: the rest of the map, its address, extents and
// strides, is known at launch. The shared side is rows of a panel, `panel` columns wide and
// swizzled over all its bytes (128, 64 or 32), as swizzled() of ir/layout/shared.h lays them.
//
// Axes of the map, innermost first (PTX ISA, "Tensor Data Movement"; at most five):
//     by_panels       columns of a panel, second to last axis, panels, …, first axis
//     not by_panels   last axis, second to last, …, first axis
// by_panels needs the tensor's last extent to be a multiple of `panel`; one copy then moves all
// panels of a box. Elements outside the tensor read as zero and are not written.
struct TensorMap {
  std::vector<int64_t> box;  // extents by axis of the tensor; last: columns, a multiple of `panel`
  int64_t panel = 0;         // columns
  bool by_panels = false;
  bool operator==(const TensorMap&) const = default;
};

// One launch argument. Maps come first and take 128 bytes, aligned to 64; the others are 64 bits: a
// tensor's address or one stride (elements), a dim (sign-extended) or a param (its bits,
// zero-extended). Scalars computed at top level are computed again in the code.
struct Slot {
  enum class Kind : uint8_t { Pointer, Stride, Dim, Param, Map };
  Kind kind;
  std::string name;
  int axis = 0;        // of a Stride
  TensorMap map = {};  // of a Map
  bool operator==(const Slot&) const = default;
};
inline constexpr size_t kTensorMapBytes = 128, kTensorMapAlignment = 64;

// The slots of one launch of a kernel: what its region (and the top-level scalars that it uses)
// needs: a map for each way that its asynchronous copies go through a tensor, in the order of the
// ops; then in the order of the interface, of each tensor the pointer, then all strides but the
// last.
std::vector<Slot> slots_of(const Kernel& kernel, const Op& launch);

}  // namespace kiln
