// Pooling over the tokens of packed sequences, after InfLLM-V2 and NOSA: means of windows of keys,
// or of importances; and the largest score of the windows that a block overlaps.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

// Windows begin every `stride` tokens of a sequence; those that would reach beyond its end are not
// there: of L tokens max(0, floor((L − window) / stride) + 1).
struct MeanPoolConfig {
  DType dtype = F16;       // of x and of the means: f16, bf16 or f32; added up in f32
  int64_t head_dim = 128;  // 1 to 512
  int64_t window = 32, stride = 16;
  bool operator==(const MeanPoolConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it.
MeanPoolConfig validated(const MeanPoolConfig& config);
int64_t windows_of(const MeanPoolConfig& config, int64_t tokens);

// x [tokens, heads, head_dim], cu_seqlens i32 [batch + 1], dim seq: no sequence is longer. Gives
// the windows' means, packed as the tokens are: pooled [windows, heads, head_dim], and cu_windows
// i32 [batch + 1]. `windows` may be more than there are: the rest is not written; of more than
// there is room for the last are lost.
Kernel mean_pool_kernel(const MeanPoolConfig& config);

struct MeanPoolArgs {
  Memory x, cu_seqlens, pooled, cu_windows;
  int64_t max_seqlen = 0;
};
void check(const MeanPoolConfig& config, const MeanPoolArgs& args);

struct MeanPoolLimits {
  int64_t batch = 0, tokens = 0, heads = 0;
};
struct MeanPoolInterface {
  using Config = MeanPoolConfig;
  using Args = MeanPoolArgs;
  using Limits = MeanPoolLimits;
  static constexpr std::array<std::string_view, 4> kTensors = {"x", "cu_seqlens", "pooled",
                                                               "cu_windows"};
  static Kernel kernel(const Config& config) { return mean_pool_kernel(config); }
  static std::array<const Memory*, 4> tensors(const Args& args) {
    return {&args.x, &args.cu_seqlens, &args.pooled, &args.cu_windows};
  }
  static CallScalars<0, 1> scalars(const Config&, const Args& args) {
    return {{}, {{args.max_seqlen}, 1}};
  }
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits) {
    return {{"ends", limits.batch + 1}, {"tokens", limits.tokens}, {"heads", limits.heads}};
  }
};
using MeanPool = LibraryFunction<MeanPoolInterface>;
MeanPool mean_pool(Device& device, const MeanPoolConfig& config);

// The largest score of the windows that overlap each block, for each query of packed sequences.
struct MaxPoolConfig {
  int64_t block = 64, stride = 16;  // tokens of a block, and from window to window: a divisor
  int64_t init = 1, local = 16;     // blocks in front, and up to the query's own, that get +inf
  // The query's own block and `local` before it; else `local` of them in all.
  bool local_inclusive = true;
  bool operator==(const MaxPoolConfig&) const = default;
};
MaxPoolConfig validated(const MaxPoolConfig& config);

// scores f32 [heads_kv, tokens, most] of windows (columns beyond a sequence's windows are not
// looked at), cu_seqlens and cu_windows i32 [batch + 1], cache_lens i32 [batch]: tokens in front of
// the sequence's first query, dim seq: no sequence has more queries. pooled f32 [heads_kv, tokens,
// blocks]: +inf where forced, else the largest score of the windows r·B − 1 … r·B + r − 1 of block
// B (r = block / stride), −inf where there is none. Blocks in the future are pooled like others.
Kernel max_pool_kernel(const MaxPoolConfig& config);

struct MaxPoolArgs {
  Memory scores, cu_seqlens, cu_windows, cache_lens, pooled;
  int64_t max_seqlen = 0;
};
void check(const MaxPoolConfig& config, const MaxPoolArgs& args);

struct MaxPoolLimits {
  int64_t batch = 0, tokens = 0, heads_kv = 0;
};
struct MaxPoolInterface {
  using Config = MaxPoolConfig;
  using Args = MaxPoolArgs;
  using Limits = MaxPoolLimits;
  static constexpr std::array<std::string_view, 5> kTensors = {"scores", "cu_seqlens", "cu_windows",
                                                               "cache_lens", "pooled"};
  static Kernel kernel(const Config& config) { return max_pool_kernel(config); }
  static std::array<const Memory*, 5> tensors(const Args& args) {
    return {&args.scores, &args.cu_seqlens, &args.cu_windows, &args.cache_lens, &args.pooled};
  }
  static CallScalars<0, 1> scalars(const Config&, const Args& args) {
    return {{}, {{args.max_seqlen}, 1}};
  }
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits) {
    return {{"ends", limits.batch + 1}, {"tokens", limits.tokens}, {"heads_kv", limits.heads_kv}};
  }
};
using MaxPool = LibraryFunction<MaxPoolInterface>;
MaxPool max_pool(Device& device, const MaxPoolConfig& config);

// Plain float64 on host memory, in the layout of the results; 0 where nothing is written.
struct MeanPoolReference {
  std::vector<double> pooled, cu_windows;
};
MeanPoolReference mean_pool_reference(const MeanPoolConfig& config, const MeanPoolArgs& args);
std::vector<double> max_pool_reference(const MaxPoolConfig& config, const MaxPoolArgs& args);

KernelEntry mean_pool_entry();
KernelEntry max_pool_entry();

}  // namespace kiln
