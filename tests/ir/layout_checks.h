// The post-conditions of a layout, checked on every place and every element.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <vector>

#include "ir/layout/formula.h"
#include "ir/layout/layout.h"

namespace kiln {

inline void for_each_coordinate(const Coordinate& shape,
                                const std::function<void(const Coordinate&)>& visit) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  for (int64_t i = 0; i < count; ++i) {
    Coordinate c(shape.size());
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0; rest /= shape[axis]) c[axis] = rest % shape[axis];
    visit(c);
  }
}

inline void for_each_place(const Layout& layout, const std::function<void(const Owner&)>& visit) {
  Owner o;
  for (o.warp = 0; o.warp < layout.warps(); ++o.warp)
    for (o.lane = 0; o.lane < layout.extent(Resource::Lane); ++o.lane)
      for (o.reg = 0; o.reg < layout.registers(); ++o.reg)
        for (o.offset = 0; o.offset < layout.extent(Resource::Offset); ++o.offset) visit(o);
}

// Does `actual` hold without a Catch assertion for each of a million points?
#define CHECK_ALL(condition)            \
  do {                                  \
    if (!(condition)) CHECK(condition); \
  } while (false)

// Each element of the padded tile has exactly replication() places; owners, owner and formulas
// agree with coordinate; every place holds one element, or is a gap of Offset.
inline void check_post_conditions(const Layout& layout) {
  INFO(str(layout));
  std::map<Coordinate, std::vector<Owner>> places;
  const bool by_offset = layout.extent(Resource::Offset) > 1;
  std::vector<Formula> formulas;
  for (int axis = 0; !by_offset && axis < layout.rank(); ++axis)
    formulas.push_back(coordinate_formula(layout, axis));
  for_each_place(layout, [&](const Owner& owner) {
    if (!layout.holds(owner)) {
      CHECK_ALL(by_offset);
      return;
    }
    const Coordinate c = layout.coordinate(owner);
    places[c].push_back(owner);
    for (size_t axis = 0; axis < formulas.size(); ++axis)
      CHECK_ALL(formulas[axis](owner) == c[axis]);
  });
  std::vector<Formula> owner_formulas;
  for (const Resource resource : kResources)
    owner_formulas.push_back(owner_formula(layout, resource));
  size_t elements = 0;
  for_each_coordinate(layout.padded_shape(), [&](const Coordinate& c) {
    ++elements;
    std::vector<Owner>& expected = places[c];
    std::sort(expected.begin(), expected.end());
    CHECK_ALL(layout.owners(c) == expected);
    CHECK_ALL(static_cast<int64_t>(expected.size()) == layout.replication());
    Owner by_formula;
    for (const Resource resource : kResources)
      by_formula[resource] = owner_formulas[static_cast<size_t>(resource)](c);
    CHECK_ALL(std::count(expected.begin(), expected.end(), by_formula) == 1);
  });
  CHECK(places.size() == elements);  // no place outside the padded tile
}

}  // namespace kiln
