// Block-sparse attention: every query tile visits the key blocks that its row of the mask (or list)
// selects, with an online softmax. Dense attention is the same program over all blocks.
#include "dsl/dsl.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/block_sparse_attention/softmax.h"

namespace kiln {
namespace {

// What a tile of queries sees of the keys.
struct Visible {
  const AttentionConfig& c;
  Expr seq_kv, history;  // keys; keys before the first query's own position
  Expr first_query;

  // Keys 0 … n-1 are visible to the row …
  Expr keys_of_row(Arg row) const {
    if (!c.causal) return seq_kv;
    return min(seq_kv, first_query + row + 1 + history);
  }
  // … to any row of the tile; below 1 if to none.
  Expr keys() const { return keys_of_row(c.block_m - 1); }
  Expr blocks(int64_t block) const { return ceildiv(keys(), block); }
};

// s = -inf where a row must not look; only tiles that cross the diagonal or the end have such
// places.
void mask_elements(const Visible& visible, const Tile& s, const Expr& first_key) {
  const AttentionConfig& c = visible.c;
  when(first_key + c.block_n > visible.keys_of_row(0), [&] {
    for (auto [i, j] : parallel(c.block_m, c.block_n))
      s(i, j) = select(first_key + j < visible.keys_of_row(i), s(i, j), -infinity(F32));
  });
}

struct Interface {
  Tensor q, k, v, o;
  std::optional<Tensor> lse, mask, counts, indices;
  std::optional<Dim> entries;  // of a list
};

Interface declare(const AttentionConfig& c, const Dim& batch, const Dim& heads, const Dim& heads_kv,
                  const Dim& seq, const Dim& seq_kv) {
  Interface tensors{input("q", c.dtype, {batch, heads, seq, c.head_dim}),
                    input("k", c.dtype, {batch, heads_kv, seq_kv, c.head_dim}),
                    input("v", c.dtype, {batch, heads_kv, seq_kv, c.dim_v()}),
                    output("o", c.dtype, {batch, heads, seq, c.dim_v()})};
  if (c.lse) tensors.lse.emplace(output("lse", F32, {batch, heads, seq}));
  if (c.form == BlockForm::Dense) return tensors;
  Dim rows = dim("rows");
  if (c.form == BlockForm::Lists) {
    Dim entries = dim("entries");
    tensors.counts.emplace(input("counts", I32, {batch, heads, rows}));
    tensors.indices.emplace(input("indices", I32, {batch, heads, rows, entries}));
    tensors.entries.emplace(entries);
  } else {
    Dim cols = dim("cols");
    tensors.mask.emplace(
        input("mask", c.form == BlockForm::MaskI8 ? I8 : Bool, {batch, heads, rows, cols}));
  }
  return tensors;
}

// Of the row's list: its count is within the entries, and they are blocks of keys, or -1 for none.
void check_list(const Interface& t, const Visible& visible, const Expr& b, const Expr& h,
                const Expr& row) {
  auto listed = (*t.counts)(b, h, row);
  device_assert(listed >= 0 && listed <= *t.entries,
                "counts: expected 0 to the entries of indices");
  auto blocks = ceildiv(visible.seq_kv, visible.c.block.k);
  for (auto entry : serial(min(max(listed, 0), *t.entries))) {
    auto block = (*t.indices)(b, h, row, entry);
    device_assert(block >= -1 && block < blocks,
                  "indices: expected blocks of keys, or -1 for none, in the first `count` entries");
  }
}

// Calls step(first key of the tile) for every key tile that the query tile visits.
template <class Step>
void for_each_tile(const Interface& t, const Visible& visible, const Expr& b, const Expr& h,
                   const Step& step) {
  const AttentionConfig& c = visible.c;
  int stages = static_cast<int>(c.stages);
  if (c.form == BlockForm::Dense) {
    for (auto tile :
         pipelined(visible.blocks(c.block_n), {.stages = stages, .schedule = c.schedule}))
      step(tile * c.block_n);
    return;
  }
  auto step_block = [&](const Expr& block) {
    if (c.block_n == c.block.k) return step(block * c.block_n);
    auto first = block * c.block.k;
    // A query tile as long as its block sees some of all key tiles, but for what is beyond the end.
    const bool sees_all = !c.causal || c.block_m == c.block.q;
    Arg visited = c.block.k / c.block_n;
    if (!sees_all) visited = min(ceildiv(visible.keys() - first, c.block_n), visited);
    for (auto tile : pipelined(visited, {.stages = stages, .schedule = c.schedule}))
      step(first + tile * c.block_n);
  };
  auto row = visible.first_query / c.block.q;
  auto limit = visible.blocks(c.block.k);
  if (c.form == BlockForm::Lists) {
    auto listed = (*t.counts)(b, h, row);
    if (c.checked) check_list(t, visible, b, h, row);
    for (auto block :
         selected((*t.indices)(b, h, row, all),
                  {.limit = limit, .count = listed, .stages = stages, .schedule = c.schedule}))
      step_block(block);
  } else {
    for (auto block : selected((*t.mask)(b, h, row, all),
                               {.limit = limit, .stages = stages, .schedule = c.schedule}))
      step_block(block);
  }
}

}  // namespace

Kernel block_sparse_attention_kernel(const AttentionConfig& config) {
  const AttentionConfig c = validated(config);
  return trace("block_sparse_attention", {.fast_math = c.fast_math}, [&] {
    Dim batch = dim("batch"), heads = dim("heads"), heads_kv = dim("heads_kv");
    Dim seq = dim("seq"), seq_kv = dim("seq_kv");
    Interface t = declare(c, batch, heads, heads_kv, seq, seq_kv);
    auto scale = param("scale", F32);
    auto group = heads / heads_kv;  // query heads that share a key head

    auto block =
        launch({ceildiv(seq, c.block_m), heads, batch}, {.threads = static_cast<int>(c.threads)});
    const Expr &h = block[1], &b = block[2];
    Visible visible{c, seq_kv, seq_kv - seq, block[0] * c.block_m};

    Tile q = alloc_shared({c.block_m, c.head_dim}, c.dtype);
    Tile k = alloc_shared({c.block_n, c.head_dim}, c.dtype);
    Tile v = alloc_shared({c.block_n, c.dim_v()}, c.dtype);
    Tile s = alloc_fragment({c.block_m, c.block_n}, F32);
    Tile p = alloc_fragment({c.block_m, c.block_n}, c.dtype);
    Tile acc = alloc_fragment({c.block_m, c.dim_v()}, F32);
    Tile lse = alloc_fragment({c.block_m}, F32);

    copy(t.q(b, h, span(visible.first_query, c.block_m), all), q);
    clear(acc);
    RowSoftmax softmax(c, scale);
    for_each_tile(t, visible, b, h, [&](const Expr& first_key) {
      copy(t.k(b, h / group, span(first_key, c.block_n), all), k);
      gemm(q, k, s, {.transpose_b = true, .clear = true, .policy = FullRow});
      mask_elements(visible, s, first_key);
      softmax.step(s, p, acc);
      copy(t.v(b, h / group, span(first_key, c.block_n), all), v);
      gemm(p, v, acc, {.policy = FullRow});
    });
    softmax.finish(acc, lse);
    copy(acc, t.o(b, h, span(visible.first_query, c.block_m), all));
    if (c.lse) copy(lse, (*t.lse)(b, h, span(visible.first_query, c.block_m)));
  });
}

}  // namespace kiln
