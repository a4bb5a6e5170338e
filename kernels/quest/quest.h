// Which blocks of a long cache a new token reads, after Quest (arXiv 2406.10774) and ReSA: each
// block's keys are known by their elementwise minimum and maximum, by which no key of it can score
// more than the block's score. Kernels for both steps, and how they are called; the choice itself,
// on the host.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/kernel.h"
#include "kernels/library_function.h"
#include "kernels/registry.h"
#include "runtime/array.h"

namespace kiln {

struct QuestConfig {
  DType dtype = F16;       // of q, the keys, their minima and maxima: f16, bf16 or f32
  int64_t head_dim = 128;  // 1 to 512
  int64_t block = 16;      // keys of a block, 1 to 256
  int64_t local = 1;  // blocks at the end that are chosen whatever they hold; of the scores alone
  std::string target = {};  // "sm_80"; empty: the device's
};
// UserError naming the field, its legal values and what it is; returns it.
QuestConfig validated(const QuestConfig& config);

// k [batch, room, heads_kv, dim] and lengths i32 [batch] (keys that are there) give kmin and kmax
// [batch, ceil(room / block), heads_kv, dim]: of each block's keys, 0 where it has none. What lies
// behind a length is not used.
Kernel minmax_pool_kernel(const QuestConfig& config);

// q [batch, heads, dim], kmin and kmax [batch, blocks, heads_kv, dim], lengths i32 [batch], param
// scale f32 give scores f32 [batch, heads_kv, blocks]: the sum over d of max(q̄[d]·kmin[d],
// q̄[d]·kmax[d]), q̄ = scale · the mean of the kv head's queries; +∞ for the last `local` blocks
// that have keys, −∞ for those that have none.
Kernel quest_score_kernel(const QuestConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis.
struct MinmaxPoolArgs {
  Memory k, lengths, kmin, kmax;
};
struct MinmaxPoolLimits {
  int64_t batch = 0, room = 0, heads_kv = 0;
};
struct MinmaxPoolInterface {
  using Config = QuestConfig;
  using Args = MinmaxPoolArgs;
  using Limits = MinmaxPoolLimits;
  static constexpr std::array<std::string_view, 4> kTensors = {"k", "lengths", "kmin", "kmax"};
  static Kernel kernel(const Config& config) { return minmax_pool_kernel(config); }
  static std::array<const Memory*, 4> tensors(const Args& args) {
    return {&args.k, &args.lengths, &args.kmin, &args.kmax};
  }
  static CallScalars<0> scalars(const Config&, const Args&) { return {}; }
  static void check(const Config&, const Args&) {}
  static kiln::Limits dims(const Limits& limits) {
    return {{"batch", limits.batch}, {"room", limits.room}, {"heads_kv", limits.heads_kv}};
  }
};
using MinmaxPool = LibraryFunction<MinmaxPoolInterface>;
MinmaxPool minmax_pool(Device& device, const QuestConfig& config);

struct QuestScoreArgs {
  Memory q, kmin, kmax, lengths, scores;
  std::optional<float> scale = {};  // 1 / sqrt(head_dim) if not given
};
struct QuestScoreLimits {
  int64_t batch = 0, heads = 0, heads_kv = 0, blocks = 0;
};
struct QuestScoreInterface {
  using Config = QuestConfig;
  using Args = QuestScoreArgs;
  using Limits = QuestScoreLimits;
  static constexpr std::array<std::string_view, 5> kTensors = {"q", "kmin", "kmax", "lengths",
                                                               "scores"};
  static Kernel kernel(const Config& config) { return quest_score_kernel(config); }
  static std::array<const Memory*, 5> tensors(const Args& args) {
    return {&args.q, &args.kmin, &args.kmax, &args.lengths, &args.scores};
  }
  static CallScalars<1> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args);
  static kiln::Limits dims(const Limits& limits) {
    return {{"batch", limits.batch},
            {"heads", limits.heads},
            {"heads_kv", limits.heads_kv},
            {"blocks", limits.blocks}};
  }
};
using QuestScore = LibraryFunction<QuestScoreInterface>;
QuestScore quest_score(Device& device, const QuestConfig& config);

// How many blocks of a sequence are kept: ceil(length · (1 − sparse_ratio) / block), at least
// `least` and one, but not more than there are. UserError unless 0 <= sparse_ratio <= 1.
int64_t kept_blocks(int64_t length, int64_t block, double sparse_ratio, int64_t least = 1);

// From scores [batch, heads_kv, blocks] of any float dtype and lengths i32 [batch]: the numbers of
// the last block that has keys and of the others with the highest scores, as many as kept_blocks
// says; of equal ones the lower number, NaN last. I32 [batch, heads_kv, most], ascending, −1
// behind.
Array select_blocks(const Memory& scores, const Memory& lengths, int64_t block, double sparse_ratio,
                    int64_t least = 1);

KernelEntry minmax_pool_entry();
KernelEntry quest_score_entry();

}  // namespace kiln
