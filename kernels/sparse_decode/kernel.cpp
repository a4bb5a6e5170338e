// Decode in two launches: splits of each sequence's selected blocks, with an online softmax, then
// the merge of their parts. The query heads that share a kv head, and the new tokens, are the rows
// of a tile, so that keys and values are read once for all of them.
#include "dsl/dsl.h"
#include "kernels/sparse_decode/blocks.h"
#include "kernels/sparse_decode/sparse_decode.h"

namespace kiln {
namespace {

constexpr int64_t kStrip = 16;    // keys
constexpr int64_t kTogether = 8;  // parts that the merge adds at once

Expr number(int64_t value) {
  return cast(value, I32);
}

std::optional<Dim> optional_dim(bool wanted, const char* name) {
  return wanted ? std::optional(dim(name)) : std::nullopt;
}

struct Interface {
  const DecodeConfig& c;
  const bool listed = c.form != DecodeForm::Dense;
  Dim batch = dim("batch"), heads_kv = dim("heads_kv");
  Dim room = dim(c.page ? "pages" : "room");  // of k and v; else keys of a sequence
  std::optional<Dim> slots = optional_dim(c.page, "slots");
  std::optional<Dim> entries = optional_dim(listed, "entries");
  std::optional<Dim> splits = optional_dim(c.split, "splits");
  Tensor q = input("q", c.dtype, {batch, c.tokens, heads_kv* c.group, c.head_dim});
  Tensor k = cache("k", c.head_dim), v = cache("v", c.dim_v());
  Tensor o = output("o", c.dtype, {batch, c.tokens, heads_kv* c.group, c.dim_v()});
  Tensor lengths = input("lengths", I32, {batch});
  std::optional<Tensor> table, starts, chosen, k_scale, v_scale, lse, parts, part_lse;
  Expr scale = param("scale", F32);
  std::optional<Expr> quota;  // blocks of a split

  explicit Interface(const DecodeConfig& config) : c(config) {
    if (c.page) table.emplace(input("table", I32, {batch, *slots}));
    if (c.left_pad) starts.emplace(input("starts", I32, {batch}));
    const DType of_mask = c.form == DecodeForm::MaskBool ? Bool : I8;
    if (listed)
      chosen.emplace(input("chosen", c.form == DecodeForm::Indices ? I32 : of_mask,
                           {batch, c.tokens / c.tokens_tile(), heads_kv, *entries}));
    if (c.fp8_cache) {
      k_scale.emplace(input("k_scale", F32, {heads_kv, 1}));
      v_scale.emplace(input("v_scale", F32, {heads_kv, 1}));
    }
    if (c.lse) lse.emplace(output("lse", F32, {batch, c.tokens, heads_kv * c.group}));
    if (!c.split) return;
    quota.emplace(param("quota", I32));
    parts.emplace(workspace("parts", F32, {batch, units(), *splits, c.rows(), c.dim_v()}));
    part_lse.emplace(workspace("part_lse", F32, {batch, units(), c.rows(), *splits}));
  }

  Expr units() const { return heads_kv * c.units(); }
  Expr capacity() const { return c.page ? Expr(*slots * c.page) : Expr(room); }

 private:
  Tensor cache(const char* name, int64_t width) const {
    if (c.page) return input(name, c.cache(), {room, c.page, heads_kv, width});
    return input(name, c.cache(), {batch, room, heads_kv, width});
  }
};

// A tile of queries: heads that share a kv head, of one token or all.
struct Unit {
  const DecodeConfig& c;
  Expr b, index, kv_head, place;  // place: which of the kv head's tiles

  Unit(const DecodeConfig& config, const Expr& b, const Expr& index)
      : c(config), b(b), index(index), kv_head(index / c.units()), place(index % c.units()) {}

  int64_t head_tiles() const { return c.group / c.heads_tile(); }
  Expr selection() const { return place / head_tiles(); }  // 0, or the token
  Expr head(const Arg& row) const {
    return kv_head * c.group + place % head_tiles() * c.heads_tile() + row % c.heads_tile();
  }
  Expr token(const Arg& row) const { return selection() + row / c.heads_tile(); }
};

// The keys that a unit sees: from `start` up to the end of each row's token.
struct Visible {
  const Unit& unit;
  Expr start, length;

