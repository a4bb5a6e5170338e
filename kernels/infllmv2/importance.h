// How important keys are whatever the query is, after NOSA (arXiv 2510.13602): a number for each
// token and kv head from its values, and the means of windows of those.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

struct ImportanceConfig {
  DType dtype = F16;       // of v and weights: f16 or bf16
  int64_t head_dim = 128;  // of v: 16 to 256, a multiple of 16
  int64_t heads_kv = 2;    // 1 to 64
  bool bias = false;
  bool operator==(const ImportanceConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it.
ImportanceConfig validated(const ImportanceConfig& config);

// v [tokens, heads_kv, head_dim]; weights [heads_kv, heads_kv, head_dim]: of each result, what
// every element of a token's v counts; amplitude, and bias if there is one, f32 [heads_kv].
// importance f32 [tokens, heads_kv]: amplitude · ln(1 + exp(Σ weights · v + bias)), without
// overflow.
Kernel importance_kernel(const ImportanceConfig& config);

struct ImportanceArgs {
  Memory v, weights, amplitude, importance;
  std::optional<Memory> bias = {};
};
// UserError naming the argument, what was expected and what came.
void check(const ImportanceConfig& config, const ImportanceArgs& args);

struct ImportanceLimits {
  int64_t tokens = 0, heads_kv = 0;
};
struct ImportanceInterface {
  using Config = ImportanceConfig;
  using Args = ImportanceArgs;
  using Limits = ImportanceLimits;
  static constexpr std::array<std::string_view, 5> kTensors = {"v", "weights", "amplitude",
                                                               "importance", "bias"};
  static Kernel kernel(const Config& config) { return importance_kernel(config); }
  static std::array<const Memory*, 5> tensors(const Args& args);
  static CallScalars<0, 0> scalars(const Config&, const Args&) { return {}; }
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits) {
    return {{"tokens", limits.tokens}, {"heads_kv", limits.heads_kv}};
  }
};
using Importance = LibraryFunction<ImportanceInterface>;
Importance token_importance(Device& device, const ImportanceConfig& config);

struct NosaMeanConfig {
  int64_t window = 32, stride = 16;  // tokens of a window, and from window to window
  bool operator==(const NosaMeanConfig&) const = default;
};
NosaMeanConfig validated(const NosaMeanConfig& config);

// importance f32 [tokens, heads_kv] of packed sequences, cu_seqlens i32 [batch + 1]. means f32
// [heads_kv, batch, windows]: of the windows that a sequence has in whole; 0 for others. The public
// code has windows = max_seqlen / 16 - 1, and repeats a sequence's row for each of its tokens.
Kernel nosa_mean_pool_kernel(const NosaMeanConfig& config);

struct NosaMeanArgs {
  Memory importance, cu_seqlens, means;
};
void check(const NosaMeanConfig& config, const NosaMeanArgs& args);

struct NosaMeanLimits {
  int64_t batch = 0, tokens = 0, heads_kv = 0, windows = 0;
};
struct NosaMeanInterface {
  using Config = NosaMeanConfig;
  using Args = NosaMeanArgs;
  using Limits = NosaMeanLimits;
  static constexpr std::array<std::string_view, 3> kTensors = {"importance", "cu_seqlens", "means"};
  static Kernel kernel(const Config& config) { return nosa_mean_pool_kernel(config); }
  static std::array<const Memory*, 3> tensors(const Args& args) {
    return {&args.importance, &args.cu_seqlens, &args.means};
  }
  static CallScalars<0, 0> scalars(const Config&, const Args&) { return {}; }
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits) {
    return {{"ends", limits.batch + 1},
            {"tokens", limits.tokens},
            {"heads_kv", limits.heads_kv},
            {"windows", limits.windows}};
  }
};
using NosaMeanPool = LibraryFunction<NosaMeanInterface>;
NosaMeanPool nosa_mean_pool(Device& device, const NosaMeanConfig& config);

// Plain float64 on host memory, in the layout of the results.
std::vector<double> importance_reference(const ImportanceConfig& config,
                                         const ImportanceArgs& args);
std::vector<double> nosa_mean_reference(const NosaMeanConfig& config, const NosaMeanArgs& args);

KernelEntry token_importance_entry();
KernelEntry nosa_mean_pool_entry();

}  // namespace kiln
