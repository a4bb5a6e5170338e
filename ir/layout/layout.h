// Layouts: which element of a tile lives where.
//
// A layout is a function from places (a register of a lane of a warp; an offset in shared memory)
// to coordinates of a tile, made of two parts that never mix:
//
//   atom     linear over GF(2) (linear_map.h): each bit of a register, lane, warp or offset index
//   has
//            an image, a coordinate; images of set bits are combined by exclusive or. Instruction
//            fragments, vectors and swizzles are atoms. Extents are powers of two.
//   digits   what repeats the atom: for i in [0, extent) the index of one resource grows by
//            i * stride and one coordinate by i * axis_stride. Any integers: 5 x 16 columns is 80.
//
// The accumulator of mma.sync m16n8 over a tile of 16 x 40 says it all. Registers 0, 1 are
// neighbours in a row and 2, 3 are eight rows below; four lanes share a row; then five tiles side
// by side:
//
//     atom    register bits  (0,1) (8,0)                 coordinates are (row, column)
//             lane bits      (0,2) (0,4) (1,0) (2,0) (4,0)
//     digit   5 x register +4, axis 1 +8
//
//     lane \ register     0       1       2       3       4       5    …    19
//        0              (0,0)   (0,1)   (8,0)   (8,1)   (0,8)   (0,9)     (8,33)
//        1              (0,2)   (0,3)   (8,2)   (8,3)   (0,10)  (0,11)    (8,35)
//        4              (1,0)   (1,1)   (9,0)   (9,1)   (1,8)   (1,9)     (9,33)
//       31              (7,6)   (7,7)   (15,6)  (15,7)  (7,14)  (7,15)    (15,39)
//
// so lane 13 holds (3,2) in register 0: 13 = 01101b, (0,2) ^ (1,0) ^ (2,0) = (3,2).
//
// Several places may hold one element (replication: images of zero, digits without an axis, or
// dependent images), and places may hold nothing of the tile (padding: its extents need not be
// multiples of what the layout tiles). No place holds two elements, and every element has a place.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/layout/linear_map.h"

namespace kiln {

using Coordinate = std::vector<int64_t>;  // of an element, one entry an axis; also extents

// Registers hold one element each here; two 16-bit or four 8-bit elements whose registers differ in
// the lowest bits share a 32-bit register of the machine. Offsets count elements too.
enum class Resource : uint8_t { Reg, Lane, Warp, Offset };
inline constexpr Resource kResources[] = {Resource::Reg, Resource::Lane, Resource::Warp,
                                          Resource::Offset};
std::string_view name(Resource resource);  // "reg", "lane", "warp", "offset"

// Who holds an element. A fragment uses reg, lane and warp, a shared tile offset; the rest stay 0.
struct Owner {
  int64_t reg = 0, lane = 0, warp = 0, offset = 0;

  int64_t& operator[](Resource resource);
  int64_t operator[](Resource resource) const;
  auto operator<=>(const Owner&) const = default;
};

using Images = std::vector<Coordinate>;  // of bit 0, bit 1, …

struct Atom {
  std::array<Images, 4> images;  // by resource

  Images& operator[](Resource resource) { return images[static_cast<size_t>(resource)]; }
  const Images& operator[](Resource resource) const {
    return images[static_cast<size_t>(resource)];
  }
  bool operator==(const Atom&) const = default;
};

inline constexpr int kNoAxis = -1;

struct Digit {
  int64_t extent = 1;
  Resource resource = Resource::Reg;
  int64_t stride = 1;  // in the resource's index
  int axis = kNoAxis;  // none: copies
  int64_t axis_stride = 0;

  bool operator==(const Digit&) const = default;
};

class Layout {
 public:
  struct Parts {
    Coordinate shape;                // of the tile; at most what the parts cover
    Atom atom;                       // its images span a box of power-of-two extents
    std::vector<Digit> digits;       // any order
    std::array<int64_t, 4> extents;  // of each resource; Offset's may exceed what is used
  };

  // The atom alone, over a tile of the extents that its images span.
  explicit Layout(int rank, Atom atom = {});
  // Checks the law (InternalError): on every axis and resource the atom and the digits, in order of
  // stride, are a mixed-radix system without overlap; gaps only in Offset; every element covered.
  explicit Layout(Parts parts);

  // The layout `count` times: along `axis`, or as copies for kNoAxis; and `count` times as much of
  // `resource`. Lanes only by powers of two. The shape becomes padded_shape().
  Layout repeat(Resource resource, int64_t count, int axis) const;
  // Leaves a gap, so that the next repeat by Offset has this stride (at least extent(Offset)).
  Layout with_pitch(int64_t offset) const;
  // The same over a smaller tile: the rest is padding.
  Layout crop(Coordinate shape) const;

  int rank() const { return static_cast<int>(parts_.shape.size()); }
  const Coordinate& shape() const { return parts_.shape; }
  Coordinate padded_shape() const;
  int64_t extent(Resource resource) const { return parts_.extents[static_cast<size_t>(resource)]; }
  int64_t registers() const { return extent(Resource::Reg); }  // of a thread, one element each
  int64_t warps() const { return extent(Resource::Warp); }
  const Parts& parts() const { return parts_; }
  const Atom& atom() const { return parts_.atom; }
  const std::vector<Digit>& digits() const { return parts_.digits; }

  // Is there an element at this place (maybe a padding one)? Not in the gaps of Offset.
  bool holds(const Owner& owner) const;
  // The element at a place that holds one; inside padded_shape(), maybe outside shape().
  Coordinate coordinate(const Owner& owner) const;
  // All places of an element of the padded tile, ascending: replication() of them.
  std::vector<Owner> owners(const Coordinate& coordinate) const;
  Owner owner(const Coordinate& coordinate) const { return owners(coordinate).front(); }

  bool contains(const Coordinate& coordinate) const;  // inside shape()
  int64_t replication() const { return replication_; }
  bool is_injective() const { return replication_ == 1; }
  bool is_padded() const { return padded_shape() != shape(); }

  // The atom over flat bits: in, the bits of reg, lane, warp, offset from low to high; out, the
  // bits of the last axis first.
  const LinearMap& map() const { return map_; }
  int atom_bits(int axis) const;  // log2 of the atom's extent

  // Equal extents and parts. Parts are kept canonical (maximal atom, digits merged and sorted by
  // resource and stride), so layouts that are equal functions compare equal.
  bool operator==(const Layout& other) const;

 private:
  void canonicalise();
  void check() const;
  void index_atom();
  std::optional<Coordinate> find(Owner owner) const;
  uint64_t pack(const Coordinate& coordinate) const;  // atom coordinates to bits of map()
  Coordinate unpack(uint64_t bits) const;

  Parts parts_;
  Coordinate atom_extents_;  // by axis
  LinearMap map_ = LinearMap(0, {});
  LinearMap inverse_ = LinearMap(0, {});
  std::vector<uint64_t> kernel_;
  int64_t replication_ = 1;
};

// Multi-line: "layout [16, 40]: reg 20, lane 32", then one formula (formula.h) an axis, or
// that of the offset.
std::string str(const Layout& layout);
std::string tuple_text(const Coordinate& coordinate);  // "(3, 2)"

}  // namespace kiln
