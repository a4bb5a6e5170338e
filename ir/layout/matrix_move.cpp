#include "ir/layout/matrix_move.h"

#include <algorithm>
#include <bit>

#include "ir/layout/reshape.h"

namespace kiln {
namespace {

constexpr int64_t kRowBytes = 16;

// Is `image` the step `value` along `axis` alone?
bool steps(const Coordinate& image, size_t axis, int64_t value) {
  for (size_t a = 0; a < image.size(); ++a)
    if (image[a] != (a == axis ? value : 0)) return false;
  return true;
}

// The images of the bits of i, the row within a matrix, and of the bits of a register that are left
// when a 32-bit register counts as one.
struct Spread {
  Images rows;
  Images registers;
};

// Four lanes times the elements of a 32-bit register span the chunk.
std::optional<Spread> plain(const Atom& atom, size_t axis, int64_t chunk) {
  const Images& registers = atom[Resource::Reg];
  const Images& lanes = atom[Resource::Lane];
  const int64_t packed = chunk / 4;  // elements of a 32-bit register
  const auto bits = static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(packed)));
  if (registers.size() < bits) return std::nullopt;
  for (size_t bit = 0; bit < bits; ++bit)
    if (!steps(registers[bit], axis, int64_t{1} << bit)) return std::nullopt;
  if (!steps(lanes[0], axis, packed) || !steps(lanes[1], axis, 2 * packed)) return std::nullopt;
  return Spread{{lanes[2], lanes[3], lanes[4]},
                {registers.begin() + static_cast<std::ptrdiff_t>(bits), registers.end()}};
}

// Eight lanes, four apart, span the chunk of eight 16-bit elements.
std::optional<Spread> transposed(const Atom& atom, size_t axis) {
  const Images& registers = atom[Resource::Reg];
  const Images& lanes = atom[Resource::Lane];
  if (registers.empty()) return std::nullopt;
  for (size_t bit = 0; bit < 3; ++bit)
    if (!steps(lanes[2 + bit], axis, int64_t{1} << bit)) return std::nullopt;
  return Spread{{registers[0], lanes[0], lanes[1]}, {registers.begin() + 1, registers.end()}};
}

// No row, register or warp may move within a chunk, so that each row is one whole chunk.
bool keeps_chunks(const Spread& spread, const Atom& atom, size_t axis, int64_t chunk) {
  for (const Images* images : {&spread.rows, &spread.registers, &atom[Resource::Warp]})
    for (const Coordinate& image : *images)
      if (image[axis] % chunk != 0) return false;
  return true;
}

// Lanes get the images of i and then those of j; the instruction those of the registers above j.
Layout row_layout(const Layout& fragment, const Spread& spread, size_t axis, int64_t chunk,
                  size_t matrix_bits) {
  Layout::Parts parts = fragment.parts();
  const size_t moved =
      fragment.atom()[Resource::Reg].size() - spread.registers.size() + matrix_bits;
  const auto first_instruction =
      spread.registers.begin() + static_cast<std::ptrdiff_t>(matrix_bits);
  Images lanes = spread.rows;
  lanes.insert(lanes.end(), spread.registers.begin(), first_instruction);
  lanes.resize(5, Coordinate(parts.shape.size(), 0));
  parts.atom[Resource::Lane] = std::move(lanes);
  parts.atom[Resource::Reg] = Images(first_instruction, spread.registers.end());

  parts.extents[static_cast<size_t>(Resource::Reg)] >>= moved;
  for (Digit& digit : parts.digits) {
    if (digit.resource == Resource::Reg) digit.stride >>= moved;
    if (static_cast<size_t>(digit.axis) == axis) digit.axis_stride /= chunk;
  }
  for (Images& images : parts.atom.images)
    for (Coordinate& image : images) image[axis] /= chunk;
  parts.shape[axis] /= chunk;
  return Layout(std::move(parts));
}

}  // namespace

std::optional<MatrixMove> plan_matrix_move(const Layout& fragment, const Layout& shared,
                                           int bytes) {
  if (bytes > 4 || fragment.atom()[Resource::Lane].size() != 5) return std::nullopt;
  const Coordinate moved = fragment.padded_shape(), stored = shared.padded_shape();
  for (size_t a = 0; a < moved.size(); ++a)
    if (moved[a] > stored.at(a)) return std::nullopt;
  const int64_t chunk = kRowBytes / bytes;
  for (int axis = 0; axis < fragment.rank(); ++axis) {
    const auto a = static_cast<size_t>(axis);
    if (vector_width(shared, axis) % chunk != 0 || fragment.shape()[a] % chunk != 0) continue;
    for (const bool trans : {false, true}) {
      if (trans && bytes != 2) continue;
      const auto spread = trans ? transposed(fragment.atom(), a) : plain(fragment.atom(), a, chunk);
      if (!spread || !keeps_chunks(*spread, fragment.atom(), a, chunk)) continue;
      const size_t matrix_bits = std::min<size_t>(2, spread->registers.size());
      return MatrixMove{axis, 1 << matrix_bits, trans,
                        row_layout(fragment, *spread, a, chunk, matrix_bits)};
    }
  }
  return std::nullopt;
}

}  // namespace kiln
