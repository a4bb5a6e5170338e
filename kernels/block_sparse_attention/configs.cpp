// What block-sparse attention may be compiled for, and the tile it uses.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "passes/gpu_target.h"

namespace kiln {
namespace {

void require_step(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high || value % 16)
    throw UserError(fmt::format("{}: expected a multiple of 16 from {} to {}, got {}", field, low,
                                high, value));
}

void require_tile(const char* field, int64_t tile, const char* block_name, int64_t block) {
  if (tile < 16 || tile % 16 || block % tile)
    throw UserError(fmt::format("{}: expected a multiple of 16 that divides {} {}, got {}", field,
                                block_name, block, tile));
}

// Tiles of 64 are within a few percent of the best on every head dimension and dtype; smaller than
// 32 they are slow, so a block without a divisor between stays whole unless `most` is less.
int64_t tile_of(int64_t block, int64_t most = 64) {
  for (int64_t tile = most; tile >= std::min<int64_t>(most, 32); tile -= 16)
    if (block % tile == 0) return tile;
  return block;
}

constexpr int64_t kStages = 2;
constexpr int64_t kOther = 3072;  // bytes of shared memory: the list of blocks; the system's share

// Does a multiprocessor have shared memory for so many blocks of threads with q, k, v and, where
// mma does not take it from registers, p?
bool fits(const AttentionConfig& config, const AttentionTile& tile, const GpuTarget& gpu,
          int64_t blocks) {
  int64_t elements = tile.m * config.dim +
                     std::max<int64_t>(1, tile.stages) * tile.n * (config.dim + config.dim_v);
  if (config.dtype == F32) elements += tile.m * tile.n;
  const int64_t bytes = elements * static_cast<int64_t>(size_of(config.dtype));
  return bytes <= gpu.shared_per_block &&
         blocks * (bytes + kOther) <= gpu.shared_per_multiprocessor;
}

// Of 16-bit floats with 65 to 128 dimensions and blocks of 128: four warps of 32 rows, which read
// keys and values half as often as 16 would, two such blocks on a multiprocessor, and as many key
// tiles as fit then. Measured on an H200, 10 % and 30 % of the blocks: 308 and 335 TFLOP/s; 64 x
// 128 301 and 306, 128 x 32 275 and 305, 64 x 64 250 and 261.
std::optional<AttentionTile> wide_tile(const AttentionConfig& config, const GpuTarget& gpu) {
  const int64_t dim = std::max(config.dim, config.dim_v);
  if (config.dtype == F32 || dim <= 64 || dim > 128) return std::nullopt;
  if (config.block_m % 128 || config.block_n % 64) return std::nullopt;
  for (const AttentionTile& tile :
       {AttentionTile{128, 64, 2}, AttentionTile{128, 64, 1}, AttentionTile{128, 32, 1}})
    if (fits(config, tile, gpu, 2)) return AttentionTile{tile.m, tile.n, tile.stages, 128};
  return std::nullopt;
}

}  // namespace

AttentionTile tile_for(const AttentionConfig& config, std::string_view target) {
  AttentionTile tile{tile_of(config.block_m), tile_of(config.block_n), kStages};
  if (!target.starts_with("sm_")) return tile;
  const GpuTarget& gpu = gpu_target(target);
  if (const auto wide = wide_tile(config, gpu)) return *wide;
  // On a GPU more keys a round, as far as registers go: fewer barriers and reductions for them.
  // More rows would leave an H200's multiprocessor one block, whose warps wait for each other.
  if (config.dtype != F32 && config.dim <= 128 && config.dim_v <= 128 && config.block_n == 128)
    tile.n = 128;
  if (!fits(config, tile, gpu, 2)) tile.stages = 1;
  for (int64_t most : {32, 16}) {
    if (!fits(config, tile, gpu, 1)) tile.n = tile_of(config.block_n, most);
    if (!fits(config, tile, gpu, 1)) tile.m = tile_of(config.block_m, most);
  }
  return tile;
}

AttentionConfig validated(AttentionConfig config, std::string_view target) {
  if (config.dtype != F16 && config.dtype != BF16 && config.dtype != F32)
    throw UserError(fmt::format("dtype: expected f16, bf16 or f32, got {}", name(config.dtype)));
  require_step("dim", config.dim, 16, 256);
  require_step("dim_v", config.dim_v, 16, 256);
  require_step("block_m", config.block_m, 16, 128);
  require_step("block_n", config.block_n, 16, 128);
  if (config.stages < AttentionConfig::kChosen || config.stages > 8)
    throw UserError(fmt::format("stages: expected 0 to 8, or -1 to choose, got {}", config.stages));
  if (config.threads < 0 || config.threads > 1024 || config.threads % 32)
    throw UserError(
        fmt::format("threads: expected 0 or a multiple of 32 up to 1024, got {}", config.threads));
  const AttentionTile tile = tile_for(config, target);
  // Threads go with the tile that they were chosen for.
  if (!config.tile_m && !config.tile_n && !config.threads) config.threads = tile.threads;
  if (config.stages == AttentionConfig::kChosen) config.stages = tile.stages;
  if (!config.tile_m) config.tile_m = tile.m;
  if (!config.tile_n) config.tile_n = tile.n;
  require_tile("tile_m", config.tile_m, "block_m", config.block_m);
  require_tile("tile_n", config.tile_n, "block_n", config.block_n);
  return config;
}

std::span<const AttentionConfig> shipped_attention_configs() {
  using enum BlockForm;
  static const std::array<AttentionConfig, 14> kShipped = {{
      {.dtype = F16, .dim = 64, .dim_v = 64, .block_m = 64, .block_n = 64, .causal = true},
      {.dtype = F16, .dim = 64, .dim_v = 64, .block_m = 128, .block_n = 128, .causal = true},
      {.dtype = F16, .dim = 128, .dim_v = 128, .block_m = 64, .block_n = 64, .causal = true},
      {.dtype = F16, .dim = 128, .dim_v = 128, .block_m = 128, .block_n = 128, .causal = true},
      {.dtype = F16, .dim = 128, .dim_v = 128, .form = Dense, .causal = true},
      {.dtype = F16, .dim = 64, .dim_v = 64, .form = Dense, .causal = true},
      {.dtype = F16, .dim = 256, .dim_v = 256, .form = Dense, .causal = true},
      {.dtype = F16, .dim = 128, .dim_v = 128, .form = Dense},
      {.dtype = F16, .dim = 128, .dim_v = 128, .form = Lists, .causal = true},
      {.dtype = F16, .dim = 128, .dim_v = 128, .form = MaskI8, .causal = true},
      {.dtype = BF16, .dim = 64, .dim_v = 64, .causal = true},
      {.dtype = BF16, .dim = 128, .dim_v = 128, .causal = true},
      {.dtype = BF16, .dim = 128, .dim_v = 128, .form = Dense, .causal = true},
      {.dtype = F32, .dim = 64, .dim_v = 64, .causal = true},
  }};
  return kShipped;
}

}  // namespace kiln
