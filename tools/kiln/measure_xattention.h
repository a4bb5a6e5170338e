// Runs XAttention's prefill on made-up inputs: time of each phase, density, error and speed-up.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/kiln/common.h"

namespace kiln::cli {

struct XattentionOptions {
  int64_t batch = 1, heads = 8, seq = 4096, dim = 128, stride = 8, block = 128, chunk = 16384;
  std::optional<int64_t> heads_kv, seq_kv;
  double threshold = 0.9, norm = 1;
  std::string dtype = "f16", data = "model";
  bool non_causal = false;
  uint64_t seed = 1;
  Device* device = nullptr;
};

// Prints to stdout. UserError if the check fails.
void measure_xattention(const XattentionOptions& options);

}  // namespace kiln::cli
