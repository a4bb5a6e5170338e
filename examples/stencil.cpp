// Steps of a nine-point stencil on a grid that is surrounded by zeros: each point becomes a
// weighted sum of itself and its eight neighbours.
//
// What it shows: a tile with a halo is one copy of a view that sticks out, at the front too, where
// the copy reads zeros; a shared tile read at any offset; C++ loops over C++ numbers, which write
// code (nine terms, a launch a step); launches that follow one another and leave their results in
// workspaces, which the program declares and the caller never sees.
#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kRows = 16, kCols = 64;  // of a tile
constexpr double kWeight[3][3] = {{0.05, 0.1, 0.05}, {0.15, 0.3, 0.1}, {0.05, 0.12, 0.08}};

Kernel stencil_kernel(DType dtype, int64_t steps) {
  return trace("stencil", [&] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor X = input("x", dtype, {rows, cols}), Y = output("y", dtype, {rows, cols});

    auto step = [&](const Tensor& from, const Tensor& to) {
      auto [block_x, block_y, unused] = launch({ceildiv(cols, kCols), ceildiv(rows, kRows)});
      auto x = block_x * kCols, y = block_y * kRows;
      Tile old = alloc_shared({kRows + 2, kCols + 2}, dtype);
      Tile sum = alloc_fragment({kRows, kCols}, dtype == F64 ? F64 : F32);
      copy(from(span(y - 1, kRows + 2), span(x - 1, kCols + 2)), old);
      for (auto [i, j] : parallel(kRows, kCols)) {
        sum(i, j) = 0;
        for (int di : {0, 1, 2})
          for (int dj : {0, 1, 2}) sum(i, j) += kWeight[di][dj] * old(i + di, j + dj);
      }
      copy(sum, to(span(y, kRows), span(x, kCols)));
    };

    // From x through the workspaces in turn to y.
    std::vector<Tensor> between;
    for (int64_t i = 0; i < min(steps - 1, 2); ++i)
      between.push_back(workspace(i == 0 ? "even" : "odd", dtype, {rows, cols}));
    for (int64_t i = 0; i < steps; ++i)
      step(i == 0 ? X : between[(i - 1) % 2], i == steps - 1 ? Y : between[i % 2]);
  });
}

}  // namespace

int examples::stencil(int argc, char** argv) {
  Example example("stencil", argc, argv);
  const DType dtype = example.dtype({F32, F64, F16, BF16});
  const int64_t rows = example.number("rows", 100), cols = example.number("cols", 200);
  const int64_t steps = example.number("steps", 5);
  if (steps < 1) throw UserError("stencil: --steps: expected 1 or more, got 0");

  Data x = example.random(dtype, {rows, cols}), y = example.tensor(dtype, {rows, cols});
  example.run(stencil_kernel(dtype, steps), Arguments().tensor("x", x).tensor("y", y));

  std::vector<double> grid = x.values(), next = grid;
  for (int64_t step = 0; step < steps; ++step, grid = next)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        double sum = 0;
        for (int64_t r = std::max<int64_t>(i - 1, 0); r <= i + 1 && r < rows; ++r)
          for (int64_t c = std::max<int64_t>(j - 1, 0); c <= j + 1 && c < cols; ++c)
            sum += kWeight[r - i + 1][c - j + 1] * grid[r * cols + c];
        next[i * cols + j] = sum;
      }
  example.check(y, grid, tolerance(dtype));
  return example.finish();
}
