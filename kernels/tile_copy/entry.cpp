#include <fmt/format.h>

#include "ir/dtype.h"
#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/tile_copy/tile_copy.h"

namespace kiln {
namespace {

void require_dtype(const char* field, DType dtype) {
  if (dtype != F16 && dtype != BF16 && dtype != F32)
    throw UserError(fmt::format("{}: expected f16, bf16 or f32, got {}", field, name(dtype)));
}

void require(const char* field, int64_t value, int64_t high) {
  if (value < 1 || value > high)
    throw UserError(fmt::format("{}: expected 1 to {}, got {}", field, high, value));
}

}  // namespace

TileCopyConfig validated(const TileCopyConfig& config) {
  require_dtype("dtype", config.dtype);
  require_dtype("out", config.out);
  require("block_m", config.block_m, 128);
  require("block_n", config.block_n, 8192);
  return config;
}

TileCopy tile_copy(Device& device, const TileCopyConfig& config) {
  return {device_for(device, config.target), validated(config)};
}

KernelEntry tile_copy_entry() {
  KernelEntry entry;
  entry.name = "tile_copy";
  entry.summary = "y[rows, cols] = x, converted to y's element type";
  entry.options = {{"dtype", "f32", "f16, bf16 or f32", "element type of x"},
                   {"out", "", "f16, bf16 or f32; as dtype if empty", "element type of y"},
                   {"block_m", "8", "1 to 128", "rows of a tile"},
                   {"block_n", "1024", "1 to 8192", "columns of a tile"}};
  const auto dtypes = [](const Options& options) {
    const DType from = options.dtype("dtype", {F16, BF16, F32});
    return std::pair(from,
                     options.text("out").empty() ? from : options.dtype("out", {F16, BF16, F32}));
  };
  entry.build = [dtypes](const Options& options, std::string_view) {
    const auto [from, to] = dtypes(options);
    return tile_copy_kernel({.dtype = from,
                             .out = to,
                             .block_m = options.integer("block_m"),
                             .block_n = options.integer("block_n")});
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options&, const Bindings&) {};
  entry.reference = [dtypes](const Options& options, const Bindings& bindings) {
    std::vector<double> y = to_doubles(bindings.tensors.at("x"));
    for (double& value : y) value = round_to(dtypes(options).second, value);
    return ReferenceResults{{"y", std::move(y)}};
  };
  entry.work = [](const Options&, const Bindings& bindings) {
    const Memory &x = bindings.tensors.at("x"), &y = bindings.tensors.at("y");
    return Work{0, static_cast<double>(count(x.shape)) *
                       static_cast<double>(size_of(x.dtype) + size_of(y.dtype))};
  };
  return entry;
}

}  // namespace kiln
