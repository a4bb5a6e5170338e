#include "kernels/block_sparse_attention/visible.h"

#include <limits>

namespace kiln {
namespace {

constexpr int64_t kStrip = 16;  // keys whose values are cleared together
constexpr int64_t kHeads = 64;  // that are looked at together

}  // namespace

HeadTypes::HeadTypes(const AttentionConfig& config, const Expr& heads)
    : head_mask_type(input("head_mask_type", I32, {heads})), streaming_(config.streaming) {
  if (streaming_ != Streaming::None)
    streaming_info.emplace(input("streaming_info", I32, {heads, 2}));
}

Expr HeadTypes::sparse_before(const Expr& end) const {
  Tile sparse = alloc_fragment({1, kHeads}, I32), sum = alloc_fragment({1}, I32);
  Tile total = alloc_shared({1}, I32);
  Var before = 0;
  for (auto chunk : serial(ceildiv(end, kHeads))) {
    for (auto [i, j] : parallel(1, kHeads)) {
      auto head = chunk * kHeads + j;
      sparse(i, j) = select(head < end && head_mask_type(head) > 0, 1, 0);
    }
    reduce_sum(sparse, sum);
    copy(sum, total);
    before += total(0);
  }
  return before;
}

Expr HeadTypes::plane(const Expr& head) const {
  return sparse_before(head);
}

void HeadTypes::check(const Expr& heads, const std::optional<Expr>& planes) const {
  for (auto head : serial(heads)) {
    auto type = head_mask_type(head);
    device_assert(type <= 1, "head_mask_type: expected 0, 1 or negative");
    if (streaming_ == Streaming::None) {
      device_assert(type >= 0, "head_mask_type: expected 0 or 1 of a kernel without streaming");
      continue;
    }
    auto sink = (*streaming_info)(head, 0), local = (*streaming_info)(head, 1);
    const int64_t least = streaming_ == Streaming::Tokens ? 1 : 0;
    device_assert(type >= 0 || sink >= 0, "streaming_info: expected a sink of 0 or more");
    device_assert(type >= 0 || local >= least,
                  least ? "streaming_info: expected local tokens of 1 or more"
                        : "streaming_info: expected local blocks of 0 or more");
  }
  const Expr sparse = sparse_before(heads);
  if (planes)
    device_assert(sparse == *planes, "head_mask_type: expected as many sparse heads as planes");
  else
    device_assert(sparse == 0, "head_mask_type: expected no sparse head without a mask or lists");
}

Visible::Visible(const AttentionConfig& config, const Sequence& sequence, const HeadTypes* types,
                 const Expr& head, const Expr& first_query)
    : c_(config), sequence_(sequence), first_query_(first_query) {
  if (c_.streaming == Streaming::None) return;
  streams_.emplace(types->head_mask_type(head) < 0);
  sink_.emplace(max((*types->streaming_info)(head, 0), 0));
  local_.emplace((*types->streaming_info)(head, 1));
  // Of other heads all tokens are in front, whatever streaming_info holds.
  if (c_.streaming == Streaming::Tokens)
    sink_.emplace(select(*streams_, *sink_, std::numeric_limits<int32_t>::max()));
}

Expr Visible::keys_of_row(Arg row) const {
  if (!c_.causal) return sequence_.k_len;
  return min(sequence_.k_len, first_query_ + row + 1 + sequence_.start);
}

// A tile behind the last query sees nothing.
Expr Visible::keys() const {
  const Expr end = keys_of_row(c_.block_m - 1);
  return c_.varlen ? select(first_query_ < sequence_.q_len, end, 0) : end;
}

Expr Visible::end_block() const {
  const Expr all = ceildiv(sequence_.k_len, c_.block.k);
  if (!c_.causal) return all;
  const Expr row_end = (first_query_ / c_.block.q + 1) * c_.block.q;
  const Expr last = min(row_end, sequence_.q_len) - 1 + sequence_.start;
  return min(max(floordiv(last, c_.block.k) + 1, 0), all);
}

Expr Visible::window_begin(Arg row) const {
  return first_query_ + row + sequence_.start + 1 - *local_;
}

std::array<Expr, 2> Visible::window_tiles() const {
  if (c_.streaming == Streaming::Tokens)
    return {ceildiv(min(*sink_, keys_of_row(c_.block_m - 1)), c_.block_n),
            max(window_begin(0), 0) / c_.block_n};
  const int64_t tiles = c_.block.k / c_.block_n;
  const Expr last = end_block();
  return {min(*sink_, last) * tiles, max(last - *local_, 0) * tiles};
}

Visible::Range Visible::range() const {
  const Expr end = max(blocks(c_.block_n), 0);
  if (!streams_) return {end, end, cast(0, I32)};
  const auto [front, window] = window_tiles();
  const Expr head_end = select(*streams_, min(max(front, 0), end), end);
  const Expr window_tile = min(max(window, head_end), end);
  const Expr gap = select(*streams_, window_tile - head_end, 0);
  return {end - gap, head_end, gap};
}

void Visible::mask_scores(const Tile& s, const Expr& first_key) const {
  const Expr end_of_first = keys_of_row(0);
  if (c_.streaming != Streaming::Tokens) {
    when(first_key + c_.block_n > end_of_first, [&] {
      for (auto [i, j] : parallel(c_.block_m, c_.block_n))
        s(i, j) = select(first_key + j < keys_of_row(i), s(i, j), -infinity(F32));
    });
    return;
  }
  const Expr crosses_window =
      first_key + c_.block_n > *sink_ && first_key < window_begin(c_.block_m - 1);
  when(first_key + c_.block_n > end_of_first || crosses_window, [&] {
    for (auto [i, j] : parallel(c_.block_m, c_.block_n)) {
      const Expr key = first_key + j;
      s(i, j) = select(key < keys_of_row(i) && (key < *sink_ || key >= window_begin(i)), s(i, j),
                       -infinity(F32));
    }
  });
}

void Visible::clear_beyond(const Tile& values, const Expr& first_key) const {
  if (!sequence_.ends_inside()) return;
  const int64_t keys = values.shape()[0], width = values.shape()[1];
  when(first_key + keys > sequence_.k_len, [&] {
    for (auto strip : serial(keys / kStrip))  // a few registers at a time
      for (auto [i, d] : parallel(kStrip, width)) {
        auto j = strip * kStrip + i;
        values(j, d) = select(first_key + j < sequence_.k_len, values(j, d), 0);
      }
  });
}

}  // namespace kiln
