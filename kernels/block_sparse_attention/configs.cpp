// What block-sparse attention may be compiled for, and the tile it uses.
#include <fmt/format.h>

#include <algorithm>
#include <array>

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

void require_block(BlockShape block) {
  for (int64_t extent : {block.q, block.k})
    if (extent < 16 || extent > 128 || extent % 16)
      throw UserError(
          fmt::format("block: expected a multiple of 16 from 16 to 128, got {}", str(block)));
}

void require_tile(const char* field, int64_t tile, const char* what, int64_t block) {
  if (tile < 16 || tile % 16 || block % tile)
    throw UserError(
        fmt::format("{}: expected a multiple of 16 that divides the block's {} {}, "
                    "got {}",
                    field, block, what, tile));
}

// What the public interface (spec of block_sparse_attn_func) has and we have not, and what does not
// go together.
void check_interface(const AttentionConfig& config) {
  if (config.streaming != Streaming::None && !config.head_types)
    throw UserError("streaming: expected none without head_types, which says what heads stream");
  if (config.streaming == Streaming::Tokens && !config.causal)
    throw UserError("streaming: expected blocks or none without causal, got tokens");
  if (config.per_kv_head && config.head_types)
    throw UserError("per_kv_head: expected false with head_types, where sparse heads have planes");
  if (config.p_dropout != 0)
    throw UserError(fmt::format("p_dropout: expected 0, got {}; no kernel drops probabilities",
                                config.p_dropout));
  if (config.backward) throw UserError("backward: expected false; only the forward pass is there");
}

// Tiles of 64 are within a few percent of the best on every head dimension and dtype; smaller than
// 32 they are slow, so a block without a divisor between stays whole unless `most` is less.
int64_t tile_of(int64_t block, int64_t most = 64) {
  for (int64_t tile = most; tile >= std::min<int64_t>(most, 32); tile -= 16)
    if (block % tile == 0) return tile;
  return block;
}

constexpr int64_t kStages = 2;
constexpr int64_t kOther = 2560;  // bytes of shared memory: the list of blocks; the system's share

// Does a multiprocessor have shared memory for so many blocks of threads with q, k, v and, where
// mma does not take it from registers, p?
bool fits(const AttentionConfig& config, const AttentionTile& tile, const GpuTarget& gpu,
          int64_t blocks) {
  int64_t elements = tile.m * config.head_dim + std::max<int64_t>(1, tile.stages) * tile.n *
                                                    (config.head_dim + config.dim_v());
  if (config.dtype == F32) elements += tile.m * tile.n;
  const int64_t bytes = elements * static_cast<int64_t>(size_of(config.dtype));
  return bytes <= gpu.shared_per_block &&
         blocks * (bytes + kOther) <= gpu.shared_per_multiprocessor;
}

}  // namespace

AttentionTile tile_for(const AttentionConfig& config, std::string_view target) {
  AttentionTile tile{tile_of(config.block.q), tile_of(config.block.k), kStages};
  if (!target.starts_with("sm_")) return tile;
  const GpuTarget& gpu = gpu_target(target);
  // On a GPU more keys a round, as far as registers go: fewer barriers and reductions for them.
  // More rows would leave an H200's multiprocessor one block, whose warps wait for each other; or,
  // with 32 rows a warp, need a few registers too many: 128 x 64 by four warps reaches 308 and 335
  // TFLOP/s at 10 % and 30 % where 64 x 128 reaches 301 and 306, but spills.
  if (config.dtype != F32 && config.head_dim <= 128 && config.dim_v() <= 128 &&
      config.block.k == 128) {
    tile.n = 128;
    tile.stages = 1;
    // Each page is a copy of its own, and many small ones take registers.
    const bool small_pages = config.page && config.page < 64;
    if (small_pages || !fits(config, tile, gpu, 2)) tile.n = 64;
    tile.stages = kStages;
  }
  if (!fits(config, tile, gpu, 2)) tile.stages = 1;
  for (int64_t most : {32, 16}) {
    if (!fits(config, tile, gpu, 1)) tile.n = tile_of(config.block.k, most);
    if (!fits(config, tile, gpu, 1)) tile.m = tile_of(config.block.q, most);
  }
  return tile;
}

AttentionConfig validated(AttentionConfig config, std::string_view target) {
  if (config.dtype != F16 && config.dtype != BF16 && config.dtype != F32)
    throw UserError(fmt::format("dtype: expected f16, bf16 or f32, got {}", name(config.dtype)));
  require_step("head_dim", config.head_dim, 16, 256);
  if (!config.head_dim_v) config.head_dim_v = config.head_dim;
  require_step("head_dim_v", config.head_dim_v, 16, 256);
  require_block(config.block);
  if (config.stages < AttentionConfig::kChosen || config.stages > 8)
    throw UserError(fmt::format("stages: expected 0 to 8, or -1 to choose, got {}", config.stages));
  if (config.threads < 0 || config.threads > 1024 || config.threads % 32)
    throw UserError(
        fmt::format("threads: expected 0 or a multiple of 32 up to 1024, got {}", config.threads));
  check_page(config.page);
  if (config.page) config.lengths = true;
  check_interface(config);
  if (!config.target.empty()) target = config.target;
  const AttentionTile tile = tile_for(config, target);
  // Threads go with the tile that they were chosen for.
  if (!config.block_m && !config.block_n && !config.threads) config.threads = tile.threads;
  if (config.stages == AttentionConfig::kChosen) config.stages = tile.stages;
  // Scores a tile ahead: on an H200 between 7 % slower (dense, 64 x 64) and 5 % faster (sparse).
  if (config.schedule == Schedule::Auto) config.schedule = Schedule::Serial;
  if (!config.block_m) config.block_m = tile.m;
  if (!config.block_n) config.block_n = tile.n;
  require_tile("block_m", config.block_m, "queries", config.block.q);
  require_tile("block_n", config.block_n, "keys", config.block.k);
  return config;
}

std::span<const AttentionConfig> shipped_attention_configs() {
  using enum BlockForm;
  static const std::array<AttentionConfig, 16> kShipped = {{
      {.dtype = F16, .head_dim = 64, .block = 64, .causal = true},
      {.dtype = F16, .head_dim = 64, .block = 128, .causal = true},
      {.dtype = F16, .head_dim = 128, .block = 64, .causal = true},
      {.dtype = F16, .head_dim = 128, .block = 128, .causal = true},
      {.dtype = F16, .head_dim = 128, .causal = true, .form = Dense},
      {.dtype = F16, .head_dim = 64, .causal = true, .form = Dense},
      {.dtype = F16, .head_dim = 256, .causal = true, .form = Dense},
      {.dtype = F16, .head_dim = 128, .form = Dense},
      {.dtype = F16, .head_dim = 128, .causal = true, .form = Lists},
      {.dtype = F16, .head_dim = 128, .causal = true, .form = MaskI8},
      {.dtype = BF16, .head_dim = 64, .causal = true},
      {.dtype = BF16, .head_dim = 128, .causal = true},
      {.dtype = BF16, .head_dim = 128, .causal = true, .form = Dense},
      {.dtype = F32, .head_dim = 64, .causal = true},
      {.block = 128, .causal = true, .form = Lists, .varlen = true},
      {.block = 128, .causal = true, .varlen = true, .page = 64},
  }};
  return kShipped;
}

}  // namespace kiln
