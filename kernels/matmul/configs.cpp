// The tiles of matmul.
#include <fmt/format.h>

#include <array>

#include "ir/error.h"
#include "kernels/matmul/matmul.h"
#include "passes/gpu_target.h"

namespace kiln {
namespace {

struct Tile {
  int64_t m, n, k, stages, threads;
};

constexpr Tile kSmall = {64, 64, 64, 2, 0};
// Of 16-bit floats on a GPU: a warp multiplies 64 x 64, for which it loads the fewest operands that
// its registers allow: 424 TFLOP/s on an H200 at 4096³, where 32 x 64 reach 348 and 32 x 32 299.
constexpr Tile kLarge = {128, 128, 64, 3, 128};
// Two blocks of these share a multiprocessor's memory, of 164 KiB and of 100.
constexpr Tile kLargeIn164 = {128, 128, 64, 2, 128};
constexpr Tile kLargeIn100 = {128, 128, 32, 3, 128};
// Fewer large tiles than this leave multiprocessors idle: there are 84 to 170 of them.
constexpr int64_t kEnoughTiles = 128;

int64_t tiles(int64_t extent, int64_t tile) {
  return (extent + tile - 1) / tile;
}

Tile tile_for(const MatmulConfig& config, std::string_view target) {
  const bool is_half = config.dtype == F16 || config.dtype == BF16;
  if (!target.starts_with("sm_") || !is_half) return kSmall;
  const bool is_known = config.rows > 0 && config.columns > 0;
  if (is_known && tiles(config.rows, kLarge.m) * tiles(config.columns, kLarge.n) < kEnoughTiles)
    return kSmall;
  const int64_t shared = gpu_target(target).shared_per_multiprocessor;
  if (shared >= 2 * 100 << 10) return kLarge;
  return shared >= 2 * 80 << 10 ? kLargeIn164 : kLargeIn100;
}

void require_dtype(const char* field, DType dtype) {
  if (dtype != F16 && dtype != BF16 && dtype != F32 && dtype != F64)
    throw UserError(fmt::format("{}: expected f16, bf16, f32 or f64, got {}", field, name(dtype)));
}

void require(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError(fmt::format("{}: expected {} to {}, got {}", field, low, high, value));
}

}  // namespace

MatmulConfig validated(MatmulConfig config, std::string_view target) {
  require_dtype("dtype", config.dtype);
  require_dtype("out", config.out);
  if (!config.target.empty()) target = config.target;
  const Tile tile = tile_for(config, target);
  // Threads go with the tile that they were chosen for.
  const bool is_chosen = !config.block_m && !config.block_n && !config.block_k;
  if (is_chosen && !config.threads) config.threads = tile.threads;
  if (!config.block_m) config.block_m = tile.m;
  if (!config.block_n) config.block_n = tile.n;
  if (!config.block_k) config.block_k = tile.k;
  if (config.stages == MatmulConfig::kChosen) config.stages = tile.stages;
  require("block_m", config.block_m, 8, 256);
  require("block_n", config.block_n, 8, 256);
  require("block_k", config.block_k, 8, 256);
  require("stages", config.stages, 0, 8);
  require("threads", config.threads, 0, 1024);
  return config;
}

Matmul matmul(Device& device, const MatmulConfig& config) {
  Device& chosen = device_for(device, config.target);
  return {chosen, validated(config, chosen.target())};
}

std::span<const MatmulConfig> shipped_matmul_configs() {
  static const std::array<MatmulConfig, 8> kShipped = {{
      {.dtype = F16, .out = F16},
      {.dtype = F16, .out = F16, .transpose_b = true},
      {.dtype = F16, .out = F32, .transpose_a = true},
      {.dtype = BF16, .out = BF16},
      {.dtype = BF16, .out = F32, .transpose_b = true},
      {.dtype = F16, .out = F16, .rows = 512, .columns = 512},
      {.dtype = F32, .out = F32},
      {.dtype = F64, .out = F64},
  }};
  return kShipped;
}

}  // namespace kiln
