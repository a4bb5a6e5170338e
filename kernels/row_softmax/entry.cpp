#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/row_softmax/row_softmax.h"

namespace kiln {
namespace {

std::vector<double> reference(const Memory& x) {
  std::vector<double> y = to_doubles(x);
  int64_t rows = x.shape[0], cols = x.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    double* values = y.data() + row * cols;
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < cols; ++j) top = std::max(top, values[j]);
    for (int64_t j = 0; j < cols; ++j) sum += values[j] = std::exp(values[j] - top);
    for (int64_t j = 0; j < cols; ++j) values[j] /= sum;
  }
  return y;
}

void require(const char* field, int64_t value, int64_t high) {
  if (value < 1 || value > high)
    throw UserError(fmt::format("{}: expected 1 to {}, got {}", field, high, value));
}

}  // namespace

RowSoftmaxConfig validated(const RowSoftmaxConfig& config) {
  if (config.dtype != F16 && config.dtype != BF16 && config.dtype != F32)
    throw UserError(fmt::format("dtype: expected f16, bf16 or f32, got {}", name(config.dtype)));
  require("block_m", config.block_m, 128);
  require("block_n", config.block_n, 8192);
  return config;
}

RowSoftmax row_softmax(Device& device, const RowSoftmaxConfig& config) {
  return {device_for(device, config.target), validated(config)};
}

KernelEntry row_softmax_entry() {
  KernelEntry entry;
  entry.name = "row_softmax";
  entry.summary = "y[rows, cols] = softmax of each row of x";
  entry.options = {
      {"dtype", "f32", "f16, bf16 or f32", "element type of x and y"},
      {"block_m", "16", "1 to 128", "rows computed together"},
      {"block_n", "128", "1 to 8192", "columns computed together; as many as there are is fastest"},
      {"fast_math", "true", "true or false", "allow fused and approximate arithmetic"}};
  entry.build = [](const Options& options, std::string_view) {
    return row_softmax_kernel({.dtype = options.dtype("dtype", {F16, BF16, F32}),
                               .block_m = options.integer("block_m"),
                               .block_n = options.integer("block_n"),
                               .fast_math = options.boolean("fast_math")});
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options&, const Bindings&) {};
  entry.reference = [](const Options&, const Bindings& bindings) {
    return ReferenceResults{{"y", reference(bindings.tensors.at("x"))}};
  };
  entry.work = [](const Options&, const Bindings& bindings) {
    const Memory& x = bindings.tensors.at("x");
    double elements = static_cast<double>(count(x.shape));
    return Work{5 * elements, 2 * elements * static_cast<double>(size_of(x.dtype))};
  };
  return entry;
}

}  // namespace kiln
