// Block sums of the softmaxed scores of cells, then the choice. A block of threads has a tile of
// rows of one head and computes their scores twice: for the maximum and sum of each row, then for
// its weights, so that no score is ever in memory.
#include "kernels/xattention/estimate.h"

#include "kernels/softmax_block_sum/block_sums.h"

namespace kiln {
namespace {

// Is the sequence so short that looking at all of it takes less than a choice?
std::optional<Expr> takes_all(const EstimateConfig& c, const CellSequence& sequence) {
  if (c.dense_below == 0) return {};
  return sequence.k_len < c.dense_below;
}

void write_sums(const EstimateConfig& c, const CellInterface& t, const Expr& scale,
                const Tensor& out) {
  const int64_t block = c.block / c.stride, blocks = kCellTile / block;  // of cells; of a tile
  const auto grid = launch({ceildiv(t.rows(), kCellTile), t.heads, t.batch},
                           {.threads = static_cast<int>(c.threads)});
  // Causal rows see the more the later they are: those begin first.
  const Expr tile = ceildiv(t.rows(), kCellTile) - 1 - grid[0], row = tile * kCellTile;
  const Expr &h = grid[1], &b = grid[2];
  const CellSequence sequence(t, b);
  if (c.checked) sequence.check();
  const CellScores scores(t, sequence, h);

  BlockSums sums(kCellTile, block, scale, [&](const Expr& i) {
    return select(row + i < sequence.rows, sequence.seen_cols(row + i), 0);
  });
  const std::optional<Expr> all = takes_all(c, sequence);
  const Expr is_there = row < sequence.rows, estimated = all ? is_there && !*all : is_there;
  const Expr most =
      ceildiv(select(estimated, sequence.seen_cols(row + (kCellTile - 1)), 0), kCellTile);
  const auto store = [&](const Tile& tile_sums, const Expr& column) {
    copy(tile_sums, out(b, h, span(tile * blocks, blocks), span(column * blocks, blocks)));
  };
  Tile s = alloc_fragment({kCellTile, kCellTile}, F32);
  for (auto column : serial(most)) {
    scores.compute(row, column * kCellTile, s);
    sums.observe(column * kCellTile, s);
  }
  for (auto column : serial(most)) {
    scores.compute(row, column * kCellTile, s);
    store(sums.sum(column * kCellTile, s), column);
  }
  Tile nothing = alloc_fragment({blocks, blocks}, F32);
  clear(nothing);
  for (auto column : serial(most, ceildiv(t.cols(), kCellTile))) store(nothing, column);
}

// What block row `row` of a sequence sees, and where it stands.
ChoiceInterface::Place place_of(const EstimateConfig& c, const CellInterface& t, const Expr& b,
                                const Expr& row) {
  const CellSequence sequence(t, b);
  const Expr first = row * c.block, is_there = first < sequence.q_len;
  const Expr last = min(first + c.block, sequence.q_len) - 1;
  const Expr diagonal = floordiv(sequence.start + last, c.block);
  const Expr there = ceildiv(sequence.key_end, c.block);
  const Expr visible = c.causal ? max(min(diagonal + 1, there), 0) : there;
  const Expr in_first_chunk = sequence.start == 0 && row > 0 && row < cast(c.select.ref_chunk, I32);
  return {select(is_there, visible, 0),
          floordiv(sequence.start + first, c.block),
          diagonal,
          row == 0 && is_there,
          in_first_chunk,
          takes_all(c, sequence)};
}

}  // namespace

void estimate(const EstimateConfig& c, const CellInterface& t, const Expr& scale,
              const Tensor& sums, const ChoiceInterface& choice) {
  write_sums(c, t, scale, sums);
  choice.launches(sums, [&](const Expr& b, const Expr& row) { return place_of(c, t, b, row); });
}

Kernel xattn_estimate_kernel(const EstimateConfig& config) {
  const EstimateConfig c = validated(config);
  const AntidiagConfig cells = c.cells();
  return trace("xattn_estimate", [&] {
    const SequenceInterface sequences(cells.sequences(), true);
    const CellInterface t(cells, sequences);
    const Expr rows = ceildiv(t.seq, c.block), cols = ceildiv(t.seq_kv, c.block);
    const Expr scale = param("scale", F32);
    Tensor sums = inout("sums", F32, {t.batch, t.heads, rows, cols});
    const ChoiceInterface choice(c.select, t.batch, t.heads, rows, cols);
    estimate(c, t, scale, sums, choice);
  });
}

}  // namespace kiln
