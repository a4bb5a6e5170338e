#include <random>

#include "ir/error.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;

namespace {

// The example of layout.h: mma's m16n8 accumulator, five times along columns.
Layout example() {
  Atom atom;
  atom[Resource::Reg] = {{0, 1}, {8, 0}};
  atom[Resource::Lane] = {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}};
  return Layout(2, atom).repeat(Resource::Reg, 5, 1);
}

// An invertible map of axis bits to register, lane and warp bits, some images zero, then repeats.
Layout random_layout(std::mt19937& random) {
  const int rank = 1 + static_cast<int>(random() % 3);
  Coordinate bits(static_cast<size_t>(rank));
  Images basis;  // unit coordinates; mixed below, which keeps them a basis
  for (int axis = 0; axis < rank; ++axis)
    for (int64_t bit = 1; bit < int64_t{1} << random() % 3; bit *= 2) {
      Coordinate unit(static_cast<size_t>(rank), 0);
      unit[static_cast<size_t>(axis)] = bit;
      basis.push_back(unit);
    }
  for (size_t i = 0; i < basis.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (random() % 4 == 0)
        for (size_t axis = 0; axis < basis[i].size(); ++axis) basis[i][axis] ^= basis[j][axis];
  const size_t copies = random() % 2;
  for (size_t i = 0; i < copies; ++i)
    basis.push_back(random() % 2 || basis.empty() ? Coordinate(static_cast<size_t>(rank), 0)
                                                  : basis[0]);
  std::shuffle(basis.begin(), basis.end(), random);
  Atom atom;
  for (const Coordinate& image : basis) atom.images[random() % 3].push_back(image);
  Layout layout(rank, atom);
  for (size_t digits = random() % 3; digits > 0; --digits)
    layout = layout.repeat(random() % 2 ? Resource::Reg : Resource::Warp,
                           1 + static_cast<int64_t>(random() % 6),
                           static_cast<int>(random() % static_cast<unsigned>(rank + 1)) - 1);
  Coordinate shape = layout.padded_shape();
  for (int64_t& extent : shape)
    if (extent > 1 && random() % 3 == 0) --extent;
  return layout.crop(shape);
}

}  // namespace

TEST_CASE("layout: the table of layout.h") {
  const Layout layout = example();
  CHECK(layout.shape() == Coordinate{16, 40});
  CHECK(layout.registers() == 20);
  const struct {
    int64_t lane, reg;
    Coordinate element;
  } table[] = {{0, 0, {0, 0}},  {0, 1, {0, 1}},   {0, 2, {8, 0}},   {0, 3, {8, 1}},
               {0, 4, {0, 8}},  {0, 5, {0, 9}},   {0, 19, {8, 33}}, {1, 0, {0, 2}},
               {1, 4, {0, 10}}, {1, 19, {8, 35}}, {4, 2, {9, 0}},   {4, 19, {9, 33}},
               {31, 0, {7, 6}}, {31, 2, {15, 6}}, {31, 5, {7, 15}}, {31, 19, {15, 39}},
               {13, 0, {3, 2}}};
  for (const auto& row : table)
    CHECK(layout.coordinate({.reg = row.reg, .lane = row.lane}) == row.element);
  CHECK(layout.owners({3, 2}) == std::vector<Owner>{{.reg = 0, .lane = 13}});
  CHECK(str(layout) ==
        "layout (16, 40): reg 20 lane 32\n"
        "  axis 0 = reg/2%2*8 ^ lane/4%8\n"
        "  axis 1 = reg%2 ^ lane%4*2 + reg/4%5*8");
  check_post_conditions(layout);
}

TEST_CASE("layout: random layouts have their post-conditions") {
  const unsigned seed = 20260101;
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) check_post_conditions(random_layout(random));
}