  Visible(const Interface& t, const Unit& unit)
      : unit(unit),
        start(t.c.left_pad ? max((*t.starts)(unit.b), 0) : number(0)),
        length(min(max(t.lengths(unit.b), 0), t.capacity())) {}

  // Tokens are the last of their sequence. Rows that are not stored have an end, too.
  Expr end_of(const Arg& row) const {
    return min(length - (unit.c.tokens - 1) + unit.token(row), length);
  }
  Expr end() const { return max(end_of(unit.c.rows() - 1), 0); }
};

// The blocks of a split, and where their keys lie.
class Reading {
 public:
  Reading(const Interface& t, const Unit& unit, const Visible& visible, const Expr& split)
      : t_(t),
        unit_(unit),
        end_(visible.end()),
        first_block_(visible.start / t.c.block),
        share_{split, t.c.split ? active_splits() : number(1)} {
    if (t.listed) list_.emplace(alloc_shared({kMostListedBlocks}, I32));
    count_.emplace(list_ ? min(list_blocks(row(), share_, *list_), kMostListedBlocks)
                         : share_.of(blocks()));
  }

  // step(first key) for every tile of keys.
  template <class Step>
  void each_tile(const Step& step) const {
    const DecodeConfig& c = t_.c;
    const int64_t tiles = c.block / c.tile();
    // Scores a tile ahead would take more registers than waiting for memory leaves use for.
    for (auto round : pipelined(
             *count_ * tiles, {.stages = static_cast<int>(c.stages), .schedule = Schedule::Serial}))
      step(block(round / tiles) * c.block + round % tiles * c.tile());
  }

  // Keys or values of a tile. Of the page table only what the sequence has is looked at.
  void load(const Tensor& cache, const Expr& first, const Tile& tile) const {
    const DecodeConfig& c = t_.c;
    const Expr& h = unit_.kv_head;
    if (!c.page) return copy(cache(unit_.b, span(first, c.tile()), h, all), tile);
    auto slot = min(first, end_ - 1) / c.page;
    auto page = select(first < end_, (*t_.table)(unit_.b, slot), -1);
    copy(cache(page, span(first % c.page, c.tile()), h, all), tile);
  }

 private:
  Expr limit() const { return ceildiv(end_, t_.c.block); }
  // Of the sequence; maybe more than are selected.
  Expr blocks() const {
    return t_.listed ? min(*t_.entries, limit()) : max(limit() - first_block_, 0);
  }
  Expr active_splits() const { return max(min(ceildiv(blocks(), *t_.quota), *t_.splits), 1); }

  BlockRow row() const {
    const auto element = [this](const Expr& position) {
      return Expr((*t_.chosen)(unit_.b, unit_.selection(), unit_.kv_head, position));
    };
    return {element, t_.c.form == DecodeForm::Indices, *t_.entries, limit()};
  }
  Expr block(const Expr& n) const {
    return list_ ? Expr((*list_)(n)) : first_block_ + n * share_.parts + share_.part;
  }

