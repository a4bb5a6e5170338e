#include "ir/layout/linear_map.h"

#include <fmt/format.h>

#include <bit>

#include "ir/error.h"

namespace kiln {
namespace {

// An element of the image; `lead` is its highest bit, and no other row's highest bit.
struct Row {
  uint64_t value;  // f(source)
  uint64_t source;
  uint64_t lead;
};

struct Echelon {
  std::vector<Row> rows;  // in order of discovery
  std::vector<uint64_t> kernel;

  // Clears every lead from `value` and returns the source of what was subtracted; linear in value.
  // The highest lead first, for below its lead a row may hold the leads of other rows.
  uint64_t reduce(uint64_t& value) const {
    uint64_t source = 0;
    for (int bit = 63; bit >= 0; --bit) {
      const uint64_t lead = uint64_t{1} << bit;
      if (!(value & lead)) continue;
      for (const Row& row : rows) {
        if (row.lead != lead) continue;
        value ^= row.value;
        source ^= row.source;
      }
    }
    return source;
  }
};

Echelon eliminate(const std::vector<uint64_t>& images) {
  Echelon echelon;
  for (size_t i = 0; i < images.size(); ++i) {
    uint64_t value = images[i];
    const uint64_t source = echelon.reduce(value) ^ (uint64_t{1} << i);
    if (value == 0) {
      echelon.kernel.push_back(source);
    } else {
      echelon.rows.push_back({value, source, std::bit_floor(value)});
    }
  }
  return echelon;
}

}  // namespace

LinearMap::LinearMap(int out_bits, std::vector<uint64_t> images)
    : out_bits_(out_bits), images_(std::move(images)) {
  bool fits = out_bits >= 0 && out_bits <= 64 && images_.size() <= 64;
  for (const uint64_t image : images_)
    fits = fits && static_cast<int>(std::bit_width(image)) <= out_bits;
  if (!fits) throw InternalError(fmt::format("linear map: an image exceeds {} bits", out_bits));
}

LinearMap LinearMap::identity(int bits) {
  std::vector<uint64_t> images;
  for (int i = 0; i < bits; ++i) images.push_back(uint64_t{1} << i);
  return LinearMap(bits, std::move(images));
}

uint64_t LinearMap::operator()(uint64_t x) const {
  uint64_t y = 0;
  for (const uint64_t image : images_) {
    if (x & 1) y ^= image;
    x >>= 1;
  }
  return y;
}

int LinearMap::rank() const {
  return static_cast<int>(eliminate(images_).rows.size());
}

std::vector<uint64_t> LinearMap::kernel() const {
  return eliminate(images_).kernel;
}

LinearMap LinearMap::inverse() const {
  const Echelon echelon = eliminate(images_);
  std::vector<uint64_t> images;
  for (int i = 0; i < out_bits_; ++i) {
    uint64_t value = uint64_t{1} << i;
    images.push_back(echelon.reduce(value));
  }
  return LinearMap(in_bits(), std::move(images));
}

std::optional<uint64_t> LinearMap::solve(uint64_t y) const {
  const uint64_t source = eliminate(images_).reduce(y);
  if (y != 0) return std::nullopt;
  return source;
}

LinearMap compose(const LinearMap& outer, const LinearMap& inner) {
  if (inner.out_bits() != outer.in_bits())
    throw InternalError(fmt::format("compose: {} bits into {}", inner.out_bits(), outer.in_bits()));
  std::vector<uint64_t> images;
  for (const uint64_t image : inner.images()) images.push_back(outer(image));
  return LinearMap(outer.out_bits(), std::move(images));
}

LinearMap product(const LinearMap& low, const LinearMap& high) {
  std::vector<uint64_t> images = low.images();
  for (const uint64_t image : high.images()) images.push_back(image << low.out_bits());
  return LinearMap(low.out_bits() + high.out_bits(), std::move(images));
}

std::string str(const LinearMap& map) {
  std::string text = fmt::format("{} -> {} bits:", map.in_bits(), map.out_bits());
  for (const uint64_t image : map.images()) text += fmt::format(" {:x}", image);
  return text;
}

}  // namespace kiln
