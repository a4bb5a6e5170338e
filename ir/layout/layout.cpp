#include "ir/layout/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "ir/error.h"
#include "ir/layout/formula.h"

namespace kiln {
namespace {

size_t index_of(Resource resource) {
  return static_cast<size_t>(resource);
}

int64_t size_of(const Images& images) {
  return int64_t{1} << images.size();
}

// The power-of-two box that the images span.
Coordinate atom_extents(const Atom& atom, size_t rank) {
  Coordinate extents(rank, 1);
  for (const Images& images : atom.images) {
    for (const Coordinate& image : images) {
      if (image.size() != rank)
        throw InternalError(fmt::format("layout: image {} of rank {}", tuple_text(image), rank));
      for (size_t axis = 0; axis < rank; ++axis)
        extents[axis] |=
            static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(image[axis])) * 2);
    }
  }
  for (int64_t& extent : extents)
    extent = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(extent)));
  return extents;
}

}  // namespace

std::string_view name(Resource resource) {
  constexpr std::string_view kNames[] = {"reg", "lane", "warp", "offset"};
  return kNames[index_of(resource)];
}

int64_t& Owner::operator[](Resource resource) {
  int64_t* const fields[] = {&reg, &lane, &warp, &offset};
  return *fields[index_of(resource)];
}
int64_t Owner::operator[](Resource resource) const {
  const int64_t fields[] = {reg, lane, warp, offset};
  return fields[index_of(resource)];
}

Layout::Layout(int rank, Atom atom)
    : Layout([&] {
        Parts parts;
        parts.shape = atom_extents(atom, static_cast<size_t>(rank));
        for (const Resource resource : kResources)
          parts.extents[index_of(resource)] = size_of(atom[resource]);
        parts.atom = std::move(atom);
        return parts;
      }()) {}

Layout::Layout(Parts parts)
    : parts_(std::move(parts)), atom_extents_(atom_extents(parts_.atom, parts_.shape.size())) {
  canonicalise();
  index_atom();
  check();
}

// Flattens the atom, and inverts it once for all queries.
void Layout::index_atom() {
  int out_bits = 0;
  for (int axis = 0; axis < rank(); ++axis) out_bits += atom_bits(axis);
  std::vector<uint64_t> images;
  for (const Images& of_resource : parts_.atom.images)
    for (const Coordinate& image : of_resource) images.push_back(pack(image));
  map_ = LinearMap(out_bits, std::move(images));
  inverse_ = map_.inverse();
  kernel_ = map_.kernel();
  replication_ = int64_t{1} << kernel_.size();
  for (const Digit& digit : digits())
    if (digit.axis == kNoAxis) replication_ *= digit.extent;
}

Layout Layout::repeat(Resource resource, int64_t count, int axis) const {
  if (count < 1) throw InternalError(fmt::format("layout: repeat by {}", count));
  Parts parts = parts_;
  parts.shape = padded_shape();
  int64_t& extent = parts.extents[index_of(resource)];
  Digit digit{count, resource, extent, axis, 0};
  if (axis != kNoAxis) {
    int64_t& along = parts.shape.at(static_cast<size_t>(axis));
    digit.axis_stride = along;
    along *= count;
  }
  extent *= count;
  parts.digits.push_back(digit);
  return Layout(std::move(parts));
}

Layout Layout::with_pitch(int64_t offset) const {
  Parts parts = parts_;
  parts.extents[index_of(Resource::Offset)] = offset;
  return Layout(std::move(parts));
}

Layout Layout::crop(Coordinate shape) const {
  Parts parts = parts_;
  parts.shape = std::move(shape);
  if (parts.shape.size() != parts_.shape.size())
    throw InternalError(
        fmt::format("layout: crop of rank {} to {}", rank(), tuple_text(parts.shape)));
  return Layout(std::move(parts));
}

Coordinate Layout::padded_shape() const {
  Coordinate padded = atom_extents_;
  for (const Digit& digit : digits())
    if (digit.axis != kNoAxis) padded[static_cast<size_t>(digit.axis)] *= digit.extent;
  return padded;
}

int Layout::atom_bits(int axis) const {
  return std::countr_zero(static_cast<uint64_t>(atom_extents_.at(static_cast<size_t>(axis))));
}

uint64_t Layout::pack(const Coordinate& coordinate) const {
  uint64_t bits = 0;
  for (size_t axis = 0; axis < coordinate.size(); ++axis)
    bits =
        bits * static_cast<uint64_t>(atom_extents_[axis]) + static_cast<uint64_t>(coordinate[axis]);
  return bits;
}

Coordinate Layout::unpack(uint64_t bits) const {
  Coordinate coordinate(atom_extents_.size());
  for (size_t axis = coordinate.size(); axis-- > 0;) {
    const auto extent = static_cast<uint64_t>(atom_extents_[axis]);
    coordinate[axis] = static_cast<int64_t>(bits % extent);
    bits /= extent;
  }
  return coordinate;
}

