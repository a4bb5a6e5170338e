// A block of threads computes a tile of cells of one head.
#include "kernels/antidiag_scores/cells.h"

namespace kiln {

Kernel antidiag_scores_kernel(const AntidiagConfig& config) {
  const AntidiagConfig c = validated(config);
  return trace("antidiag_scores", [&] {
    const SequenceInterface sequences(c.sequences(), true);
    const CellInterface t(c, sequences);
    Tensor out = output("scores", c.out, {t.batch, t.heads, t.rows(), t.cols()});
    const auto grid =
        launch({ceildiv(t.cols(), kCellTile), ceildiv(t.rows(), kCellTile), t.heads * t.batch},
               {.threads = kCellThreads});
    const Expr row = grid[1] * kCellTile, col = grid[0] * kCellTile;
    const Expr head = grid[2] % t.heads;
    const CellSequence sequence(t, grid[2] / t.heads);
    if (c.checked) sequence.check();

    Tile scores = alloc_fragment({kCellTile, kCellTile}, F32);
    const CellScores cells(t, sequence, head);
    clear(scores);
    const auto any = row < sequence.rows && col < sequence.seen_cols(row + (kCellTile - 1));
    when(any, [&] { cells.compute(row, col, scores); });
    for (auto [i, j] : parallel(kCellTile, kCellTile))
      scores(i, j) = select(sequence.is_seen(row + i, col + j), scores(i, j), 0.f);
    copy(scores, out(sequence.b, head, span(row, kCellTile), span(col, kCellTile)));
  });
}

}  // namespace kiln