TEST_CASE("layout: equal functions are equal layouts, whatever they were built from") {
  const Layout start(2);
  const Layout by_bits = start.repeat(Resource::Reg, 2, 1).repeat(Resource::Reg, 2, 1);
  CHECK(by_bits == start.repeat(Resource::Reg, 4, 1));
  CHECK(start.repeat(Resource::Reg, 2, 1).repeat(Resource::Reg, 3, 1) ==
        start.repeat(Resource::Reg, 6, 1));
  CHECK(start.repeat(Resource::Reg, 3, 1).repeat(Resource::Reg, 2, 1) ==
        start.repeat(Resource::Reg, 6, 1));
  CHECK(start.repeat(Resource::Reg, 5, 0).repeat(Resource::Warp, 4, kNoAxis) ==
        start.repeat(Resource::Warp, 4, kNoAxis).repeat(Resource::Reg, 5, 0));
  CHECK(start.repeat(Resource::Reg, 4, 1) != start.repeat(Resource::Reg, 4, 0));
  CHECK(start.repeat(Resource::Reg, 4, 1) != start.repeat(Resource::Warp, 4, 1));
  CHECK(start.repeat(Resource::Reg, 4, 1) != start.repeat(Resource::Reg, 4, 1).crop({1, 3}));
}

TEST_CASE("layout: random layouts are equal exactly when their functions are") {
  const unsigned seed = 7;
  std::mt19937 random(seed);
  std::vector<Layout> layouts;
  for (int i = 0; i < 150; ++i) layouts.push_back(random_layout(random));
  const auto table = [](const Layout& layout) {
    std::vector<std::pair<Owner, Coordinate>> entries;
    for_each_place(layout, [&](const Owner& o) { entries.emplace_back(o, layout.coordinate(o)); });
    return std::pair(layout.shape(), entries);
  };
  int equal = 0;
  for (size_t i = 0; i < layouts.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const bool same = table(layouts[i]) == table(layouts[j]);
      equal += same;
      CHECK_ALL((layouts[i] == layouts[j]) == same);
    }
  CHECK(equal > 0);
}

TEST_CASE("layout: copies and padding") {
  const Layout copies = example().repeat(Resource::Warp, 3, kNoAxis).crop({16, 37});
  CHECK(copies.replication() == 3);
  CHECK_FALSE(copies.is_injective());
  CHECK(copies.is_padded());
  CHECK(copies.padded_shape() == Coordinate{16, 40});
  CHECK(copies.contains({15, 36}));
  CHECK_FALSE(copies.contains({15, 37}));
  CHECK(copies.owners({0, 0}).size() == 3);
  check_post_conditions(copies);
}

TEST_CASE("layout: gaps of a pitch hold nothing") {
  const Layout rows =
      Layout(2).repeat(Resource::Offset, 6, 1).with_pitch(7).repeat(Resource::Offset, 3, 0);
  CHECK(rows.holds({.offset = 5}));
  CHECK_FALSE(rows.holds({.offset = 6}));
  CHECK(rows.coordinate({.offset = 7}) == Coordinate{1, 0});
  CHECK_THROWS_AS(rows.coordinate({.offset = 6}), InternalError);
  CHECK_THROWS_AS(coordinate_formula(rows, 0), InternalError);
  check_post_conditions(rows);
}

TEST_CASE("layout: what breaks the law is a defect") {
  Atom diagonal;  // (1, 1) alone does not cover the 2 x 2 box
  diagonal[Resource::Reg] = {{1, 1}};
  CHECK_THROWS_AS(Layout(2, diagonal), InternalError);
  Layout::Parts parts = example().parts();
  parts.digits[0].axis_stride = 4;  // overlaps the atom
  CHECK_THROWS_AS(Layout(parts), InternalError);
  parts = example().parts();
  parts.digits[0].stride = 5;  // a gap in the registers
  CHECK_THROWS_AS(Layout(parts), InternalError);
  CHECK_THROWS_AS(example().crop({16, 41}), InternalError);
  CHECK_THROWS_AS(example().crop({16, 0}), InternalError);
  CHECK_THROWS_AS(example().crop({16}), InternalError);
  CHECK_THROWS_AS(example().repeat(Resource::Lane, 3, 0), InternalError);
  CHECK_THROWS_AS(example().repeat(Resource::Reg, 0, 0), InternalError);
  CHECK_THROWS_AS(example().coordinate({.reg = 20}), InternalError);
  CHECK_THROWS_AS(example().owners({16, 0}), InternalError);
}

TEST_CASE("layout: a scalar is a tile of rank 0 that all threads hold") {
  const Layout scalar =
      Layout(0).repeat(Resource::Lane, 32, kNoAxis).repeat(Resource::Warp, 6, kNoAxis);
  CHECK(scalar.replication() == 192);
  CHECK(scalar.owners({}).size() == 192);
  check_post_conditions(scalar);
}