std::optional<Coordinate> Layout::find(Owner owner) const {
  Coordinate sum(parts_.shape.size(), 0);
  for (const Resource resource : kResources)
    if (owner[resource] < 0 || owner[resource] >= extent(resource)) return std::nullopt;
  for (auto digit = digits().rbegin(); digit != digits().rend(); ++digit) {
    int64_t& rest = owner[digit->resource];
    const int64_t i = rest / digit->stride;
    if (i >= digit->extent) return std::nullopt;
    rest -= i * digit->stride;
    if (digit->axis != kNoAxis) sum[static_cast<size_t>(digit->axis)] += i * digit->axis_stride;
  }
  uint64_t in = 0;
  size_t shift = 0;
  for (const Resource resource : kResources) {
    const Images& images = atom()[resource];
    if (owner[resource] >= size_of(images)) return std::nullopt;
    in |= static_cast<uint64_t>(owner[resource]) << shift;
    shift += images.size();
  }
  const Coordinate low = unpack(map_(in));
  for (size_t axis = 0; axis < sum.size(); ++axis) sum[axis] += low[axis];
  return sum;
}

bool Layout::holds(const Owner& owner) const {
  return find(owner).has_value();
}

Coordinate Layout::coordinate(const Owner& owner) const {
  std::optional<Coordinate> found = find(owner);
  if (!found)
    throw InternalError(
        fmt::format("layout of {}: no element at reg {}, lane {}, warp {}, offset {}",
                    tuple_text(shape()), owner.reg, owner.lane, owner.warp, owner.offset));
  return *std::move(found);
}

std::vector<Owner> Layout::owners(const Coordinate& coordinate) const {
  const Coordinate padded = padded_shape();
  Coordinate low(coordinate.size());
  for (size_t axis = 0; axis < padded.size(); ++axis) {
    const int64_t c = coordinate.at(axis);
    if (c < 0 || c >= padded[axis])
      throw InternalError(
          fmt::format("layout of {}: no element {}", tuple_text(shape()), tuple_text(coordinate)));
    low[axis] = c % atom_extents_[axis];
  }

  // Digits that fix a part of the owner, and copies, each of which multiplies the owners.
  Owner base;
  std::vector<Owner> owners{Owner{}};
  for (const Digit& digit : digits()) {
    if (digit.axis != kNoAxis) {
      const int64_t c = coordinate[static_cast<size_t>(digit.axis)];
      base[digit.resource] += c / digit.axis_stride % digit.extent * digit.stride;
      continue;
    }
    const size_t before = owners.size();
    for (int64_t i = 1; i < digit.extent; ++i) {
      for (size_t o = 0; o < before; ++o) {
        owners.push_back(owners[o]);
        owners.back()[digit.resource] += i * digit.stride;
      }
    }
  }

  // The atom: one solution, and all that the kernel makes of it.
  std::vector<uint64_t> solutions{inverse_(pack(low))};
  for (const uint64_t vector : kernel_) {
    const size_t before = solutions.size();
    for (size_t s = 0; s < before; ++s) solutions.push_back(solutions[s] ^ vector);
  }

  std::vector<Owner> all;
  for (const Owner& copy : owners) {
    for (uint64_t in : solutions) {
      Owner owner;
      for (const Resource resource : kResources) {
        const int64_t size = size_of(atom()[resource]);
        owner[resource] = base[resource] + copy[resource] + static_cast<int64_t>(in) % size;
        in >>= atom()[resource].size();
      }
      all.push_back(owner);
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

bool Layout::contains(const Coordinate& coordinate) const {
  for (size_t axis = 0; axis < shape().size(); ++axis)
    if (coordinate[axis] < 0 || coordinate[axis] >= shape()[axis]) return false;
  return true;
}

bool Layout::operator==(const Layout& other) const {
  return parts_.shape == other.parts_.shape && parts_.atom == other.parts_.atom &&
         parts_.digits == other.parts_.digits && parts_.extents == other.parts_.extents;
}

std::string tuple_text(const Coordinate& coordinate) {
  return fmt::format("({})", fmt::join(coordinate, ", "));
}

std::string str(const Layout& layout) {
  std::string text = fmt::format("layout {}:", tuple_text(layout.shape()));
  for (const Resource resource : kResources)
    if (layout.extent(resource) > 1)
      text += fmt::format(" {} {}", name(resource), layout.extent(resource));
  if (layout.extent(Resource::Offset) > 1)
    return text + "\n  offset = " + str(owner_formula(layout, Resource::Offset));
  for (int axis = 0; axis < layout.rank(); ++axis)
    text += fmt::format("\n  axis {} = {}", axis, str(coordinate_formula(layout, axis)));
  return text;
}

}  // namespace kiln
