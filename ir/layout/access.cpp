#include "ir/layout/access.h"

#include <algorithm>
#include <bit>

#include "ir/error.h"
#include "ir/layout/banks.h"
#include "ir/layout/formula.h"
#include "ir/layout/reshape.h"

namespace kiln {
namespace {

// A term of the offset, and what the threads alone make of the axis that it reads.
struct TermUse {
  Term term;
  bool exclusive;             // combined by exclusive or, else by sum
  int64_t bits = 0;           // all bits that any thread sets
  int64_t largest_below = 0;  // the largest value % divisor

  void add_thread(int64_t t) {
    bits |= t;
    largest_below = std::max(largest_below, t % term.divisor);
  }
  // The register's part of the axis is a constant c, the thread's t, the coordinate c + t. Is the
  // term of c + t the term of c and the term of t combined? It is if nothing carries into it; a
  // carry out of it is one into the next term, and there is none out of the tile.
  bool splits(int64_t c) const {
    if (exclusive) return (c & bits & (term.divisor * term.extent - 1)) == 0;
    return c % term.divisor + largest_below < term.divisor;
  }
};

// Do the images of registers and of threads have no bit in common, so that they add up?
bool registers_add(const Layout& fragment) {
  for (int axis = 0; axis < fragment.rank(); ++axis) {
    int64_t registers = 0, threads = 0;
    for (const Resource resource : kResources)
      for (const Coordinate& image : fragment.atom()[resource])
        (resource == Resource::Reg ? registers : threads) |= image[static_cast<size_t>(axis)];
    if (registers & threads) return false;
  }
  return true;
}

std::vector<TermUse> term_uses(const Formula& offset, const Layout& fragment) {
  std::vector<TermUse> uses;
  for (const Term& term : offset.atom) uses.push_back({term, !offset.is_sum()});
  for (const Term& term : offset.digits) uses.push_back({term, false});
  for (int64_t warp = 0; warp < fragment.warps(); ++warp)
    for (int64_t lane = 0; lane < fragment.extent(Resource::Lane); ++lane) {
      const Coordinate t = fragment.coordinate({.lane = lane, .warp = warp});
      for (TermUse& use : uses) use.add_thread(t[static_cast<size_t>(use.term.source)]);
    }
  return uses;
}

}  // namespace

std::optional<std::vector<OffsetStep>> offset_steps(const Layout& fragment, const Layout& shared) {
  const Coordinate needed = fragment.padded_shape(), stored = shared.padded_shape();
  for (size_t axis = 0; axis < needed.size(); ++axis)
    if (needed[axis] > stored.at(axis)) return std::nullopt;
  if (!shared.is_injective() || !registers_add(fragment)) return std::nullopt;

  // Without a swizzle the atom adds up too. With one it must stay below every digit's stride.
  const Formula offset = owner_formula(shared, Resource::Offset);
  const Formula atom{offset.sources, offset.atom, {}}, digits{offset.sources, {}, offset.digits};
  const bool sum = offset.is_sum();
  const int64_t atom_size = int64_t{1} << shared.atom()[Resource::Offset].size();
  for (const Digit& digit : shared.digits())
    if (!sum && digit.stride % atom_size != 0) return std::nullopt;

  const std::vector<TermUse> uses = term_uses(offset, fragment);
  std::vector<OffsetStep> steps;
  for (int64_t reg = 0; reg < fragment.registers(); ++reg) {
    const Coordinate c = fragment.coordinate({.reg = reg});
    for (const TermUse& use : uses)
      if (!use.splits(c[static_cast<size_t>(use.term.source)])) return std::nullopt;
    steps.push_back(sum ? OffsetStep{0, offset(c)} : OffsetStep{atom(c), digits(c)});
  }
  return steps;
}

int64_t access_width(const Layout& fragment, const Layout& shared, int axis, int64_t limit) {
  return std::min({vector_width(fragment, axis), vector_width(shared, axis),
                   static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(limit)))});
}

int64_t access_wavefronts(const Layout& fragment, const Layout& shared, int axis, int64_t width,
                          int bytes, int64_t warp) {
  const Layout vectors = in_vectors(fragment, axis, width);
  const Formula offset = owner_formula(shared, Resource::Offset);
  int64_t sum = 0;
  for (int64_t reg = 0; reg < vectors.registers(); ++reg) {
    std::vector<int64_t> addresses;
    for (int64_t lane = 0; lane < vectors.extent(Resource::Lane); ++lane) {
      Coordinate c = vectors.coordinate({.reg = reg, .lane = lane, .warp = warp});
      c[static_cast<size_t>(axis)] *= width;
      addresses.push_back(shared.contains(c) ? offset(c) * bytes : kInactive);
    }
    sum += wavefronts(addresses, width * bytes);
  }
  return sum;
}

}  // namespace kiln
