#include <limits>

#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/matmul/matmul.h"

namespace kiln {
namespace {

int64_t tile_extent(const Options& options, std::string_view name) {
  return options.integer(name) == 0 ? 0 : options.integer(name, 8, 256);
}

MatmulConfig config_of(const Options& options) {
  MatmulConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16, F32, F64});
  config.out = options.dtype("out", {F16, BF16, F32, F64});
  config.transpose_a = options.boolean("transpose_a");
  config.transpose_b = options.boolean("transpose_b");
  config.block_m = tile_extent(options, "block_m");
  config.block_n = tile_extent(options, "block_n");
  config.block_k = tile_extent(options, "block_k");
  config.stages = options.integer("stages", MatmulConfig::kChosen, 8);
  config.threads = options.integer("threads", 0, 1024);
  config.rows = options.integer("rows", 0, std::numeric_limits<int32_t>::max());
  config.columns = options.integer("columns", 0, std::numeric_limits<int32_t>::max());
  return config;
}

std::map<std::string, std::string> settings_of(const MatmulConfig& config) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return {{"dtype", std::string(name(config.dtype))}, {"out", std::string(name(config.out))},
          {"transpose_a", flag(config.transpose_a)},  {"transpose_b", flag(config.transpose_b)},
          {"rows", std::to_string(config.rows)},      {"columns", std::to_string(config.columns)}};
}

std::vector<double> reference(const MatmulConfig& config, const Memory& a, const Memory& b) {
  std::vector<double> x = to_doubles(a), y = to_doubles(b);
  int64_t m = a.shape[config.transpose_a], depth = a.shape[!config.transpose_a];
  int64_t n = b.shape[!config.transpose_b];
  std::vector<double> c(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < depth; ++k) {
      double left = config.transpose_a ? x[k * m + i] : x[i * depth + k];
      for (int64_t j = 0; j < n; ++j)
        c[i * n + j] += left * (config.transpose_b ? y[j * depth + k] : y[k * n + j]);
    }
  return c;
}

}  // namespace

KernelEntry matmul_entry() {
  KernelEntry entry;
  entry.name = "matmul";
  entry.summary = "c[m, n] = a[m, k] · b[k, n]";
  entry.options = {
      {"dtype", "f16", "f16, bf16, f32 or f64", "element type of a and b"},
      {"out", "f32", "f16, bf16, f32 or f64", "element type of c"},
      {"transpose_a", "false", "true or false", "a is [k, m]"},
      {"transpose_b", "false", "true or false", "b is [n, k]"},
      {"block_m", "0", "8 to 256; 0: chosen", "rows of a block"},
      {"block_n", "0", "8 to 256; 0: chosen", "columns of a block"},
      {"block_k", "0", "8 to 256; 0: chosen", "depth of a step"},
      {"stages", "-1", "0 to 8; -1: chosen", "steps prefetched"},
      {"threads", "0", "0 to 1024, a multiple of 32; 0: chosen", "threads of a block on a GPU"},
      {"rows", "0", "0 or more; 0: many", "rows of c to choose tiles for"},
      {"columns", "0", "0 or more; 0: many", "columns of c to choose tiles for"}};
  entry.shipped.clear();
  for (const MatmulConfig& config : shipped_matmul_configs())
    entry.shipped.push_back(settings_of(config));
  entry.build = [](const Options& options, std::string_view target) {
    return matmul_kernel(validated(config_of(options), target));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options&, const Bindings&) {};
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const auto& tensors = bindings.tensors;
    return ReferenceResults{{"c", reference(config_of(options), tensors.at("a"), tensors.at("b"))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const Memory &a = bindings.tensors.at("a"), &b = bindings.tensors.at("b"),
                 &c = bindings.tensors.at("c");
    double depth = static_cast<double>(a.shape[!config_of(options).transpose_a]);
    auto bytes = [](const Memory& t) {
      return static_cast<double>(count(t.shape) * size_of(t.dtype));
    };
    return Work{2 * depth * static_cast<double>(count(c.shape)), bytes(a) + bytes(b) + bytes(c)};
  };
  return entry;
}

}  // namespace kiln
