// Types of values: scalars, global tensors, tiles, and views of either.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/dtype.h"

namespace kiln {

enum class Kind : uint8_t {
  Scalar,   // one element
  Tensor,   // global memory, bound at launch; extents may be dynamic
  Tile,     // named mutable storage of static shape, on chip
  View,     // a rectangular part of a tensor or tile; reads and writes go to its base
  Channel,  // a queue of shared tiles of the type's dtype and shape
  Token,    // an asynchronous op under way
};

enum class Space : uint8_t { None, Global, Shared, Fragment, Local };

using Shape = std::vector<int64_t>;
inline constexpr int64_t kDynamic = -1;  // an extent known only at launch

// Text: `f32`, `tensor f16[?, 128]`, `shared f16[64, 64]`, `fragment f32[]`, `local f32[16]`, `view
// global f16[1, 64]`, `channel f16[128, 64]`, `token`. A fragment of rank 0 is a scalar variable.
struct Type {
  Kind kind = Kind::Scalar;
  DType dtype = I32;
  Space space = Space::None;
  Shape shape;

  static Type scalar(DType dtype) { return {Kind::Scalar, dtype, Space::None, {}}; }
  static Type tensor(DType dtype, Shape shape) {
    return {Kind::Tensor, dtype, Space::Global, std::move(shape)};
  }
  static Type tile(Space space, DType dtype, Shape shape) {
    return {Kind::Tile, dtype, space, std::move(shape)};
  }
  static Type view(Space space, DType dtype, Shape shape) {
    return {Kind::View, dtype, space, std::move(shape)};
  }
  static Type channel(DType dtype, Shape shape) {
    return {Kind::Channel, dtype, Space::None, std::move(shape)};
  }
  static Type token() { return {Kind::Token, Bool, Space::None, {}}; }
  bool is_scalar() const { return kind == Kind::Scalar; }
  bool is_storage() const {
    return kind == Kind::Tensor || kind == Kind::Tile || kind == Kind::View;
  }
  int rank() const { return static_cast<int>(shape.size()); }
  bool operator==(const Type&) const = default;
};

std::string str(const Type& type);
std::string str(const Shape& shape);  // "[64, ?]"
int64_t count(const Shape& shape);    // product of static extents; 1 for rank 0
bool is_static(const Shape& shape);
Shape without_units(const Shape& shape);  // extents of 1 dropped: how copy compares shapes

}  // namespace kiln
