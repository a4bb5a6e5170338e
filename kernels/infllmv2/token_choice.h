// The blocks of keys that each query token attends to, a list for each kv head: the best of pooled
// scores, after InfLLM-V2, or in two stages with an importance that does not depend on the query,
// after NOSA (arXiv 2509.24663, 2510.13602).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

struct TokenChoiceConfig {
  int64_t topk = 64;   // blocks of a list, 1 to 128: not fewer than are forced
  int64_t block = 64;  // tokens of a block
  // Blocks that max_pool forces: `init` in front, the query's own, and `local` before it; without
  // local_inclusive the query's own is one of them.
  int64_t init = 1, local = 16;
  bool local_inclusive = true;
  // Two stages: init + local + select blocks by the scores, then those first and the others by
  // importance. `stride`: tokens from window to window of the importances, a divisor of block.
  bool nosa = false;
  int64_t select = 16, stride = 16;
  static constexpr int64_t kMostBlocks = 8192;  // of a row, with two stages
  bool operator==(const TokenChoiceConfig&) const = default;

  int64_t forced() const { return init + local + (local_inclusive ? 1 : 0); }
};
// UserError naming the field, its legal values and what it is; returns it.
TokenChoiceConfig validated(const TokenChoiceConfig& config);

// scores f32 [heads_kv, tokens, blocks] as max_pool gives them, cu_seqlens i32 [batch + 1],
// cache_lens i32 [batch]: tokens in front of the sequence's first query; dim seq: no sequence has
// more queries. Of NOSA importance f32 [heads_kv, batch, windows] and cu_windows i32 [batch + 1]:
// entries of a sequence beyond its windows are not looked at. indices i32 [heads_kv, tokens, topk]:
// blocks in ascending order, never one behind the query's own, -1 after the last; equal scores go
// by the lower block, and -inf and NaN are never chosen.
Kernel token_choice_kernel(const TokenChoiceConfig& config);

struct TokenChoiceArgs {
  Memory scores, cu_seqlens, cache_lens, indices;
  std::optional<Memory> importance = {}, cu_windows = {};
  int64_t max_seqlen = 0;
};
// UserError naming the argument, what was expected and what came.
void check(const TokenChoiceConfig& config, const TokenChoiceArgs& args);

struct TokenChoiceLimits {
  int64_t batch = 0, tokens = 0, heads_kv = 0;
};
struct TokenChoiceInterface {
  using Config = TokenChoiceConfig;
  using Args = TokenChoiceArgs;
  using Limits = TokenChoiceLimits;
  static constexpr std::array<std::string_view, 6> kTensors = {
      "scores", "cu_seqlens", "cache_lens", "indices", "importance", "cu_windows"};
  static Kernel kernel(const Config& config) { return token_choice_kernel(config); }
  static std::array<const Memory*, 6> tensors(const Args& args);
  static CallScalars<0, 1> scalars(const Config&, const Args& args) {
    return {{}, {{args.max_seqlen}, 1}};
  }
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits) {
    return {{"ends", limits.batch + 1}, {"tokens", limits.tokens}, {"heads_kv", limits.heads_kv}};
  }
};
using TokenChoice = LibraryFunction<TokenChoiceInterface>;
TokenChoice token_choice(Device& device, const TokenChoiceConfig& config);

// Plain loops on host memory; -1 where no sequence is.
std::vector<double> token_choice_reference(const TokenChoiceConfig& config,
                                           const TokenChoiceArgs& args);

KernelEntry token_choice_entry();

}  // namespace kiln
