#include "ir/layout/shared.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"

namespace kiln {
namespace {

constexpr int64_t kChunk = 16;    // bytes that move together
constexpr int64_t kRows = 8;      // of a swizzle pattern
constexpr int64_t kWidest = 128;  // bytes of a panel

void check_panel(int panel) {
  if (panel != 128 && panel != 64 && panel != 32)
    throw InternalError(fmt::format("shared layout: panels of {} bytes", panel));
}

// Repeats by Offset along the axes before the last `inner` ones, the later ones faster.
Layout repeat_leading(Layout layout, const Coordinate& shape, size_t inner) {
  for (size_t axis = shape.size() - inner; axis-- > 0;)
    layout = layout.repeat(Resource::Offset, shape[axis], static_cast<int>(axis));
  return layout;
}

// Panels of `panel` bytes; of `rows` rows, where[address] is what lies at an address.
template <class Where>
Layout in_panels(const Coordinate& shape, int bytes, int64_t panel, int64_t rows, Where&& where) {
  if (shape.size() < 2) throw InternalError("shared layout: a swizzled tile has rows and columns");
  const size_t rank = shape.size();
  const int row = static_cast<int>(rank) - 2, column = row + 1;
  Atom atom;
  for (int64_t address = bytes; address < rows * panel; address *= 2) {
    const int64_t linear = where(address);
    Coordinate image(rank, 0);
    image[rank - 2] = linear / panel;
    image[rank - 1] = linear % panel / bytes;
    atom[Resource::Offset].push_back(std::move(image));
  }
  const int64_t width = panel / bytes;
  const Layout tile = Layout(static_cast<int>(rank), std::move(atom))
                          .repeat(Resource::Offset, (shape[rank - 2] + rows - 1) / rows, row)
                          .repeat(Resource::Offset, (shape[rank - 1] + width - 1) / width, column);
  return repeat_leading(tile, shape, 2).crop(shape);
}

}  // namespace

Layout row_major(const Coordinate& shape, int64_t pitch) {
  if (shape.empty()) return Layout(0);
  const int last = static_cast<int>(shape.size()) - 1;
  const Layout row = Layout(last + 1).repeat(Resource::Offset, shape.back(), last);
  return repeat_leading(row.with_pitch(pitch), shape, 1);
}

Layout row_major(const Coordinate& shape) {
  return row_major(shape, shape.empty() ? 1 : shape.back());
}

int64_t padded_pitch(int64_t columns, int bytes) {
  int64_t chunks = (columns * bytes + kChunk - 1) / kChunk;
  if (chunks % 2 == 0) ++chunks;
  return chunks * kChunk / bytes;
}

int panel_bytes(int64_t columns, int bytes) {
  for (const int panel : {128, 64, 32})
    if (columns * bytes % panel == 0) return panel;
  return 0;
}

int64_t swizzle_alignment(int panel) {
  check_panel(panel);
  return kRows * panel;
}

int64_t swizzle_address(int64_t address, int panel) {
  check_panel(panel);
  return address ^ ((address / 128) % (panel / kChunk)) * kChunk;
}

Layout swizzled(const Coordinate& shape, int bytes, int panel) {
  check_panel(panel);
  return in_panels(shape, bytes, panel, kRows,
                   [&](int64_t address) { return swizzle_address(address, panel); });
}

Layout swizzled_by(const Coordinate& shape, int bytes, const std::array<int, 3>& row_bits) {
  const int most = std::max(2, *std::max_element(row_bits.begin(), row_bits.end()));
  return in_panels(shape, bytes, kWidest, int64_t{2} << most, [&](int64_t address) {
    int64_t flips = 0;
    for (size_t bit = 0; bit < row_bits.size(); ++bit)
      flips |= (address / kWidest >> row_bits[bit] & 1) << bit;
    return address ^ flips * kChunk;
  });
}

Layout shared_tile(const Coordinate& shape, int bytes) {
  if (shape.size() < 2) return row_major(shape);
  const bool fills = shape[shape.size() - 2] >= kRows;
  const int panel = fills ? panel_bytes(shape.back(), bytes) : 0;
  return panel ? swizzled(shape, bytes, panel)
               : row_major(shape, padded_pitch(shape.back(), bytes));
}

}  // namespace kiln
