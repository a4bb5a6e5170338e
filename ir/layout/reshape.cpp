#include "ir/layout/reshape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "ir/error.h"

namespace kiln {
namespace {

bool is_zero(const Coordinate& image) {
  return std::all_of(image.begin(), image.end(), [](int64_t c) { return c == 0; });
}

// Takes the factor `count` at `stride` out of the register index.
void remove_registers(Layout::Parts& parts, int64_t stride, int64_t count) {
  for (Digit& digit : parts.digits)
    if (digit.resource == Resource::Reg && digit.stride > stride) digit.stride /= count;
  parts.extents[static_cast<size_t>(Resource::Reg)] /= count;
}

// Keeps one register of each set that holds one element in a thread.
Layout drop_register_copies(const Layout& layout) {
  Layout::Parts parts = layout.parts();
  std::erase_if(parts.digits, [&](const Digit& digit) {
    return digit.resource == Resource::Reg && digit.axis == kNoAxis;
  });
  // The largest stride first, so that those to come are still what they were.
  for (auto digit = layout.digits().rbegin(); digit != layout.digits().rend(); ++digit)
    if (digit->resource == Resource::Reg && digit->axis == kNoAxis)
      remove_registers(parts, digit->stride, digit->extent);

  Images kept;
  std::vector<uint64_t> independent;
  for (size_t bit = 0; bit < layout.atom()[Resource::Reg].size(); ++bit) {
    independent.push_back(layout.map().images()[bit]);
    if (LinearMap(layout.map().out_bits(), independent).is_injective()) {
      kept.push_back(layout.atom()[Resource::Reg][bit]);
    } else {
      independent.pop_back();
      remove_registers(parts, 0, 2);
    }
  }
  parts.atom[Resource::Reg] = std::move(kept);
  return Layout(std::move(parts));
}

Coordinate without(Coordinate coordinate, int axis) {
  coordinate.erase(coordinate.begin() + axis);
  return coordinate;
}

// Are the images that are not zero independent, so that every copy is a bit or a digit of its own?
bool has_aligned_copies(const Layout& layout) {
  const std::vector<uint64_t>& images = layout.map().images();
  const auto zeros = std::count(images.begin(), images.end(), uint64_t{0});
  return layout.map().rank() == static_cast<int>(images.size()) - static_cast<int>(zeros);
}

Resource vector_resource(const Layout& layout) {
  return layout.extent(Resource::Offset) > 1 ? Resource::Offset : Resource::Reg;
}

// How many images of the atom have the bit `value` of `axis`.
int uses(const Atom& atom, size_t axis, int64_t value) {
  int count = 0;
  for (const Images& images : atom.images)
    for (const Coordinate& image : images)
      if (image[axis] & value) ++count;
  return count;
}

}  // namespace

Layout reduce_axis(const Layout& layout, int axis) {
  Layout::Parts parts = layout.parts();
  parts.shape = without(std::move(parts.shape), axis);
  for (Images& images : parts.atom.images)
    for (Coordinate& image : images) image = without(std::move(image), axis);
  for (Digit& digit : parts.digits) {
    if (digit.axis == axis) digit.axis = kNoAxis;
    if (digit.axis > axis) --digit.axis;
  }
  return drop_register_copies(Layout(std::move(parts)));
}

Layout insert_axis(const Layout& layout, int axis) {
  Layout::Parts parts = layout.parts();
  parts.shape.insert(parts.shape.begin() + axis, 1);
  for (Images& images : parts.atom.images)
    for (Coordinate& image : images) image.insert(image.begin() + axis, 0);
  for (Digit& digit : parts.digits)
    if (digit.axis >= axis) ++digit.axis;
  return Layout(std::move(parts));
}

Layout stacked(const Layout& layout, int64_t count, int64_t unit) {
  const int64_t pitch = (layout.extent(Resource::Offset) + unit - 1) / unit * unit;
  Coordinate shape = layout.shape();
  shape.insert(shape.begin(), count);
  return insert_axis(layout, 0).with_pitch(pitch).repeat(Resource::Offset, count, 0).crop(shape);
}

// The first axis may be in digits or, where extents are powers of two, in the highest bits of the
// atom.
Stacked unstacked(const Layout& layout) {
  const auto refuse = [] { throw InternalError("layout: the first axis is not stored apart"); };
  const size_t atom_bits = layout.atom()[Resource::Offset].size();
  Layout::Parts parts = layout.parts();
  int64_t stride = parts.extents[static_cast<size_t>(Resource::Offset)], front_bits = 0;
  for (Coordinate& image : parts.atom[Resource::Offset]) {
    const bool of_front = image[0] != 0;
    if (of_front && !std::all_of(image.begin() + 1, image.end(), [](int64_t c) { return c == 0; }))
      refuse();
    if (!of_front && front_bits > 0) refuse();
    front_bits += of_front;
  }
  auto& images = parts.atom[Resource::Offset];
  images.resize(atom_bits - static_cast<size_t>(front_bits));
  if (front_bits > 0) stride = int64_t{1} << images.size();
  std::erase_if(parts.digits, [&](const Digit& digit) {
    if (digit.axis == 0) stride = std::min(stride, digit.stride);
    return digit.axis == 0;
  });
  for (const Digit& digit : parts.digits)
    if (digit.stride >= stride) refuse();
  for (Images& of_resource : parts.atom.images)
    for (Coordinate& image : of_resource) image.erase(image.begin());
  for (Digit& digit : parts.digits)
    if (digit.axis != kNoAxis) --digit.axis;
  parts.shape.erase(parts.shape.begin());
  parts.extents[static_cast<size_t>(Resource::Offset)] = stride;
  return {Layout(std::move(parts)), stride};
}

Layout permute_axes(const Layout& layout, const std::vector<int>& order) {
  const auto permuted = [&](const Coordinate& from) {
    Coordinate to;
    for (const int axis : order) to.push_back(from.at(static_cast<size_t>(axis)));
    return to;
  };
  Layout::Parts parts = layout.parts();
  parts.shape = permuted(parts.shape);
  for (Images& images : parts.atom.images)
    for (Coordinate& image : images) image = permuted(image);
  for (Digit& digit : parts.digits)
    if (digit.axis != kNoAxis)
      digit.axis =
          static_cast<int>(std::find(order.begin(), order.end(), digit.axis) - order.begin());
  return Layout(std::move(parts));
}

int64_t vector_width(const Layout& layout, int axis) {
  const Resource resource = vector_resource(layout);
  const auto a = static_cast<size_t>(axis);
  Coordinate unit(layout.shape().size(), 0);
  int64_t width = 1;
  for (const Coordinate& image : layout.atom()[resource]) {
    unit[a] = width;
    if (image != unit || uses(layout.atom(), a, width) != 1) break;
    width *= 2;
  }
  const auto divides = [&](int64_t value) { return value % width == 0; };
  while (!divides(layout.shape()[a])) width /= 2;
  for (const Digit& digit : layout.digits())
    while (digit.resource == resource && !divides(digit.stride)) width /= 2;
  return width;
}

Layout in_vectors(const Layout& layout, int axis, int64_t v) {
  if (v < 1 || vector_width(layout, axis) % v != 0)
    throw InternalError(fmt::format("in_vectors: {} elements, but the layout's vectors are {}", v,
                                    vector_width(layout, axis)));
  const Resource resource = vector_resource(layout);
  const auto a = static_cast<size_t>(axis);
  Layout::Parts parts = layout.parts();
  Images& images = parts.atom[resource];
  images.erase(images.begin(), images.begin() + std::countr_zero(static_cast<uint64_t>(v)));
  for (Images& all : parts.atom.images)
    for (Coordinate& image : all) image[a] /= v;
  for (Digit& digit : parts.digits) {
    if (digit.resource == resource) digit.stride /= v;
    if (digit.axis == axis) digit.axis_stride /= v;
  }
  int64_t& extent = parts.extents[static_cast<size_t>(resource)];
  extent = (extent + v - 1) / v;
  parts.shape[a] /= v;
  return Layout(std::move(parts));
}

std::optional<ReducePlan> plan_reduction(const Layout& source, int axis) {
  ReducePlan plan{reduce_axis(source, axis), {}, {}, 1, {}};
  if (!has_aligned_copies(source) || !has_aligned_copies(plan.result)) return std::nullopt;

  // Lanes and warps have the same images in both, so what holds for thread 0 holds for all.
  plan.sources.resize(static_cast<size_t>(plan.result.registers()));
  std::set<Coordinate> seen;
  for (int64_t reg = 0; reg < source.registers(); ++reg) {
    const Coordinate element = source.coordinate({.reg = reg});
    if (!seen.insert(element).second) continue;
    for (const Owner& owner : plan.result.owners(without(element, axis)))
      if (owner.lane == 0 && owner.warp == 0)
        plan.sources[static_cast<size_t>(owner.reg)].push_back(static_cast<int>(reg));
  }

  const auto spans_axis = [&](const Coordinate& image) {
    return !is_zero(image) && is_zero(without(image, axis));
  };
  const Images& lanes = source.atom()[Resource::Lane];
  for (size_t bit = 0; bit < lanes.size(); ++bit)
    if (spans_axis(lanes[bit])) plan.lane_masks.push_back(1 << bit);
  const auto add_part = [&](int64_t divisor, int64_t extent) {
    plan.part.digits.push_back({static_cast<int>(Resource::Warp), divisor, extent, plan.parts});
    plan.parts *= extent;
  };
  const Images& warps = source.atom()[Resource::Warp];
  for (size_t bit = 0; bit < warps.size(); ++bit)
    if (spans_axis(warps[bit])) add_part(int64_t{1} << bit, 2);
  for (const Digit& digit : source.digits())
    if (digit.resource == Resource::Warp && digit.axis == axis)
      add_part(digit.stride, digit.extent);
  return plan;
}

}  // namespace kiln
