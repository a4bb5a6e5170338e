// A matrix copied tile by tile, with its dtype converted: the simplest kernel there is, and the one
// that shows what memory can do.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

struct TileCopyConfig {
  DType dtype = F32, out = F32;         // of x and of y: f16, bf16 or f32
  int64_t block_m = 8, block_n = 1024;  // rows, 1 to 128, and columns, 1 to 8192, of a tile
  std::string target = {};              // "sm_80"; empty: the device's
  bool operator==(const TileCopyConfig&) const = default;
};
// UserError naming the field, its legal values and what it is.
TileCopyConfig validated(const TileCopyConfig& config);

// y[rows, cols] = x, converted to y's dtype.
Kernel tile_copy_kernel(const TileCopyConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis.
struct TileCopyArgs {
  Memory x, y;
};
struct TileCopyLimits {
  int64_t rows = 0, cols = 0;
};
struct TileCopyInterface {
  using Config = TileCopyConfig;
  using Args = TileCopyArgs;
  using Limits = TileCopyLimits;
  static constexpr std::array<std::string_view, 2> kTensors = {"x", "y"};
  static Kernel kernel(const Config& config) { return tile_copy_kernel(config); }
  static std::array<const Memory*, 2> tensors(const Args& args) { return {&args.x, &args.y}; }
  static CallScalars<0> scalars(const Config&, const Args&) { return {}; }
  static void check(const Config&, const Args&) {}
  static kiln::Limits dims(const Limits& limits) {
    return {{"rows", limits.rows}, {"cols", limits.cols}};
  }
};
using TileCopy = LibraryFunction<TileCopyInterface>;
TileCopy tile_copy(Device& device, const TileCopyConfig& config);

KernelEntry tile_copy_entry();

}  // namespace kiln
