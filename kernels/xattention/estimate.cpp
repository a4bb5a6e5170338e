// Block sums of the softmaxed scores of cells, then the choice. A block of threads takes tiles of
// rows of a head, one after another; no score is ever in memory.
#include "kernels/xattention/estimate.h"

#include "kernels/xattention/tile_sums.h"

namespace kiln {
namespace {

// Is the sequence so short that looking at all of it takes less than a choice?
std::optional<Expr> takes_all(const EstimateConfig& c, const CellSequence& sequence) {
  if (c.dense_below == 0) return {};
  return sequence.k_len < c.dense_below;
}

// Of how many tiles of rows there are, those that are in work at a time: what each keeps is then
// small beside the scores (docs/xattention.md).
Expr places_for(const Expr& tiles) {
  constexpr int64_t kMost = 264;  // blocks of threads that an H200 has room for
  constexpr int64_t kShare = 5;
  return max(min(tiles / kShare, kMost), 1);
}

// Half as many columns take 1.6 times as long (H200): each row of keys serves too few queries.
TileSums::Shape shape_of(const EstimateConfig& c) {
  return {.rows = kCellTile, .columns = kCellTile, .block = c.block / c.stride};
}

void write_tile(const EstimateConfig& c, const CellInterface& t, const Expr& scale,
                const Tensor& out, const TileSums::Kept& kept, const Expr& place,
                const Expr& number) {
  const TileSums::Shape shape = shape_of(c);
  const int64_t row_blocks = shape.rows / shape.block;
  // Causal rows see the more the later they are: those begin first.
  const Expr planes = t.heads * t.batch;
  const Expr tile = ceildiv(t.rows(), shape.rows) - 1 - number / planes, row = tile * shape.rows;
  const Expr h = number % planes % t.heads, b = number % planes / t.heads;
  const CellSequence sequence(t, b);
  if (c.checked) sequence.check();
  const CellScores cells(t, sequence, h);

  const std::optional<Expr> all_seen = takes_all(c, sequence);
  const Expr is_there = row < sequence.rows;
  const Expr estimated = all_seen ? is_there && !*all_seen : is_there;
  const Expr most =
      ceildiv(select(estimated, sequence.seen_cols(row + (shape.rows - 1)), 0), shape.columns);
  const auto store = [&](const Tile& sums, const Expr& first) {
    copy(sums, out(b, h, span(tile * row_blocks, row_blocks), span(first, sums.shape()[1])));
  };
  TileSums sums(kept, shape, scale, place);
  Tile scores = alloc_fragment({shape.rows, shape.columns}, F32);
  for (auto column : serial(most)) {
    const Expr col = column * shape.columns;
    cells.compute(row, col, scores);
    const Expr all_there = row + shape.rows <= sequence.rows;
    when(!(all_there && col + shape.columns <= sequence.seen_cols(row)), [&] {
      for (auto [i, j] : parallel(shape.rows, shape.columns))
        scores(i, j) = select(sequence.is_seen(row + i, col + j), scores(i, j), -infinity(F32));
    });
    sums.observe(column, scores);
  }
  sums.finish(most, store);
  const int64_t columns = shape.together() * shape.blocks();
  Tile nothing = alloc_fragment({row_blocks, columns}, F32);
  clear(nothing);
  for (auto chunk : serial(ceildiv(most * shape.blocks(), columns),
                           ceildiv(ceildiv(t.cols(), shape.block), columns)))
    store(nothing, chunk * columns);
}

void write_sums(const EstimateConfig& c, const CellInterface& t, const Expr& scale,
                const Tensor& out) {
  const TileSums::Shape shape = shape_of(c);
  const Expr tiles = ceildiv(t.rows(), shape.rows) * t.heads * t.batch, places = places_for(tiles);
  const TileSums::Kept kept = TileSums::keep(shape, places, ceildiv(t.cols(), shape.columns));
  const auto grid = launch({places}, {.threads = static_cast<int>(c.threads)});
  const Expr& place = grid[0];
  // There and back, so that no place has the longest of every round.
  for (auto round : serial(ceildiv(tiles, places))) {
    const Expr number = round * places + select(round % 2 == 0, place, places - 1 - place);
    when(number < tiles, [&] { write_tile(c, t, scale, out, kept, place, number); });
  }
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
  return trace("xattn_estimate", {.fast_math = true}, [&] {
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
