// Runs block-sparse attention on random inputs: time, speed and, if asked for, accuracy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tools/kiln/common.h"
#include "tools/kiln/profile.h"

namespace kiln::cli {

struct MeasureOptions {
  int64_t batch = 1, heads = 8, seq = 4096, dim = 128, block = 64;
  std::optional<int64_t> heads_kv, seq_kv, dim_v, top_k;
  std::optional<double> threshold, density, scale;
  std::string dtype = "f16";
  std::string form;  // empty: mask
  bool causal = false, force_first = false, dense_last = false;
  bool check = false, compare_dense = false;
  uint64_t seed = 1;
  Device* device = nullptr;
  EmulatorChoice emulator;
  NamedTexts settings;  // further options of the kernel
};

// Prints to stdout. UserError if the check fails.
void measure_attention(const MeasureOptions& options);

}  // namespace kiln::cli
