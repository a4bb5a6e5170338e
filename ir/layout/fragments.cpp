#include "ir/layout/fragments.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "ir/error.h"
#include "ir/layout/reshape.h"

namespace kiln {
namespace {

constexpr int64_t kThreads = 32;  // of a warp

int64_t tiles(int64_t extent, int64_t tile) {
  return (extent + tile - 1) / tile;
}

// The images 1, 2, 4, … < count, times `step`, along one axis of two.
void add_powers(Images& images, int axis, int64_t step, int64_t count) {
  for (int64_t i = 1; i < count; i *= 2)
    images.push_back(axis == 0 ? Coordinate{step * i, 0} : Coordinate{0, step * i});
}

Layout accumulator_atom() {
  Atom atom;
  add_powers(atom[Resource::Reg], 1, 1, 2);
  add_powers(atom[Resource::Reg], 0, 8, 2);
  add_powers(atom[Resource::Lane], 1, 2, 4);
  add_powers(atom[Resource::Lane], 0, 1, 8);
  return Layout(2, std::move(atom));
}

// Of A over [m, k] and of B over [n, k], which differ by the eight rows more of A.
Layout operand_atom(MmaInput input, bool is_a) {
  const int64_t v = 4 / input.bytes;
  if (input.bytes < 1 || input.bytes > 4 || v * input.bytes != 4 ||
      (input.k != 4 * v && input.k != 8 * v))
    throw InternalError(fmt::format("mma: k {} of {}-byte elements", input.k, input.bytes));
  Atom atom;
  add_powers(atom[Resource::Reg], 1, 1, v);
  if (is_a) add_powers(atom[Resource::Reg], 0, 8, 2);
  add_powers(atom[Resource::Reg], 1, 4 * v, input.k / (4 * v));
  add_powers(atom[Resource::Lane], 1, v, 4);
  add_powers(atom[Resource::Lane], 0, 1, 8);
  return Layout(2, std::move(atom));
}

// Repeats the atom over [rows, columns]: registers along columns, then along rows, around `warps`.
Layout tile(const Layout& atom, int64_t rows, int64_t columns, const WarpGrid& warps, bool along_m,
            bool along_n) {
  const Coordinate size = atom.padded_shape();
  const int64_t split_rows = along_m ? warps.m : 1;
  const int64_t split_columns = along_n ? warps.n : 1;
  return atom.repeat(Resource::Reg, tiles(columns, size[1] * split_columns), 1)
      .repeat(Resource::Reg, tiles(rows, size[0] * split_rows), 0)
      .repeat(Resource::Warp, warps.m, along_m ? 0 : kNoAxis)
      .repeat(Resource::Warp, warps.n, along_n ? 1 : kNoAxis)
      .repeat(Resource::Warp, warps.copies, kNoAxis)
      .crop({rows, columns});
}

// The warps of a warpgroup under each other, the groups as the warps along m.
Layout wgmma_tile(const Layout& atom, int64_t m, int64_t columns, int64_t groups) {
  return tile(atom.repeat(Resource::Warp, 4, 0), m, columns, {groups, 1, 1}, true, false);
}

// blocked() with vectors of `vector` elements, which divides the last axis.
Layout blocked_by(const Coordinate& shape, int64_t warps, int64_t vector) {
  const int rank = static_cast<int>(shape.size());
  Layout layout(rank);
  Coordinate left = shape;  // of each axis, in units of what the layout covers
  const auto repeat = [&](Resource resource, int64_t count, int axis) {
    layout = layout.repeat(resource, count, axis);
    if (axis != kNoAxis)
      left[static_cast<size_t>(axis)] = tiles(left[static_cast<size_t>(axis)], count);
  };
  // An axis that `factor` divides, else the longest one, else none.
  const auto choose = [&](int64_t factor) {
    int longest = kNoAxis;
    for (int axis = rank; axis-- > 0;) {
      const int64_t extent = left[static_cast<size_t>(axis)];
      if (extent > 1 && extent % factor == 0) return axis;
      if (extent > 1 && (longest == kNoAxis || extent > left[static_cast<size_t>(longest)]))
        longest = axis;
    }
    return longest;
  };
  if (vector > 1) repeat(Resource::Reg, vector, rank - 1);
  for (int64_t lanes = 1; lanes < kThreads; lanes *= 2) repeat(Resource::Lane, 2, choose(2));
  for (int64_t factor = 2, rest = warps; rest > 1; ++factor)
    for (; rest % factor == 0; rest /= factor) repeat(Resource::Warp, factor, choose(factor));
  for (int axis = rank; axis-- > 0;) repeat(Resource::Reg, left[static_cast<size_t>(axis)], axis);
  return layout.crop(shape);
}

}  // namespace

WarpGrid split_warps(WarpPolicy policy, int64_t m_tiles, int64_t n_tiles, int64_t warps) {
  if (m_tiles < 1 || n_tiles < 1 || warps < 1) throw InternalError("split_warps: nothing to split");
  std::optional<WarpGrid> best;
  // Fewest copies first; then the smallest sum of a warp's rows (16 a tile) and columns (8 a tile).
  const auto cost = [&](const WarpGrid& grid) {
    return std::pair(grid.copies, m_tiles / grid.m * 16 + n_tiles / grid.n * 8);
  };
  for (int64_t m = 1; m <= warps; ++m) {
    if (warps % m != 0 || m_tiles % m != 0 || (policy == WarpPolicy::Columns && m > 1)) continue;
    for (int64_t n = 1; n <= warps / m; ++n) {
      if (warps / m % n != 0 || n_tiles % n != 0 || (policy == WarpPolicy::Rows && n > 1)) continue;
      const WarpGrid grid{m, n, warps / m / n};
      if (!best || cost(grid) <= cost(*best))
        best = grid;  // of equals, the one with more rows' warps
    }
  }
  return *best;
}

Layout mma_accumulator(int64_t m, int64_t n, const WarpGrid& warps) {
  return tile(accumulator_atom(), m, n, warps, true, true);
}

Layout mma_operand_a(int64_t m, int64_t k, MmaInput input, const WarpGrid& warps) {
  return tile(operand_atom(input, true), m, k, warps, true, false);
}

Layout mma_operand_b(int64_t k, int64_t n, MmaInput input, const WarpGrid& warps) {
  // Built over [n, k] so that the atom is that of A, with registers along n first.
  const Layout atom = operand_atom(input, false);
  const Coordinate size = atom.padded_shape();
  const Layout tiled = atom.repeat(Resource::Reg, tiles(n, size[0] * warps.n), 0)
                           .repeat(Resource::Reg, tiles(k, size[1]), 1)
                           .repeat(Resource::Warp, warps.m, kNoAxis)
                           .repeat(Resource::Warp, warps.n, 0)
                           .repeat(Resource::Warp, warps.copies, kNoAxis)
                           .crop({n, k});
  return permute_axes(tiled, {1, 0});
}

Layout wgmma_accumulator(int64_t m, int64_t n, int64_t groups) {
  return wgmma_tile(accumulator_atom(), m, n, groups);
}

Layout wgmma_operand_a(int64_t m, int64_t k, MmaInput input, int64_t groups) {
  return wgmma_tile(operand_atom(input, true), m, k, groups);
}

Layout blocked(const Coordinate& shape, int64_t warps, int bytes) {
  const auto elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const int64_t share = std::max(elements / (kThreads * warps), int64_t{4} / bytes);
  int64_t widest = 1;
  while (!shape.empty() && widest * 2 * bytes <= 16 && widest * 2 <= share &&
         shape.back() % (widest * 2) == 0)
    widest *= 2;
  for (int64_t vector = widest; vector > 0; vector /= 2) {
    Layout layout = blocked_by(shape, warps, vector);
    if (!layout.is_padded()) return layout;
  }
  return blocked_by(shape, warps, widest);
}

Layout replicated(const Coordinate& shape, int64_t warps) {
  const int rank = static_cast<int>(shape.size());
  Layout layout(rank);
  for (int axis = rank; axis-- > 0;)
    layout = layout.repeat(Resource::Reg, shape[static_cast<size_t>(axis)], axis);
  return layout.repeat(Resource::Lane, kThreads, kNoAxis).repeat(Resource::Warp, warps, kNoAxis);
}

}  // namespace kiln
