// Linear maps between bit vectors, over GF(2): the arithmetic below layouts.
//
// A map f from n bits to m bits is linear when f(x ^ y) = f(x) ^ f(y). It is then known from the
// images of the n single bits: f(x) is the exclusive or of the images of the set bits of x. With
// x = (b2 b1 b0) and the images
//
//     bit      b0   b1   b2                 x     0  1  2  3  4  5  6  7
//     image    01   10   11        f(x)     0  1  2  3  3  2  1  0
//
// f places eight lanes over four columns: the first four in order, the last four in reverse. Its
// kernel, the x with f(x) = 0, is {0, 7}: lane x and lane x ^ 7 always hold the same column.
// Power-of-two tilings, transposes, broadcasts and XOR swizzles are all of this form, and
// composing, inverting and comparing them is elimination on a handful of 64-bit words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kiln {

class LinearMap {
 public:
  // images[i] is the image of bit i. At most 64 bits on each side.
  LinearMap(int out_bits, std::vector<uint64_t> images);
  static LinearMap identity(int bits);

  int in_bits() const { return static_cast<int>(images_.size()); }
  int out_bits() const { return out_bits_; }
  const std::vector<uint64_t>& images() const { return images_; }

  uint64_t operator()(uint64_t x) const;

  int rank() const;  // the image has 2^rank elements, each hit 2^(in_bits - rank) times
  bool is_injective() const { return rank() == in_bits(); }
  bool is_surjective() const { return rank() == out_bits(); }

  // A basis of { x : f(x) = 0 }; in_bits - rank vectors.
  std::vector<uint64_t> kernel() const;

  // A linear g with f(g(f(x))) = f(x) for all x. Hence g(f(x)) = x if f is injective, and
  // f(g(y)) = y if f is surjective; g(y) is 0 on a complement of the image.
  LinearMap inverse() const;

  // Some x with f(x) = y, or nothing if y is not in the image.
  std::optional<uint64_t> solve(uint64_t y) const;

  bool operator==(const LinearMap&) const = default;

 private:
  int out_bits_;
  std::vector<uint64_t> images_;
};

// x → outer(inner(x)). inner.out_bits() must be outer.in_bits().
LinearMap compose(const LinearMap& outer, const LinearMap& inner);

// Both maps side by side: `low` on the low bits of both sides, `high` on the bits above them.
LinearMap product(const LinearMap& low, const LinearMap& high);

// "3 -> 2 bits: 1 2 3": the images in hexadecimal.
std::string str(const LinearMap& map);

}  // namespace kiln
