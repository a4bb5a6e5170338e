#include "kernels/select_blocks/choice.h"

namespace kiln {

Kernel select_blocks_kernel(const SelectConfig& config) {
  const SelectConfig c = validated(config);
  return trace("select_blocks", [&] {
    Dim batch = dim("batch"), heads = dim("heads"), rows = dim("rows"), cols = dim("cols");
    Tensor scores = input("scores", F32, {batch, heads, rows, cols});
    Tensor first = input("first", I32, {batch}), blocks = input("blocks", I32, {batch});
    const ChoiceInterface choice(c, batch, heads, rows, cols);
    choice.launches(scores, [&](const Expr& b, const Expr& row) -> ChoiceInterface::Place {
      const Expr diagonal = first(b) + row;
      const Expr there = min(max(blocks(b), 0), cols);
      const Expr in_first_chunk =
          first(b) == 0 && row > 0 && (c.ref_chunk ? row < c.ref_chunk : row >= 0);
      return {c.causal ? max(min(there, diagonal + 1), 0) : there, diagonal, diagonal, row == 0,
              in_first_chunk};
    });
  });
}

}  // namespace kiln
