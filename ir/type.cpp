#include "ir/type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace kiln {

std::string str(const Shape& shape) {
  std::vector<std::string> extents;
  for (int64_t extent : shape) extents.push_back(extent == kDynamic ? "?" : std::to_string(extent));
  return fmt::format("[{}]", fmt::join(extents, ", "));
}

static std::string_view name(Space space) {
  switch (space) {
    case Space::Global: return "global";
    case Space::Shared: return "shared";
    case Space::Fragment: return "fragment";
    case Space::Local: return "local";
    case Space::None: break;
  }
  return "none";
}

std::string str(const Type& type) {
  switch (type.kind) {
    case Kind::Scalar: return std::string(name(type.dtype));
    case Kind::Tensor: return fmt::format("tensor {}{}", name(type.dtype), str(type.shape));
    case Kind::Tile:
      return fmt::format("{} {}{}", name(type.space), name(type.dtype), str(type.shape));
    case Kind::View:
      return fmt::format("view {} {}{}", name(type.space), name(type.dtype), str(type.shape));
    case Kind::Channel: return fmt::format("channel {}{}", name(type.dtype), str(type.shape));
    case Kind::Token: return "token";
  }
  return "";
}

int64_t count(const Shape& shape) {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

bool is_static(const Shape& shape) {
  for (int64_t extent : shape)
    if (extent == kDynamic) return false;
  return true;
}

Shape without_units(const Shape& shape) {
  Shape kept;
  for (int64_t extent : shape)
    if (extent != 1) kept.push_back(extent);
  return kept;
}

}  // namespace kiln
