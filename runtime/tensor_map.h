// How a tensor lies for copies by tensor maps (TMA), whoever makes the map: the driver for a GPU,
// or the emulator.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "codegen/abi.h"
#include "ir/memory.h"

namespace kiln {

inline constexpr size_t kMostMapAxes = 5;

// The axes of a map, innermost first; strides[i], in bytes, is that of axis i + 1.
struct MapAxes {
  unsigned rank = 0;
  std::array<uint64_t, kMostMapAxes> extents = {}, strides = {};
  std::array<unsigned, kMostMapAxes> box = {};

  void add(int64_t extent, int64_t stride_bytes, int64_t of_box);
};

bool is_empty(const Memory& tensor);
// Of an empty tensor all extents are 1.
MapAxes map_axes(const TensorMap& map, const Memory& tensor);

// `text` names kernel and tensor: "attention: q". UserError if no map has so many axes or so large
// a box.
void check_map(const std::string& text, DType dtype, size_t rank, const TensorMap& map);
// UserError naming the axis, what was expected and what came, if TMA cannot go through the tensor:
// where it lies, its strides, a last extent that no panels fill.
void check_mapped(const std::string& text, DType dtype, const TensorMap& map, const Memory& tensor);

}  // namespace kiln
