// A tensor bound at launch: where it is and how it is laid out.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace kiln {

class Device;  // runtime/device.h

// Strides are in elements; the last is 1 unless that extent is at most 1. Any other stride is
// legal, 0 (broadcast) and negative included. Does not own `data`.
struct Memory {
  void* data = nullptr;
  DType dtype = F32;
  Shape shape;
  Shape strides;
  // Whose memory it is, for callers who keep book: a call on another device is then refused. Null:
  // not said.
  const Device* device = nullptr;

  static Memory contiguous(void* data, DType dtype, Shape shape) {
    Shape strides(shape.size(), 1);
    for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
    return {data, dtype, std::move(shape), std::move(strides)};
  }
};

}  // namespace kiln
