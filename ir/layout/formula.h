// Layouts as integer formulas: what code generation emits, and how layouts print.
//
// The accumulator of mma.sync m16n8 over 16 x 40 (layout.h), as the PTX ISA writes it:
//
//     axis 0 = reg/2%2*8 ^ lane/4%8
//     axis 1 = reg%2 ^ lane%4*2 + reg/4%5*8
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/layout/layout.h"

namespace kiln {

// source / divisor % extent * stride. Divisor, extent and stride of an atom's term are such that
// this is shifts and a mask, or one multiplication.
struct Term {
  int source = 0;  // index of a Resource, or an axis
  int64_t divisor = 1;
  int64_t extent = 1;
  int64_t stride = 1;

  int64_t operator()(int64_t value) const { return value / divisor % extent * stride; }
  int64_t bits() const;  // of an atom's term: all that any value sets
  bool operator==(const Term&) const = default;
};

// (the exclusive or of `atom`) + (the sum of `digits`).
struct Formula {
  enum class Sources : uint8_t { Resources, Axes };
  Sources sources = Sources::Resources;
  std::vector<Term> atom;
  std::vector<Term> digits;

  int64_t operator()(std::span<const int64_t> values) const;  // one value a source
  int64_t operator()(const Owner& owner) const;               // of Resources

  // No two terms of the atom share a bit, so that `^` may be read, and emitted, as `+`.
  bool is_sum() const;
};

// coordinate(owner)[axis] for every owner. Not for layouts by Offset (InternalError), whose gaps no
// remainder can undo: they are written the other way round.
Formula coordinate_formula(const Layout& layout, int axis);

// One owner's index of `resource` for every coordinate of the padded tile: the same owner for all
// resources, the only one if the layout is injective.
Formula owner_formula(const Layout& layout, Resource resource);

std::string str(const Formula& formula);  // "lane/4%8 ^ reg/2%2*8 + reg/4%5*8"; "0" if constant

}  // namespace kiln
