// The kernel's interface: what a launch binds by name, and the launches themselves.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "dsl/storage.h"

namespace kiln {
inline namespace dsl {

// A size known at launch: the extent of that name of the tensors that use it.
class Dim : public Expr {
 public:
  explicit Dim(const std::string& name, Loc loc = Loc::here());
};
inline Dim dim(const std::string& name, Loc loc = Loc::here()) {
  return Dim(name, loc);
}

// A scalar given at launch.
Expr param(const std::string& name, DType dtype, Loc loc = Loc::here());

// Tensors. Extents are C++ numbers, dims, or arithmetic on them. An output is not read, nor updated
// by atomics: that is an inout. A workspace holds what one launch leaves for the next; the caller
// does not see it.
Tensor input(const std::string& name, DType dtype, const std::vector<Arg>& extents,
             Loc loc = Loc::here());
Tensor output(const std::string& name, DType dtype, const std::vector<Arg>& extents,
              Loc loc = Loc::here());
Tensor inout(const std::string& name, DType dtype, const std::vector<Arg>& extents,
             Loc loc = Loc::here());
Tensor workspace(const std::string& name, DType dtype, const std::vector<Arg>& extents,
                 Loc loc = Loc::here());

// Wishes, which change no result.
struct LaunchOptions {
  // Blocks that start together lie in a panel of so many along the second extent, so that they find
  // in the cache what the others have read; 0: along the first extent.
  int rasterize = 0;
  // Threads of a block, a multiple of 32 up to 1024; 0: as the compiler chooses.
  int threads = 0;
};

// Starts a launch over a grid of 1 to 3 extents: what follows, up to the next launch or the end of
// the kernel, runs in every block. Returns the block's indices, 0 for those left out.
std::array<Expr, 3> launch(const std::vector<Arg>& extents, Loc loc = Loc::here());
std::array<Expr, 3> launch(const std::vector<Arg>& extents, LaunchOptions options,
                           Loc loc = Loc::here());

}  // namespace dsl
}  // namespace kiln
