#include "runtime/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"

namespace kiln {
namespace {

// What every driver and GPU takes (cuTensorMapEncodeTiled).
constexpr int64_t kMostBox = 256;
constexpr int64_t kUnit = 16;  // bytes: what addresses and strides are multiples of
constexpr int64_t kStrideEnd = int64_t{1} << 40;

constexpr const char* kNeeds = "asynchronous copies by tensor maps (TMA) need it";

}  // namespace

void MapAxes::add(int64_t extent, int64_t stride_bytes, int64_t of_box) {
  if (rank > 0) strides[rank - 1] = static_cast<uint64_t>(stride_bytes);
  extents[rank] = static_cast<uint64_t>(extent);
  box[rank++] = static_cast<unsigned>(of_box);
}

bool is_empty(const Memory& tensor) {
  return std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
}

MapAxes map_axes(const TensorMap& map, const Memory& tensor) {
  const auto size = static_cast<int64_t>(size_of(tensor.dtype));
  const size_t last = tensor.shape.size() - 1;
  const bool empty = is_empty(tensor);
  const auto extent = [&](size_t axis) { return empty ? 1 : tensor.shape[axis]; };
  MapAxes axes;
  axes.add(empty ? 1 : map.by_panels ? map.panel : extent(last), 0, map.panel);
  const auto add_panels = [&] {
    if (map.by_panels)
      axes.add(empty ? 1 : extent(last) / map.panel, map.panel * size, map.box[last] / map.panel);
  };
  if (last == 0) add_panels();
  for (size_t axis = last; axis-- > 0;) {
    // The stride of an axis of extent 1 says nothing, so it may be anything.
    axes.add(extent(axis), extent(axis) == 1 ? kUnit : tensor.strides[axis] * size, map.box[axis]);
    if (axis + 1 == last) add_panels();
  }
  return axes;
}

void check_map(const std::string& text, DType dtype, size_t rank, const TensorMap& map) {
  if (map.box.size() != rank || rank == 0 || map.panel <= 0 || map.box.back() % map.panel != 0)
    throw InternalError(fmt::format("{}: a tensor map that is not of the tensor", text));
  const int64_t row = map.panel * static_cast<int64_t>(size_of(dtype));
  if (row != 32 && row != 64 && row != 128)
    throw InternalError(fmt::format("{}: a tensor map with panels of {} bytes", text, row));
  const size_t axes = rank + map.by_panels;
  if (axes > kMostMapAxes)
    throw UserError(
        fmt::format("{}: expected a tensor of at most {} axes for copies by tensor maps (TMA) of "
                    "{} columns, got {}",
                    text, kMostMapAxes - map.by_panels, map.box.back(), rank),
        "join axes that lie one behind the other, or copy fewer columns");
  for (size_t axis = 0; axis < rank; ++axis) {
    const bool last = axis + 1 == rank;
    const int64_t limit = last && map.by_panels ? kMostBox * map.panel : kMostBox;
    if (map.box[axis] < 1 || map.box[axis] > limit)
      throw UserError(fmt::format("{}: axis {}: expected a copy by tensor maps (TMA) of 1 to {} "
                                  "elements, got {}",
                                  text, axis, limit, map.box[axis]),
                      "copy it in parts");
  }
}

void check_mapped(const std::string& text, DType dtype, const TensorMap& map,
                  const Memory& tensor) {
  const size_t rank = map.box.size();
  const auto size = static_cast<int64_t>(size_of(dtype));
  if (reinterpret_cast<uintptr_t>(tensor.data) % kUnit != 0)
    throw UserError(
        fmt::format("{}: expected an address that is a multiple of {} bytes, got {}", text, kUnit,
                    tensor.data),
        fmt::format("{}: begin a view at a multiple of {} elements", kNeeds, kUnit / size));
  for (size_t axis = 0; axis + 1 < rank; ++axis) {
    const int64_t stride = tensor.strides[axis];
    if (tensor.shape[axis] == 1) continue;
    if (stride % (kUnit / size) != 0)
      throw UserError(
          fmt::format("{}: axis {}: expected a stride that is a multiple of {} bytes, got {} "
                      "elements of {}, {} bytes",
                      text, axis, kUnit, stride, kiln::name(dtype), stride * size),
          fmt::format("{}: pad the rows to a multiple of {} elements", kNeeds, kUnit / size));
    if (stride < 0 || stride >= kStrideEnd / size)
      throw UserError(fmt::format("{}: axis {}: expected a stride of 0 to 2^40 bytes, got {} "
                                  "elements of {}",
                                  text, axis, stride, kiln::name(dtype)),
                      fmt::format("{}: copy the tensor to one that lies in order", kNeeds));
  }
  if (const int64_t columns = tensor.shape.back(); map.by_panels && columns % map.panel != 0)
    throw UserError(
        fmt::format("{}: axis {}: expected an extent that is a multiple of {}, got {}", text,
                    rank - 1, map.panel, columns),
        fmt::format("{}: pad the rows to a multiple of {} elements", kNeeds, map.panel));
}

}  // namespace kiln
