// The callable: checks what the caller gave, decides how to split, then launches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"
#include "kernels/sparse_decode/sparse_decode.h"
#include "runtime/cuda_device.h"

namespace kiln {
namespace {

// Blocks that a split gets where its number may depend on nothing else: 512 keys.
int64_t invariant_quota(const DecodeConfig& config) {
  return std::max<int64_t>(1, 512 / config.block);
}

// That share a multiprocessor, so that some wait for memory while one computes. Small ones are
// fastest with three (H200, docs/performance.md); larger ones have registers and shared memory for
// fewer.
int64_t resident_blocks(const DecodeConfig& config) {
  constexpr int64_t kShared = 216 << 10;  // bytes of a multiprocessor, but for small tiles
  const int64_t tiles = config.stages + (config.fp8_cache ? 1 : 0);  // one in q's dtype
  const int64_t fit = kShared / (tiles * config.tile_bytes());
  return std::clamp<int64_t>(fit, 1, config.threads <= 64 ? 3 : 2);
}

// Has an axis of extent 1 at `axis`, if it lacks one to have the rank. Strides that are too few
// stay so, for the call's own checks.
void add_axis(Memory& memory, size_t axis, size_t rank) {
  if (memory.shape.size() + 1 != rank) return;
  memory.shape.insert(memory.shape.begin() + static_cast<int64_t>(axis), 1);
  const size_t at = std::min(axis, memory.strides.size());
  memory.strides.insert(memory.strides.begin() + static_cast<int64_t>(at), 0);
}

// One for all kv heads, or one for each, as [heads_kv, 1].
void spread(Memory& scales, int64_t heads_kv) {
  if (scales.shape.size() != 1) return;
  const bool one = scales.shape[0] == 1;
  if (scales.strides.size() == 1) {
    scales.strides.push_back(1);
    if (one) scales.strides[0] = 0;
  }
  scales.shape[0] = one ? heads_kv : scales.shape[0];
  scales.shape.push_back(1);
}

// The rule tries every number of splits. A step of a decode asks what the one before it did, so a
// thread keeps its last answer.
int64_t remembered_rule(const SplitShape& shape) {
  static thread_local SplitShape asked;
  static thread_local int64_t answer = split_rule(asked);
  if (asked != shape) {
    answer = split_rule(shape);
    asked = shape;
  }
  return answer;
}

const DecodeArgs& in_full(const DecodeConfig& config, const DecodeArgs& args) {
  return DecodeInterface::in_full(config, args);
}

void check_queries(const DecodeConfig& config, const DecodeArgs& args) {
  require_rank("q", args.q, 4,
               config.tokens == 1 ? "batch, heads, dim" : "batch, tokens, heads, dim");
  const int64_t batch = args.q.shape[0], heads = args.q.shape[2];
  require_rank("k", args.k, 4,
               config.page ? "pages, page, heads_kv, dim" : "batch, room, heads_kv, dim");
  const int64_t heads_kv = args.k.shape[2];
  if (heads != heads_kv * config.group)
    throw UserError(fmt::format("q: expected {} heads, {} for each of k's {}, got {}",
                                heads_kv * config.group, config.group, heads_kv, heads));
  require_shape("q", args.q, {batch, config.tokens, heads, config.head_dim});
  require_shape("o", args.o, {batch, config.tokens, heads, config.dim_v()});
  if (present("lse", args.lse, config.lse)) {
    require_dtype("lse", *args.lse, F32);
    require_shape("lse", *args.lse, {batch, config.tokens, heads});
  }
}

void check_cache(const DecodeConfig& config, const DecodeArgs& args) {
  const int64_t batch = args.q.shape[0], heads_kv = args.k.shape[2];
  const int64_t outer = config.page ? args.k.shape[0] : batch;
  const int64_t inner = config.page ? config.page : args.k.shape[1];
  require_shape("k", args.k, {outer, inner, heads_kv, config.head_dim});
  require_shape("v", args.v, {outer, inner, heads_kv, config.dim_v()});
  require_dtype("lengths", args.lengths, I32);
  require_shape("lengths", args.lengths, {batch});
  if (present("table", args.table, config.page > 0)) {
    require_dtype("table", *args.table, I32);
    require_rank("table", *args.table, 2, "batch, slots");
    require_shape("table", *args.table, {batch, args.table->shape[1]});
  }
  for (auto [what, scales] :
       {std::pair("k_scale", &args.k_scale), std::pair("v_scale", &args.v_scale)})
    if (present(what, *scales, config.fp8_cache)) {
      require_dtype(what, **scales, F32);
      if (!has_shape(**scales, {heads_kv, 1}))
        throw UserError(fmt::format("{}: expected shape [1] or [{}], got {}", what, heads_kv,
                                    str((*scales)->shape)));
    }
  if (present("starts", args.starts, config.left_pad)) {
    require_dtype("starts", *args.starts, I32);
    require_shape("starts", *args.starts, {batch});
  }
}

void check_selection(const DecodeConfig& config, const DecodeArgs& args) {
  if (!present("chosen", args.chosen, config.form != DecodeForm::Dense)) return;
  const DType dtypes[] = {I32, Bool, I8};
  require_dtype("chosen", *args.chosen, dtypes[static_cast<int>(config.form)]);
  const bool per_token = config.per_token && config.tokens > 1;
  require_rank("chosen", *args.chosen, 4,
               per_token ? "batch, tokens, heads_kv, entries" : "batch, heads_kv, entries");
  const int64_t entries = args.chosen->shape[3];
  require_shape("chosen", *args.chosen,
                {args.q.shape[0], per_token ? config.tokens : 1, args.k.shape[2], entries});
  const int64_t blocks = ceil_div(capacity(config, args), config.block);
  if (config.form != DecodeForm::Indices && entries < blocks)
    throw UserError(
        fmt::format("chosen: expected at least {} entries for the blocks of {} keys, got {}",
                    blocks, capacity(config, args), entries));
}

}  // namespace

int64_t capacity(const DecodeConfig& config, const DecodeArgs& args) {
  return config.page ? args.table->shape[1] * config.page : args.k.shape[1];
}

float scale_of(const DecodeConfig& config, const DecodeArgs& args) {
  return args.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

void check(const DecodeConfig& config, const DecodeArgs& given) {
  const DecodeArgs& args = in_full(config, given);
  for (auto [what, tensor] : {std::pair("q", &args.q), std::pair("o", &args.o)})
    require_dtype(what, *tensor, config.dtype);
  for (auto [what, tensor] : {std::pair("k", &args.k), std::pair("v", &args.v)})
    require_dtype(what, *tensor, config.cache());
  check_queries(config, args);
  check_cache(config, args);
  check_selection(config, args);
  const float scale = scale_of(config, args);
  if (!(scale > 0) || !std::isfinite(scale))
    throw UserError(fmt::format("scale: expected a finite number above 0, got {}", scale));
  if (args.splits && (*args.splits < 1 || *args.splits > kMostSplits))
    throw UserError(fmt::format("splits: expected 1 to {}, got {}", kMostSplits, *args.splits));
  if (args.splits && args.batch_invariant)
    throw UserError("splits: expected none with batch_invariant, which chooses them");
  const int64_t quota =
      split_plan(config, args, std::max<int64_t>(1, config.multiprocessors)).quota;
  if (config.form != DecodeForm::Dense && quota > kMostListedBlocks)
    throw UserError(fmt::format("splits: expected at most {} blocks of keys each, got {}",
                                kMostListedBlocks, quota));
}

SplitPlan split_plan(const DecodeConfig& config, const DecodeArgs& given, int64_t multiprocessors) {
  const DecodeArgs& args = in_full(config, given);
  int64_t blocks = ceil_div(capacity(config, args), config.block);
  if (args.chosen) blocks = std::min(blocks, args.chosen->shape[3]);
  blocks = std::max<int64_t>(blocks, 1);
  if (!config.split) return {1, blocks};
  if (args.batch_invariant) {
    const int64_t quota = invariant_quota(config);
    return {std::min(ceil_div(blocks, quota), kMostSplits), quota};
  }
  const int64_t units = args.k.shape[2] * config.units();
  const int64_t bytes = blocks * config.block * (config.head_dim + config.dim_v()) *
                        static_cast<int64_t>(size_of(config.cache()));
  const int64_t by_rule =
      remembered_rule({.tiles = args.q.shape[0] * units,
                       .multiprocessors = multiprocessors * resident_blocks(config),
                       .blocks = blocks,
                       .query_tiles = config.units(),
                       .bytes = bytes});
  // Sequences may be shorter than the longest: pieces small enough that those left at the end are
  // dealt out well, and large enough to be worth a merge.
  constexpr int64_t kMostBytes = 2 << 20;
  const int64_t pieces = std::max(ceil_div(blocks, kMostListedBlocks), ceil_div(bytes, kMostBytes));
  const int64_t at_least = std::min(pieces, kMostSplits);
  const int64_t quota = ceil_div(blocks, args.splits.value_or(std::max(by_rule, at_least)));
  return {ceil_div(blocks, quota), quota};
}

// Of a GPU; what is not one takes blocks one after another.
static int64_t multiprocessors(Device& device) {
  const auto* gpu = dynamic_cast<const CudaDevice*>(&device);
  return gpu ? gpu->context().properties().multiprocessors : 1;
}

SparseDecode sparse_decode(Device& device, const DecodeConfig& config) {
  DecodeConfig complete = validated(config);
  Device& chosen = device_for(device, config.target);
  if (!complete.multiprocessors) complete.multiprocessors = multiprocessors(chosen);
  return {chosen, complete};
}

// In memory of the thread's own, whose shapes have room after its first call.
const DecodeArgs& DecodeInterface::in_full(const Config& config, const Args& given) {
  static thread_local DecodeArgs args;
  if (&given != &args) args = given;
  if (config.tokens == 1) {
    add_axis(args.q, 1, 4);
    add_axis(args.o, 1, 4);
    if (args.lse) add_axis(*args.lse, 1, 3);
  }
  if (config.fp8_cache && args.k.shape.size() == 4)
    for (auto* scales : {&args.k_scale, &args.v_scale})
      if (*scales) spread(**scales, args.k.shape[2]);
  if (args.chosen && !(config.per_token && config.tokens > 1)) add_axis(*args.chosen, 1, 4);
  return args;
}

std::array<const Memory*, 11> DecodeInterface::tensors(const Args& args) {
  return {&args.q,
          &args.k,
          &args.v,
          &args.o,
          &args.lengths,
          given(args.chosen),
          given(args.table),
          given(args.starts),
          given(args.k_scale),
          given(args.v_scale),
          given(args.lse)};
}

CallScalars<2, 1> DecodeInterface::scalars(const Config& config, const Args& args) {
  const Scalar scale = Scalar::of_float(F32, scale_of(config, args));
  if (!config.split) return {{{scale}, 1}, {{}, 0}};
  const SplitPlan plan = split_plan(config, args, config.multiprocessors);
  return {{{scale, Scalar::of_int(I32, plan.quota)}}, {{plan.splits}}};
}

Limits DecodeInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch}, {"heads_kv", limits.heads_kv}, {"splits", limits.splits}};
}

}  // namespace kiln
