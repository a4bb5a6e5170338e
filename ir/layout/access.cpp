#include "ir/layout/access.h"

#include <algorithm>
#include <bit>
#include <set>

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
  // All bits that any thread sets in the offset, of a term of the atom.
  int64_t offset_bits() const {
    int64_t all = 0;
    for (int64_t i = 1; i < term.extent; i *= 2)
      if (bits & (term.divisor * i)) all |= term.stride * i;
    return all;
  }
};

bool shares_bits(const std::vector<Term>& terms, const Term& term) {
  return std::any_of(terms.begin(), terms.end(), [&](const Term& other) {
    return !(other == term) && (other.bits() & term.bits());
  });
}

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

// By axis: what the threads make of it, wherever the fragment begins.
std::vector<std::set<int64_t>> thread_coordinates(const Layout& fragment, const Coordinate& stored,
                                                  const Coordinate& origins) {
  const Coordinate needed = fragment.padded_shape();
  std::vector<std::set<int64_t>> at_zero(needed.size()), all(needed.size());
  for (int64_t warp = 0; warp < fragment.warps(); ++warp)
    for (int64_t lane = 0; lane < fragment.extent(Resource::Lane); ++lane) {
      const Coordinate t = fragment.coordinate({.lane = lane, .warp = warp});
      for (size_t axis = 0; axis < t.size(); ++axis) at_zero[axis].insert(t[axis]);
    }
  for (size_t axis = 0; axis < all.size(); ++axis) {
    const int64_t step = origins.empty() || origins[axis] == 0 ? stored[axis] : origins[axis];
    for (int64_t origin = 0; origin + needed[axis] <= stored[axis]; origin += step)
      for (const int64_t t : at_zero[axis]) all[axis].insert(origin + t);
  }
  return all;
}

}  // namespace

std::optional<std::vector<OffsetStep>> offset_steps(const Layout& fragment, const Layout& shared,
                                                    const Coordinate& origins) {
  const Coordinate needed = fragment.padded_shape(), stored = shared.padded_shape();
  for (size_t axis = 0; axis < needed.size(); ++axis)
    if (needed[axis] > stored.at(axis)) return std::nullopt;
  if (!shared.is_injective() || !registers_add(fragment)) return std::nullopt;

  // Terms of the atom that share a bit with another are combined by exclusive or, by a swizzle; the
  // rest adds up, and must keep off those bits.
  const Formula offset = owner_formula(shared, Resource::Offset);
  const int64_t atom_size = int64_t{1} << shared.atom()[Resource::Offset].size();
  for (const Digit& digit : shared.digits())
    if (!offset.is_sum() && digit.stride % atom_size != 0) return std::nullopt;

  const auto threads = thread_coordinates(fragment, stored, origins);
  std::vector<TermUse> uses;
  for (const Term& term : offset.atom) uses.push_back({term, shares_bits(offset.atom, term)});
  for (const Term& term : offset.digits) uses.push_back({term, false});
  Formula swizzle{offset.sources, {}, {}};
  int64_t base_bits = 0;  // of the swizzle, in any thread's offset
  for (TermUse& use : uses) {
    for (const int64_t t : threads[static_cast<size_t>(use.term.source)]) use.add_thread(t);
    if (!use.exclusive) continue;
    swizzle.atom.push_back(use.term);
    base_bits |= use.offset_bits();
  }
  std::vector<OffsetStep> steps;
  for (int64_t reg = 0; reg < fragment.registers(); ++reg) {
    const Coordinate c = fragment.coordinate({.reg = reg});
    for (const TermUse& use : uses)
      if (!use.splits(c[static_cast<size_t>(use.term.source)])) return std::nullopt;
    // What is 0 in every thread may be added as well: the fewer bits are flipped, the more
    // registers share an address.
    const int64_t flip = swizzle(c) & base_bits;
    steps.push_back({flip, offset(c) - flip});
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
