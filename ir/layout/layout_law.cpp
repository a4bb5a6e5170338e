// What keeps layouts canonical and right; the rest of the class is in layout.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/error.h"
#include "ir/layout/layout.h"

namespace kiln {
namespace {

constexpr int64_t kMostPlaces = int64_t{1} << 40;

size_t index_of(Resource resource) {
  return static_cast<size_t>(resource);
}

int64_t size_of(const Images& images) {
  return int64_t{1} << images.size();
}

bool by_resource(const Digit& a, const Digit& b) {
  return std::pair(a.resource, a.stride) < std::pair(b.resource, b.stride);
}

// Moves the power-of-two factor of the first digit of a resource into the atom, when it is the
// first digit of its axis too. True if it did.
bool absorb(Digit& digit, Atom& atom, Coordinate& extents) {
  if (digit.extent % 2 != 0 || digit.stride != size_of(atom[digit.resource])) return false;
  Coordinate image(extents.size(), 0);
  if (digit.axis != kNoAxis) {
    int64_t& extent = extents[static_cast<size_t>(digit.axis)];
    if (digit.axis_stride != extent) return false;
    image[static_cast<size_t>(digit.axis)] = extent;
    extent *= 2;
  }
  atom[digit.resource].push_back(std::move(image));
  digit.extent /= 2;
  digit.stride *= 2;
  digit.axis_stride *= 2;
  return true;
}

// Does `high` only continue `low`, on both sides?
bool continues(const Digit& low, const Digit& high) {
  return low.resource == high.resource && low.axis == high.axis &&
         low.stride * low.extent == high.stride && low.axis_stride * low.extent == high.axis_stride;
}

// What must hold before any arithmetic on the parts: it neither overflows nor leaves the axes.
void check_sizes(const Layout::Parts& parts) {
  const auto rank = static_cast<int>(parts.shape.size());
  int64_t places = 1;
  const auto multiply = [&](int64_t count) {
    if (count < 1 || count > kMostPlaces / places)
      throw InternalError(fmt::format("layout: an extent of {}", count));
    places *= count;
  };
  for (const Images& images : parts.atom.images)
    for (size_t bit = 0; bit < images.size(); ++bit) multiply(2);
  for (const Digit& digit : parts.digits) {
    multiply(digit.extent);
    if (digit.axis < kNoAxis || digit.axis >= rank)
      throw InternalError(fmt::format("layout of rank {}: a digit of axis {}", rank, digit.axis));
  }
}

}  // namespace

void Layout::canonicalise() {
  check_sizes(parts_);
  std::vector<Digit>& digits = parts_.digits;
  const auto erase_units = [&] {
    std::erase_if(digits, [](const Digit& digit) { return digit.extent == 1; });
  };
  erase_units();
  for (Digit& digit : digits)
    if (digit.axis == kNoAxis) digit.axis_stride = 0;
  std::sort(digits.begin(), digits.end(), by_resource);

  std::vector<Digit> merged;  // before absorbing: 3 then 2 is 6, which has a factor for the atom
  for (const Digit& digit : digits) {
    if (!merged.empty() && continues(merged.back(), digit)) {
      merged.back().extent *= digit.extent;
    } else {
      merged.push_back(digit);
    }
  }
  digits = std::move(merged);

  const auto absorb_one = [&](Digit& d) { return absorb(d, parts_.atom, atom_extents_); };
  while (std::any_of(digits.begin(), digits.end(), absorb_one)) {
  }
  erase_units();
}

void Layout::check() const {
  const auto fail = [&](std::string_view what) {
    throw InternalError(fmt::format("layout of {}: {}", tuple_text(shape()), what));
  };
  if (!map_.is_surjective()) fail("the atom does not cover the box that its images span");

  std::array<int64_t, 4> next;
  for (const Resource resource : kResources) next[index_of(resource)] = size_of(atom()[resource]);
  for (const Digit& digit : digits()) {
    int64_t& end = next[index_of(digit.resource)];
    const bool gaps = digit.resource == Resource::Offset;
    if (gaps ? digit.stride < end : digit.stride != end)
      fail(fmt::format("digits of {} overlap or leave a gap", name(digit.resource)));
    if (digit.resource == Resource::Lane) fail("lanes repeat only by powers of two");
    end = digit.stride * digit.extent;
  }
  for (const Resource resource : kResources) {
    const int64_t end = next[index_of(resource)];
    if (resource == Resource::Offset ? extent(resource) < end : extent(resource) != end)
      fail(fmt::format("{} has extent {}, its parts {}", name(resource), extent(resource), end));
  }

  std::vector<Digit> sorted = digits();
  std::sort(sorted.begin(), sorted.end(),
            [](const Digit& a, const Digit& b) { return a.axis_stride < b.axis_stride; });
  Coordinate covered = atom_extents_;
  for (const Digit& digit : sorted) {
    if (digit.axis == kNoAxis) continue;
    int64_t& end = covered[static_cast<size_t>(digit.axis)];
    if (digit.axis_stride != end) fail(fmt::format("digits of axis {} do not tile it", digit.axis));
    end *= digit.extent;
  }
  for (size_t axis = 0; axis < covered.size(); ++axis)
    if (shape()[axis] < 1 || shape()[axis] > covered[axis])
      fail(fmt::format("the parts cover {}", tuple_text(covered)));
}

}  // namespace kiln
