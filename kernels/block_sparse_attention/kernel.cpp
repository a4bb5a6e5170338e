// Block-sparse attention: every query tile visits the key blocks that its row of the mask (or list)
// selects, with an online softmax. Dense attention is the same program over all blocks.
#include "kernels/block_sparse_attention/attend.h"
#include "kernels/block_sparse_attention/softmax.h"

namespace kiln {

AttentionTensors::AttentionTensors(const AttentionConfig& config, const SequenceInterface& all,
                                   const Lists& lists)
    : AttentionTensors(config, all, &lists) {}

AttentionTensors::AttentionTensors(const AttentionConfig& config, const SequenceInterface& all)
    : AttentionTensors(config, all, nullptr) {}

AttentionTensors::AttentionTensors(const AttentionConfig& config, const SequenceInterface& s,
                                   const Lists* lists)
    : c(config),
      sequences(s),
      tiles(ceildiv(s.seq, c.block_m)),
      group(s.heads / s.heads_kv),
      q(input("q", c.dtype, s.query_extents(c.head_dim))),
      k(input("k", c.dtype, s.key_extents(c.head_dim))),
      v(input("v", c.dtype, s.key_extents(c.dim_v()))),
      o(output("o", c.dtype, s.query_extents(c.dim_v()))) {
  if (c.lse && c.varlen) lse.emplace(output("lse", F32, {s.heads, *s.tokens}));
  if (c.lse && !c.varlen) lse.emplace(output("lse", F32, {s.batch, s.heads, s.seq}));
  if (c.head_types) types.emplace(c, s.heads);
  if (c.form == BlockForm::Dense) return;
  if (lists) {
    counts.emplace(lists->counts);
    indices.emplace(lists->indices);
    entries.emplace(lists->entries);
    return;
  }
  if (c.head_types) planes.emplace(dim("planes"));
  const Expr masked = planes ? *planes : c.per_kv_head ? Expr(s.heads_kv) : Expr(s.heads);
  Dim rows = dim("rows");
  if (c.form == BlockForm::Lists) {
    entries.emplace(dim("entries"));
    counts.emplace(input("counts", I32, {s.batch, masked, rows}));
    indices.emplace(input("indices", I32, {s.batch, masked, rows, *entries}));
  } else {
    Dim cols = dim("cols");
    mask.emplace(
        input("mask", c.form == BlockForm::MaskI8 ? I8 : Bool, {s.batch, masked, rows, cols}));
  }
}

namespace {

// Of the row's list: its count is within the entries, and they are blocks of keys, or -1 for none.
void check_list(const AttentionTensors& t, const Sequence& sequence, const Expr& plane,
                const Expr& row) {
  const Expr& b = sequence.b;
  auto listed = (*t.counts)(b, plane, row);
  device_assert(listed >= 0 && listed <= *t.entries,
                "counts: expected 0 to the entries of indices");
  auto blocks = ceildiv(sequence.k_len, t.c.block.k);
  for (auto entry : serial(min(max(listed, 0), *t.entries))) {
    auto block = (*t.indices)(b, plane, row, entry);
    device_assert(block >= -1 && block < blocks,
                  "indices: expected blocks of keys, or -1 for none, in the first `count` entries");
  }
}

// What the device was given, by one block of the sequence.
void check_sequence(const AttentionTensors& t, const Sequence& sequence, const Expr& is_first) {
  if (!sequence.ends_inside() && !t.c.q_start && !t.types) return;
  when(is_first, [&] {
    sequence.check();
    if (t.types) t.types->check(t.sequences.heads, t.planes);
  });
}

// Calls step(first key of the tile) for every key tile of the blocks that the row selects.
template <class Step>
void for_each_selected(const AttentionTensors& t, const Sequence& sequence, const Visible& visible,
                       const Expr& plane, const Step& step) {
  const AttentionConfig& c = t.c;
  const int stages = static_cast<int>(c.stages);
  const Expr& b = sequence.b;
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
  auto row = visible.first_query() / c.block.q;
  auto limit = visible.blocks(c.block.k);
  if (c.form == BlockForm::Lists) {
    auto listed = (*t.counts)(b, plane, row);
    if (c.checked) check_list(t, sequence, plane, row);
    for (auto block :
         selected((*t.indices)(b, plane, row, all),
                  {.limit = limit, .count = listed, .stages = stages, .schedule = c.schedule}))
      step_block(block);
  } else {
    for (auto block : selected((*t.mask)(b, plane, row, all),
                               {.limit = limit, .stages = stages, .schedule = c.schedule}))
      step_block(block);
  }
}

// Of a head that is dense or streams: no row of a mask is looked at.
template <class Step>
void for_each_in_range(const AttentionConfig& c, const Visible& visible, const Step& step) {
  const PipelineOptions options = {.stages = static_cast<int>(c.stages), .schedule = c.schedule};
  if (c.streaming == Streaming::None) {
    for (auto tile : pipelined(visible.blocks(c.block_n), options)) step(tile * c.block_n);
    return;
  }
  const Visible::Range range = visible.range();
  for (auto n : pipelined(range.tiles, options)) step(range.tile(n) * c.block_n);
}

template <class Step>
void for_each_tile(const AttentionTensors& t, const Sequence& sequence, const Visible& visible,
                   const Expr& head, const Step& step) {
  const auto in_range = [&] { for_each_in_range(t.c, visible, step); };
  const auto chosen = [&](const Expr& plane) {
    for_each_selected(t, sequence, visible, plane, step);
  };
  if (t.c.form == BlockForm::Dense) return in_range();
  if (t.types)
    return when(
        t.types->is_sparse(head), [&] { chosen(t.types->plane(head)); }, in_range);
  chosen(t.c.per_kv_head ? head / t.group : head);
}

}  // namespace

void attend(const AttentionTensors& t, const Expr& scale) {
  const AttentionConfig& c = t.c;
  const SequenceInterface& s = t.sequences;
  auto block = launch({t.tiles, s.heads, s.batch}, {.threads = static_cast<int>(c.threads)});
  const Expr &h = block[1], &b = block[2];
  const Sequence sequence(s, b);
  const Visible visible(c, sequence, t.types ? &*t.types : nullptr, h, block[0] * c.block_m);
  const Expr& first_query = visible.first_query();
  if (c.checked) check_sequence(t, sequence, block[0] == 0 && h == 0);

  Tile q = alloc_shared({c.block_m, c.head_dim}, c.dtype);
  Tile k = alloc_shared({c.block_n, c.head_dim}, c.dtype);
  Tile v = alloc_shared({c.block_n, c.dim_v()}, c.dtype);
  Tile scores = alloc_fragment({c.block_m, c.block_n}, F32);
  Tile p = alloc_fragment({c.block_m, c.block_n}, c.dtype);
  Tile acc = alloc_fragment({c.block_m, c.dim_v()}, F32);
  Tile lse = alloc_fragment({c.block_m}, F32);

  copy(sequence.queries(t.q, h, first_query, c.block_m), q);
  clear(acc);
  RowSoftmax softmax(c, scale);
  for_each_tile(t, sequence, visible, h, [&](const Expr& first_key) {
    sequence.load_keys(t.k, h / t.group, first_key, k);
    gemm(q, k, scores, {.transpose_b = true, .clear = true, .policy = FullRow});
    visible.mask_scores(scores, first_key);
    softmax.step(scores, p, acc);
    sequence.load_keys(t.v, h / t.group, first_key, v);
    visible.clear_beyond(v, first_key);
    gemm(p, v, acc, {.policy = FullRow});
  });
  softmax.finish(acc, lse);
  sequence.store(acc, t.o, h, first_query);
  if (c.lse) sequence.store_numbers(lse, *t.lse, h, first_query);
}

Kernel block_sparse_attention_kernel(const AttentionConfig& config) {
  const AttentionConfig c = validated(config);
  return trace("block_sparse_attention", {.fast_math = c.fast_math}, [&] {
    const SequenceInterface sequences(c.sequences());
    const AttentionTensors tensors(c, sequences);
    attend(tensors, param("scale", F32));
  });
}

}  // namespace kiln