  const Interface& t_;
  const Unit& unit_;
  const Expr end_, first_block_;
  const Share share_;
  std::optional<Tile> list_;
  std::optional<Expr> count_;
};

// A tile of the cache in q's dtype: itself, or a copy that lives for a moment.
Tile operand(const DecodeConfig& c, const Tile& stored) {
  if (!c.fp8_cache) return stored;
  Tile wide = alloc_shared({stored.shape()[0], stored.shape()[1]}, c.dtype);
  copy(stored, wide);
  return wide;
}

// Ends the run in an error where lengths or the page table are not what they must be.
void check_sequence(const Interface& t, const Expr& b) {
  const DecodeConfig& c = t.c;
  const Expr length = t.lengths(b);
  device_assert(length >= 0 && length <= t.capacity(), "lengths: expected 0 to the cache's keys");
  if (c.left_pad)
    device_assert((*t.starts)(b) >= 0 && (*t.starts)(b) <= length,
                  "starts: expected 0 to the sequence's length");
  if (!c.page) return;
  constexpr int64_t kSlots = 256;
  const Expr used = min(ceildiv(max(length, 0), c.page), *t.slots);
  for (auto chunk : serial(ceildiv(used, kSlots)))
    for (auto i : parallel(kSlots)) {
      auto slot = chunk * kSlots + i;
      auto page = (*t.table)(b, select(slot < used, slot, -1));
      device_assert(slot >= used || (page >= 0 && page < t.room),
                    "table: expected a page of the cache for each that the sequence has");
    }
}

// s = -inf where a row does not see a key; values that no row sees become 0, for 0 · NaN is NaN.
void mask_edges(const Visible& visible, const Expr& first, const Tile& s, const Tile& values) {
  const DecodeConfig& c = visible.unit.c;
  const Expr start = visible.start, end = visible.end();
  const int64_t rows = s.shape()[0];
  when(first < start || first + c.tile() > visible.end_of(0), [&] {
    for (auto [i, j] : parallel(rows, c.tile()))
      s(i, j) =
          select(first + j >= start && first + j < visible.end_of(i), s(i, j), -infinity(F32));
    for (auto strip : serial(c.tile() / kStrip))  // a few registers at a time
      for (auto [i, d] : parallel(kStrip, c.dim_v())) {
        auto j = strip * kStrip + i;
        values(j, d) = select(first + j >= start && first + j < end, values(j, d), 0);
      }
  });
}

// Rows of a tile to where their token and head lie.
template <class At>
void copy_rows(const DecodeConfig& c, const Unit& unit, const At& one) {
  for (int64_t token = 0; token < c.tokens_tile(); ++token)
    one(unit.selection() + token, unit.head(0), token * c.heads_tile());
}

// To the split's place among the parts; the only split's to o and lse.
void store_rows(const Interface& t, const Unit& unit, const Expr& split, const Tile& acc,
                const Tile& lse) {
  const DecodeConfig& c = t.c;
  const Expr& b = unit.b;
  const int64_t heads = c.heads_tile();
  if (c.fp8_cache) {
    const Expr v_scale = (*t.v_scale)(unit.kv_head, 0);
    for (auto [i, d] : parallel(acc.shape()[0], c.dim_v())) acc(i, d) *= v_scale;
  }
  const auto store_whole = [&] {
    copy_rows(c, unit, [&](const Expr& token, const Expr& head, int64_t row) {
      copy(acc(span(row, heads), all), t.o(b, token, span(head, heads), all));
      if (c.lse) copy(lse(span(row, heads)), (*t.lse)(b, token, span(head, heads)));
    });
  };
  const auto store_part = [&] {
    copy(acc(span(0, c.rows()), all), (*t.parts)(b, unit.index, split, all, all));
    copy(lse(span(0, c.rows())), (*t.part_lse)(b, unit.index, all, split));
  };
  if (!c.split) return store_whole();
  when(*t.splits == 1, store_whole, store_part);
}

// Few queries are read from shared memory once, and not in every round.
Tile in_registers(const Tile& queries) {
  constexpr int64_t kFew = 16 * 128;  // all warps have all of them: 32 registers of a thread
  if (queries.shape()[0] * queries.shape()[1] > kFew) return queries;
  Tile q = alloc_fragment({queries.shape()[0], queries.shape()[1]}, queries.dtype());
  copy(queries, q);
  return q;
}

void read_splits(const Interface& t) {
  const DecodeConfig& c = t.c;
  const int64_t rows = (c.rows() + 15) / 16 * 16;  // those beyond are not stored
  const auto grid = launch({t.splits ? Arg(*t.splits) : Arg(1), t.units(), t.batch},
                           {.threads = static_cast<int>(c.threads)});
  const Expr &split = grid[0], &b = grid[2];
  const Unit unit(c, b, grid[1]);
  const Visible visible(t, unit);
  const int64_t heads = c.heads_tile();
  if (c.checked) when(split == 0 && unit.index == 0, [&] { check_sequence(t, b); });

  Tile queries = alloc_shared({rows, c.head_dim}, c.dtype);
  Tile keys = alloc_shared({c.tile(), c.head_dim}, c.cache()),
       values = alloc_shared({c.tile(), c.dim_v()}, c.cache());
  Tile s = alloc_fragment({rows, c.tile()}, F32), p = alloc_fragment({rows, c.tile()}, c.dtype);
  Tile acc = alloc_fragment({rows, c.dim_v()}, F32), lse = alloc_fragment({rows}, F32);

  clear(queries);
  copy_rows(c, unit, [&](const Expr& token, const Expr& head, int64_t row) {
    copy(t.q(b, token, span(head, heads), all), queries(span(row, heads), all));
  });
  clear(acc);
  const Expr scale = c.fp8_cache ? t.scale * (*t.k_scale)(unit.kv_head, 0) : t.scale;
  OnlineSoftmax softmax = online_softmax(rows, scale);
  const Reading reading(t, unit, visible, split);
  const Tile q = in_registers(queries);
  reading.each_tile([&](const Expr& first) {
    reading.load(t.k, first, keys);
    reading.load(t.v, first, values);
    gemm(q, operand(c, keys), s, {.transpose_b = true, .clear = true});
    const Tile v = operand(c, values);
    mask_edges(visible, first, s, v);
    softmax.step(s, p, acc);
    gemm(p, v, acc);
  });
  softmax.finish(acc, lse);
  store_rows(t, unit, split, acc, lse);
}

// A warp for each row: nothing waits for other warps. Parts weigh exp(lse − the largest); those of
// splits that had nothing to read, 0. Of one split there are none: the grid is empty.
void merge_splits(const Interface& t) {
  const DecodeConfig& c = t.c;
  const auto grid = launch({min(*t.splits - 1, 1) * c.rows(), t.units(), t.batch}, {.threads = 32});
  const Expr &row = grid[0], &b = grid[2];
  const Unit unit(c, b, grid[1]);
  Tile lses = alloc_fragment({1, kMostSplits}, F32), weight = alloc_fragment({1, kMostSplits}, F32);
  Tile weights = alloc_shared({1, kMostSplits}, F32);
  Tile top = alloc_fragment({1}, F32), total = alloc_fragment({1}, F32);
  Tile part = alloc_fragment({kTogether, c.dim_v()}, F32),
       sum = alloc_fragment({kTogether, c.dim_v()}, F32);
  Tile merged = alloc_fragment({c.dim_v()}, F32);

  const auto fetch = [&](const Expr& chunk) {
    copy((*t.parts)(b, grid[1], span(chunk * kTogether, kTogether), row, all), part);
  };
  const auto add = [&](const Expr& chunk) {
    for (auto [i, d] : parallel(kTogether, c.dim_v()))
      sum(i, d) += weights(0, chunk * kTogether + i) * part(i, d);
  };
  fetch(number(0));  // under way while the weights are made
  copy((*t.part_lse)(b, grid[1], row, span(0, kMostSplits)), lses, {.pad = -INFINITY});
  reduce_max(lses, top);
  for (auto [i, j] : parallel(1, kMostSplits))
    weight(i, j) = select(lses(i, j) == -infinity(F32), 0.f, exp(lses(i, j) - top(i)));
  reduce_sum(weight, total);
  copy(weight, weights);
  clear(sum);
  add(number(0));
  for (auto chunk : serial(1, ceildiv(*t.splits, kTogether))) {
    fetch(chunk);
    add(chunk);
  }
  reduce_sum(sum, merged, 0);
  for (auto d : parallel(c.dim_v())) merged(d) = select(total(0) > 0.f, merged(d) / total(0), 0.f);
  copy(merged, t.o(b, unit.token(row), unit.head(row), all));
  if (!c.lse) return;
  for (auto i : parallel(1))
    top(i) = select(total(i) > 0.f, top(i) + log(total(i)), -infinity(F32));
  copy(top, (*t.lse)(b, unit.token(row), span(unit.head(row), 1)));
}

}  // namespace

Kernel sparse_decode_kernel(const DecodeConfig& config) {
  const DecodeConfig c = validated(config);
  return trace("sparse_decode", {.fast_math = c.fast_math}, [&] {
    const Interface t(c);
    read_splits(t);
    if (c.split) merge_splits(t);
  });
}

}  // namespace kiln
