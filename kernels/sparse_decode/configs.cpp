// What decode may be compiled for, and how it is tiled.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "ir/error.h"
#include "kernels/sparse_decode/sparse_decode.h"

namespace kiln {
namespace {

constexpr int64_t kMostRows = 128;          // of a tile of queries
constexpr int64_t kTileBytes = 48 << 10;    // of keys and values
constexpr int64_t kStagedBytes = 64 << 10;  // of all stages, so that blocks share a multiprocessor

void require_step(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high || value % 16)
    throw UserError(fmt::format("{}: expected a multiple of 16 from {} to {}, got {}", field, low,
                                high, value));
}

void require_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError(fmt::format("{}: expected {} to {}, got {}", field, low, high, value));
}

}  // namespace

// As many keys as lie in one block and one page, but no more than leave room for a few tiles.
int64_t DecodeConfig::tile() const {
  const int64_t whole = page ? std::gcd(block, page) : block;
  const int64_t bytes = (head_dim + dim_v()) * static_cast<int64_t>(size_of(cache()));
  int64_t tile = whole;
  for (int64_t parts = 1; tile % 16 || whole % tile || (tile > 16 && tile * bytes > kTileBytes);)
    tile = whole / ++parts;
  return tile;
}

int64_t DecodeConfig::tile_bytes() const {
  return tile() * (head_dim + dim_v()) * static_cast<int64_t>(size_of(cache()));
}

int64_t DecodeConfig::heads_tile() const {
  int64_t heads = std::min(group, kMostRows / tokens_tile());
  while (group % heads) --heads;
  return heads;
}

DecodeConfig validated(DecodeConfig config) {
  if (config.dtype != F16 && config.dtype != BF16)
    throw UserError(fmt::format("dtype: expected f16 or bf16, got {}", name(config.dtype)));
  require_step("head_dim", config.head_dim, 16, 256);
  if (!config.head_dim_v) config.head_dim_v = config.head_dim;
  require_step("head_dim_v", config.head_dim_v, 16, 256);
  require_range("group", config.group, 1, 1024);
  require_range("tokens", config.tokens, 1, 8);
  require_step("block", config.block, 16, 128);
  if (config.page) require_step("page", config.page, 16, 65536);
  if (config.per_token && config.form == DecodeForm::Dense)
    throw UserError("per_token: expected false without a selection, got true");
  require_range("stages", config.stages, 0, 8);
  require_range("multiprocessors", config.multiprocessors, 0, 1 << 16);
  if (config.threads < 0 || config.threads > 1024 || config.threads % 32)
    throw UserError(
        fmt::format("threads: expected 0 or a multiple of 32 up to 1024, got {}", config.threads));
  // A tile in q's dtype needs as much again.
  const int64_t staged = config.fp8_cache ? kStagedBytes / 2 : kStagedBytes;
  if (!config.stages) config.stages = std::clamp<int64_t>(staged / config.tile_bytes(), 2, 8);
  // Two warps for a tile of 16 rows: fewer wait for each other. Measured (docs/performance.md).
  const int64_t rows = config.rows();
  const bool large = rows > 64 || rows * config.dim_v() > 64 * 128;  // of results, in registers
  if (!config.threads) config.threads = large ? 256 : rows > 16 ? 128 : 64;
  return config;
}

std::span<const DecodeConfig> shipped_decode_configs() {
  using enum DecodeForm;
  static const std::array<DecodeConfig, 8> kShipped = {{
      {.dtype = F16, .block = 64},
      {.dtype = F16, .block = 32},
      {.dtype = F16, .group = 16, .block = 64},
      {.dtype = F16, .block = 64, .form = MaskBool},
      {.dtype = F16, .block = 64, .form = Dense},
      {.dtype = F16, .block = 64, .page = 256},
      {.dtype = F16, .block = 64, .page = 16},
      {.dtype = BF16, .block = 64},
  }};
  return kShipped;
}

}  // namespace kiln
