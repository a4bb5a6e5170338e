// One block computes one tile of the product.
#include "dsl/dsl.h"
#include "kernels/matmul/matmul.h"

namespace kiln {

Kernel matmul_kernel(const MatmulConfig& config) {
  const MatmulConfig c = validated(config);
  return trace("matmul", {.fast_math = true}, [&] {
    Dim m = dim("m"), n = dim("n"), k = dim("k");
    Tensor a = c.transpose_a ? input("a", c.dtype, {k, m}) : input("a", c.dtype, {m, k});
    Tensor b = c.transpose_b ? input("b", c.dtype, {n, k}) : input("b", c.dtype, {k, n});
    Tensor product = output("c", c.out, {m, n});
    auto [column, row, _] = launch({ceildiv(n, c.block_n), ceildiv(m, c.block_m)},
                                   {.threads = static_cast<int>(c.threads)});
    Span rows = span(row * c.block_m, c.block_m), columns = span(column * c.block_n, c.block_n);

    Tile a_tile = c.transpose_a ? alloc_shared({c.block_k, c.block_m}, c.dtype)
                                : alloc_shared({c.block_m, c.block_k}, c.dtype);
    Tile b_tile = c.transpose_b ? alloc_shared({c.block_n, c.block_k}, c.dtype)
                                : alloc_shared({c.block_k, c.block_n}, c.dtype);
    Tile acc = alloc_fragment({c.block_m, c.block_n}, c.dtype == F64 ? F64 : F32);
    clear(acc);
    for (auto step : pipelined(ceildiv(k, c.block_k), {.stages = static_cast<int>(c.stages)})) {
      Span depth = span(step * c.block_k, c.block_k);
      copy(c.transpose_a ? a(depth, rows) : a(rows, depth), a_tile);
      copy(c.transpose_b ? b(columns, depth) : b(depth, columns), b_tile);
      gemm(a_tile, b_tile, acc, {.transpose_a = c.transpose_a, .transpose_b = c.transpose_b});
    }
    copy(acc, product(rows, columns));
  });
}

}  // namespace kiln
