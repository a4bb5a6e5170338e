// Runs sparse decode on random caches and selections: time, bandwidth, and the check.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/kiln/common.h"
#include "tools/kiln/profile.h"

namespace kiln::cli {

// Optional ones have defaults that depend on the form: indices, mask, or paged.
struct DecodeOptions {
  int64_t batch = 8, heads = 32, heads_kv = 8, max_cache_seqlen = 8192, dim = 128, dim_v = 128;
  std::optional<double> sparse_ratio;                 // 0.8; paged 0
  std::optional<int64_t> block_size;                  // 32; paged 64
  std::optional<int64_t> page_block_size, num_pages;  // of paged: 256, 1024
  std::optional<int64_t> splits;
  std::string form = "indices", dtype = "f16";
  bool batch_invariant = false;
  uint64_t seed = 1;
  Device* device = nullptr;
  EmulatorChoice emulator;
  NamedTexts settings;  // further options of the kernel
};

// Prints to stdout. UserError if the check fails.
void measure_decode(const DecodeOptions& options);

}  // namespace kiln::cli
