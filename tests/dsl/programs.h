// Kernels as a user writes them; traced and run by the tests.
#pragma once

#include "dsl/dsl.h"

namespace kiln {

struct AttentionConfig {
  DType dtype = F32;
  int dim = 16;
  int dim_v = 16;
  int block_m = 16;
  int block_n = 16;
  bool causal = false;
};

// Block-sparse attention: of every query block, only the key blocks set in the mask.
inline Kernel block_sparse_forward(const AttentionConfig& c) {
  const int BM = c.block_m, BN = c.block_n;
  return trace("block_sparse_forward", [&] {
    Dim batch = dim("batch"), heads = dim("heads"), seq = dim("seq"), blocks = dim("blocks");
    Expr scale = param("scale", F32);
    Tensor Q = input("q", c.dtype, {batch, heads, seq, c.dim});
    Tensor K = input("k", c.dtype, {batch, heads, seq, c.dim});
    Tensor V = input("v", c.dtype, {batch, heads, seq, c.dim_v});
    Tensor M = input("block_mask", Bool, {batch, heads, blocks, blocks});
    Tensor O = output("o", c.dtype, {batch, heads, seq, c.dim_v});
    Tensor L = output("lse", F32, {batch, heads, seq});
    auto [bx, by, bz] = launch({ceildiv(seq, BM), heads, batch});

    Tile q = alloc_shared({BM, c.dim}, c.dtype), k = alloc_shared({BN, c.dim}, c.dtype);
    Tile v = alloc_shared({BN, c.dim_v}, c.dtype);
    Tile s = alloc_fragment({BM, BN}, F32), p = alloc_fragment({BM, BN}, c.dtype);
    Tile acc = alloc_fragment({BM, c.dim_v}, F32), lse = alloc_fragment({BM}, F32);
    OnlineSoftmax softmax = online_softmax(BM, scale);
    copy(Q(bz, by, span(bx * BM, BM), all), q);
    clear(acc);
    for (auto kb : selected(M(bz, by, bx, all), {.limit = ceildiv(seq, BN), .stages = 2})) {
      auto first_row = bx * BM, first_col = kb * BN;
      copy(K(bz, by, span(first_col, BN), all), k);
      copy(V(bz, by, span(first_col, BN), all), v);
      gemm(q, k, s, {.transpose_b = true, .clear = true, .policy = FullRow});
      auto on_edge = first_col + BN > seq || (c.causal && first_col + BN > first_row + 1);
      when(on_edge, [&] {
        for (auto [i, j] : parallel(BM, BN)) {
          auto row = first_row + i, col = first_col + j;
          auto seen = col < seq && (!c.causal || col <= row);
          s(i, j) = select(seen, s(i, j), -infinity(F32));
        }
      });
      softmax.step(s, p, acc);
      gemm(p, v, acc, {.policy = FullRow});
    }
    softmax.finish(acc, lse);
    copy(acc, O(bz, by, span(bx * BM, BM), all));
    copy(lse, L(bz, by, span(bx * BM, BM)));
  });
}

// Softmax of every row of x; rows are at most `width` wide.
inline Kernel row_softmax(int block_rows, int width) {
  return trace("row_softmax", [&] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor X = input("x", F32, {rows, cols});
    Tensor Y = output("y", F32, {rows, cols});
    auto [bx, by, bz] = launch({ceildiv(rows, block_rows)});

    Tile x = alloc_fragment({block_rows, width}, F32);
    Tile top = alloc_fragment({block_rows}, F32), sum = alloc_fragment({block_rows}, F32);
    copy(X(span(bx * block_rows, block_rows), span(0 * bx, width)), x, {.pad = -INFINITY});
    reduce_max(x, top);
    for (auto [i, j] : parallel(block_rows, width))
      x(i, j) = select(j < cols, exp(x(i, j) - top(i)), 0);
    reduce_sum(x, sum);
    for (auto [i, j] : parallel(block_rows, width)) x(i, j) = x(i, j) / sum(i);
    copy(x, Y(span(bx * block_rows, block_rows), span(0 * bx, width)));
  });
}

}  // namespace kiln
