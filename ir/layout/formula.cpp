#include "ir/layout/formula.h"

#include <fmt/format.h>

#include "ir/error.h"

namespace kiln {
namespace {

// Adds the image of the source's bit `bit` to the terms: as a part of the last term if that is the
// next bit with the image shifted by one, and the multiplication stays free of carries.
void add_bit(std::vector<Term>& terms, int source, size_t bit, int64_t image) {
  if (image == 0) return;
  const int64_t value = int64_t{1} << bit;
  if (!terms.empty()) {
    Term& last = terms.back();
    if (last.source == source && last.divisor * last.extent == value &&
        last.stride * last.extent == image && (last.bits() & image) == 0) {
      last.extent *= 2;
      return;
    }
  }
  terms.push_back({source, value, 2, image});
}

bool continues(const Term& low, const Term& high) {
  return low.source == high.source && low.divisor * low.extent == high.divisor &&
         low.stride * low.extent == high.stride;
}

// Joins a digit with the term of the atom below it, where that shares no bit with other terms: 80
// columns in a row are axis1 * 1 rather than 16 in the atom and a digit of 5.
void join(Formula& formula) {
  for (Term& digit : formula.digits) {
    for (size_t i = 0; i < formula.atom.size(); ++i) {
      const Term low = formula.atom[i];
      int64_t others = 0;
      for (size_t j = 0; j < formula.atom.size(); ++j)
        if (j != i) others |= formula.atom[j].bits();
      if (!continues(low, digit) || (low.bits() & others)) continue;
      digit = {low.source, low.divisor, low.extent * digit.extent, low.stride};
      formula.atom.erase(formula.atom.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  }
}

std::string str(const Term& term, Formula::Sources sources) {
  std::string text = sources == Formula::Sources::Resources
                         ? std::string(name(static_cast<Resource>(term.source)))
                         : fmt::format("axis{}", term.source);
  if (term.divisor != 1) text += fmt::format("/{}", term.divisor);
  text += fmt::format("%{}", term.extent);
  if (term.stride != 1) text += fmt::format("*{}", term.stride);
  return text;
}

}  // namespace

int64_t Term::bits() const {
  int64_t bits = 0;
  for (int64_t i = 1; i < extent; i *= 2) bits |= stride * i;
  return bits;
}

int64_t Formula::operator()(std::span<const int64_t> values) const {
  int64_t low = 0, high = 0;
  for (const Term& term : atom) low ^= term(values[static_cast<size_t>(term.source)]);
  for (const Term& term : digits) high += term(values[static_cast<size_t>(term.source)]);
  return low + high;
}

int64_t Formula::operator()(const Owner& owner) const {
  const int64_t values[] = {owner.reg, owner.lane, owner.warp, owner.offset};
  return (*this)(values);
}

bool Formula::is_sum() const {
  int64_t seen = 0;
  for (const Term& term : atom) {
    if (seen & term.bits()) return false;
    seen |= term.bits();
  }
  return true;
}

Formula coordinate_formula(const Layout& layout, int axis) {
  if (layout.extent(Resource::Offset) > 1)
    throw InternalError("coordinate_formula: of a layout by offset");
  Formula formula;
  for (const Resource resource : kResources) {
    const Images& images = layout.atom()[resource];
    for (size_t bit = 0; bit < images.size(); ++bit)
      add_bit(formula.atom, static_cast<int>(resource), bit,
              images[bit][static_cast<size_t>(axis)]);
  }
  for (const Digit& digit : layout.digits())
    if (digit.axis == axis)
      formula.digits.push_back(
          {static_cast<int>(digit.resource), digit.stride, digit.extent, digit.axis_stride});
  join(formula);
  return formula;
}

Formula owner_formula(const Layout& layout, Resource resource) {
  Formula formula{Formula::Sources::Axes, {}, {}};
  size_t shift = 0;
  for (const Resource before : kResources) {
    if (before == resource) break;
    shift += layout.atom()[before].size();
  }
  const uint64_t mask = (uint64_t{1} << layout.atom()[resource].size()) - 1;
  const LinearMap inverse = layout.map().inverse();
  size_t out = 0;  // the last axis has the lowest bits
  for (int axis = layout.rank(); axis-- > 0;) {
    const auto bits = static_cast<size_t>(layout.atom_bits(axis));
    for (size_t bit = 0; bit < bits; ++bit, ++out)
      add_bit(formula.atom, axis, bit, static_cast<int64_t>(inverse.images()[out] >> shift & mask));
  }
  for (const Digit& digit : layout.digits())
    if (digit.resource == resource && digit.axis != kNoAxis)
      formula.digits.push_back({digit.axis, digit.axis_stride, digit.extent, digit.stride});
  join(formula);
  return formula;
}

std::string str(const Formula& formula) {
  std::string text;
  for (const Term& term : formula.atom)
    text += (text.empty() ? "" : " ^ ") + str(term, formula.sources);
  for (const Term& term : formula.digits)
    text += (text.empty() ? "" : " + ") + str(term, formula.sources);
  return text.empty() ? "0" : text;
}

}  // namespace kiln
