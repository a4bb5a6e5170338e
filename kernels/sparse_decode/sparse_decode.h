// Sparse decode: one to eight new tokens a sequence against a long cache of keys and values, of
// which selected blocks are read. Configuration, kernel, the callable, and the reference.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "kernels/library_function.h"
#include "kernels/sparse_decode/splits.h"

namespace kiln {

// How a caller says which blocks of the cache are read.
enum class DecodeForm : uint8_t { Indices, MaskBool, MaskI8, Dense };

// What a kernel is compiled for; everything else (batch, kv heads, capacities, strides, splits) is
// known at launch.
struct DecodeConfig {
  DType dtype = F16;       // of q, k, v, o: f16 or bf16
  bool fp8_cache = false;  // k and v are e4m3, with a scale a tensor or kv head
  int64_t head_dim = 128;  // of q and k, 16 to 256, a multiple of 16
  int64_t head_dim_v = 0;  // of v and o, likewise; 0: as head_dim
  int64_t group = 4;       // query heads that share a kv head
  int64_t tokens = 1;      // new tokens a sequence, 1 to 8: its last, causal
  int64_t block = 64;      // keys of a block, 16 to 128, a multiple of 16
  int64_t page = 0;        // keys of a page, a multiple of 16; 0: the cache is contiguous
  DecodeForm form = DecodeForm::Indices;
  bool per_token = false;  // each token has a selection of its own
  bool left_pad = false;   // the first keys of a sequence may be padding
  bool lse = false;        // also write the natural-log sum of exponentials
  bool split = true;       // splits are merged by a second launch; else there is one
  bool checked = false;    // lengths and page tables are looked at as the kernel runs
  bool fast_math = true;
  int64_t stages = 0;           // tiles of keys prefetched, 1 to 8; 0: chosen
  int64_t threads = 0;          // of a block of the first launch; 0: chosen
  int64_t multiprocessors = 0;  // that splits keep busy; 0: the device's
  std::string target = {};      // "sm_80"; empty: the device's

  int64_t dim_v() const { return head_dim_v ? head_dim_v : head_dim; }
  DType cache() const { return fp8_cache ? E4M3 : dtype; }
  int64_t tile() const;        // keys computed together: they lie in one block and page
  int64_t tile_bytes() const;  // of its keys and values
  int64_t heads_tile() const;  // query heads computed together, a divisor of the group
  int64_t tokens_tile() const { return per_token ? 1 : tokens; }
  int64_t rows() const { return heads_tile() * tokens_tile(); }  // of a tile of queries
  int64_t units() const { return tokens / tokens_tile() * (group / heads_tile()); }  // a kv head
  bool operator==(const DecodeConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it with what is left open
// filled in.
DecodeConfig validated(DecodeConfig config);
// The configurations that are measured and tested one by one.
std::span<const DecodeConfig> shipped_decode_configs();

// The DSL program. Its interface: q and o [batch, tokens, heads_kv·group, …], k and v [batch, room,
// heads_kv, …] or [pages, page, heads_kv, …], lengths i32 [batch], table i32 [batch, slots] if
// paged, starts i32 [batch] if left padded, chosen [batch, tokens or 1, heads_kv, entries] unless
// dense, k_scale and v_scale f32 [heads_kv, 1] of an fp8 cache, lse f32 [batch, tokens, heads] if
// asked for; param scale f32; if split, dim splits and param quota i32 (blocks of a split).
Kernel sparse_decode_kernel(const DecodeConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis. Without tokens, q, o and
// lse may lack that axis. `chosen` is block_indices i32 or block_mask [batch, heads_kv, entries]
// or, if selected per token, [batch, tokens, heads_kv, entries]. k_scale and v_scale, f32 [1] or
// [heads_kv], are what an fp8 cache is to be multiplied by: finite, k's above 0.
struct DecodeArgs {
  Memory q, k, v, o, lengths;
  std::optional<Memory> chosen = {}, table = {}, starts = {}, k_scale = {}, v_scale = {}, lse = {};
  std::optional<float> scale = {};     // 1 / sqrt(head_dim) if not given
  std::optional<int64_t> splits = {};  // at most so many a sequence; chosen if not given
  bool batch_invariant = false;        // splits follow from each sequence alone
};
// UserError naming the argument, what was expected and what came.
void check(const DecodeConfig& config, const DecodeArgs& args);
float scale_of(const DecodeConfig& config, const DecodeArgs& args);
int64_t capacity(const DecodeConfig& config, const DecodeArgs& args);  // keys of a sequence
// How the work of a call is split on a device of so many multiprocessors.
SplitPlan split_plan(const DecodeConfig& config, const DecodeArgs& args, int64_t multiprocessors);

struct DecodeLimits {
  int64_t batch = 0, heads_kv = 0, splits = kMostSplits;
};
struct DecodeInterface {
  using Config = DecodeConfig;
  using Args = DecodeArgs;
  using Limits = DecodeLimits;
  static constexpr std::array<std::string_view, 11> kTensors = {
      "q", "k", "v", "o", "lengths", "chosen", "table", "starts", "k_scale", "v_scale", "lse"};
  static Kernel kernel(const Config& config) { return sparse_decode_kernel(config); }
  static std::array<const Memory*, 11> tensors(const Args& args);
  static CallScalars<2, 1> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static const Args& in_full(const Config& config, const Args& args);  // until the thread's next
  static kiln::Limits dims(const Limits& limits);
};
using SparseDecode = LibraryFunction<DecodeInterface>;
// Traces and compiles, or loads what was compiled before.
SparseDecode sparse_decode(Device& device, const DecodeConfig& config);

// Plain float64 decode on host memory; o and lse of the arguments are not touched. o is [batch,
// tokens, heads, dim_v], lse [batch, tokens, heads].
struct DecodeReference {
  std::vector<double> o, lse;
};
DecodeReference decode_reference(const DecodeConfig& config, const DecodeArgs& args);

// Work of a call: each selected key that some query sees, once a kv head (and token, if it
// selects).
struct DecodeWork {
  int64_t keys = 0;
  double flops = 0, bytes = 0;
};
DecodeWork decode_work(const DecodeConfig& config, const DecodeArgs& args);

}  // namespace kiln
