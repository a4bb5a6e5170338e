// y = RMSNorm(x) · W: each row of x divided by its root mean square, times a weight a column, times
// a matrix; in one pass over the depth. The division of a row commutes with the product: the
// squares are summed beside the gemm and the division comes last.
//
// What it shows: a loop over the depth that feeds a gemm and a reduction; arithmetic in f32 on
// tiles of 16 bits (a copy converts); an operand of a gemm made on chip; `clear = false`, a
// reduction that goes on. Depths that are no multiple of the tile read as 0, which adds nothing.
#include <cmath>

#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kRows = 64, kCols = 64, kDepth = 64;  // of a tile

Kernel norm_gemm_kernel(DType dtype) {
  return trace("norm_gemm", [&] {
    Dim rows = dim("rows"), cols = dim("cols"), depth = dim("depth");
    Tensor X = input("x", dtype, {rows, depth}), Weight = input("weight", dtype, {depth});
    Tensor W = input("w", dtype, {depth, cols}), Y = output("y", dtype, {rows, cols});
    auto epsilon = param("epsilon", F32);

    auto [column, row, unused] = launch({ceildiv(cols, kCols), ceildiv(rows, kRows)});
    Span in_rows = span(row * kRows, kRows), in_cols = span(column * kCols, kCols);

    Tile x = alloc_shared({kRows, kDepth}, dtype), w = alloc_shared({kDepth, kCols}, dtype);
    Tile wide = alloc_fragment({kRows, kDepth}, F32), weight = alloc_fragment({kDepth}, F32);
    Tile weighted = alloc_fragment({kRows, kDepth}, dtype);
    Tile squares = alloc_fragment({kRows}, F32), y = alloc_fragment({kRows, kCols}, F32);
    clear(squares);
    clear(y);
    for (auto t : pipelined(ceildiv(depth, kDepth))) {
      Span in_depth = span(t * kDepth, kDepth);
      copy(X(in_rows, in_depth), x);
      copy(W(in_depth, in_cols), w);
      copy(Weight(in_depth), weight);
      copy(x, wide);
      for (auto [i, k] : parallel(kRows, kDepth)) weighted(i, k) = wide(i, k) * weight(k);
      gemm(weighted, w, y);
      for (auto [i, k] : parallel(kRows, kDepth)) wide(i, k) *= wide(i, k);
      reduce_sum(wide, squares, 1, false);
    }
    for (auto [i, j] : parallel(kRows, kCols))
      y(i, j) *= rsqrt(squares(i) / cast(max(depth, 1), F32) + epsilon);
    copy(y, Y(in_rows, in_cols));
  });
}

std::vector<double> reference(const examples::Data& x, const examples::Data& weight,
                              const examples::Data& w, double epsilon) {
  const int64_t rows = x.shape()[0], depth = x.shape()[1], cols = w.shape()[1];
  std::vector<double> y;
  for (int64_t i = 0; i < rows; ++i) {
    double squares = 0;
    for (int64_t k = 0; k < depth; ++k) squares += x({i, k}) * x({i, k});
    const double root =
        std::sqrt(squares / static_cast<double>(std::max<int64_t>(depth, 1)) + epsilon);
    for (int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k) sum += x({i, k}) / root * weight({k}) * w({k, j});
      y.push_back(sum);
    }
  }
  return y;
}

}  // namespace

int examples::norm_gemm(int argc, char** argv) {
  Example example("norm_gemm", argc, argv);
  const DType dtype = example.dtype({F16, BF16, F32});
  const int64_t rows = example.number("rows", 150), cols = example.number("cols", 100);
  const int64_t depth = example.number("depth", 200);
  const double epsilon = 1e-5;

  Data x = example.random(dtype, {rows, depth}), weight = example.random(dtype, {depth}, 0.5, 1.5);
  // The variance of a result is then about 1.
  const double size = std::sqrt(3.0 / std::max<double>(1, static_cast<double>(depth)));
  Data w = example.random(dtype, {depth, cols}, -size, size);
  Data y = example.tensor(dtype, {rows, cols});
  Arguments arguments;
  arguments.tensor("x", x).tensor("weight", weight).tensor("w", w).tensor("y", y);
  arguments.param("epsilon", epsilon);
  example.run(norm_gemm_kernel(dtype), arguments);
  example.check(y, reference(x, weight, w, epsilon), tolerance(dtype));
  return example.finish();
}
