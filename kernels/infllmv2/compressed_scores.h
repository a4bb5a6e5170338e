// How much each query attends to each window of compressed keys, added up over the query heads of a
// kv head: the scores by which InfLLM-V2 chooses blocks.
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

// Windows are mean_pool's: window m holds the tokens stride·m … stride·m + window − 1 of its
// sequence, and a query sees it, if causal, from its last token's position on. The softmax is over
// the windows that the query sees or, coarse, its sum is that over windows of `coarse_window` from
// `coarse_stride` to `coarse_stride` tokens: a quarter as many, so that the scores of a row add up
// to `group` only nearly. A row that sees no window of its softmax has scores 0.
struct CompressedConfig {
  DType dtype = F16;       // of q and the compressed keys: f16 or bf16
  int64_t head_dim = 128;  // 16 to 256, a multiple of 16
  int64_t group = 16;      // query heads of a kv head: 1 to 64
  int64_t window = 32, stride = 16;
  bool causal = true;
  bool coarse = false;
  int64_t coarse_window = 128, coarse_stride = 64;
  bool operator==(const CompressedConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it.
CompressedConfig validated(const CompressedConfig& config);

// q [tokens, heads_kv · group, head_dim], cu_seqlens i32 [batch + 1] of queries, cache_lens i32
// [batch]: tokens in front of a sequence's first query; keys [windows, heads_kv, head_dim] with
// cu_windows i32 [batch + 1]; coarse: coarse_keys and cu_coarse as well; param scale f32, dim seq:
// no sequence has more queries. scores f32 [heads_kv, tokens, most]: 0 where a window is not seen
// or not there. Tokens of no sequence are not written.
Kernel compressed_scores_kernel(const CompressedConfig& config);

struct CompressedArgs {
  Memory q, keys, cu_seqlens, cu_windows, cache_lens, scores;
  std::optional<Memory> coarse_keys = {}, cu_coarse = {};
  int64_t max_seqlen = 0;
  std::optional<float> scale = {};  // 1 / sqrt(head_dim) if not given
};
// UserError naming the argument, what was expected and what came.
void check(const CompressedConfig& config, const CompressedArgs& args);

struct CompressedLimits {
  int64_t batch = 0, tokens = 0, heads_kv = 0;
};
struct CompressedInterface {
  using Config = CompressedConfig;
  using Args = CompressedArgs;
  using Limits = CompressedLimits;
  static constexpr std::array<std::string_view, 8> kTensors = {
      "q", "keys", "cu_seqlens", "cu_windows", "cache_lens", "scores", "coarse_keys", "cu_coarse"};
  static Kernel kernel(const Config& config) { return compressed_scores_kernel(config); }
  static std::array<const Memory*, 8> tensors(const Args& args);
  static CallScalars<1, 1> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits) {
    return {{"ends", limits.batch + 1}, {"tokens", limits.tokens}, {"heads_kv", limits.heads_kv}};
  }
};
using CompressedScores = LibraryFunction<CompressedInterface>;
CompressedScores compressed_scores(Device& device, const CompressedConfig& config);

// Plain float64 on host memory; 0 where nothing is written.
std::vector<double> compressed_reference(const CompressedConfig& config,
                                         const CompressedArgs& args);

KernelEntry compressed_scores_entry();

}  // namespace kiln
