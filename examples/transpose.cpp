// y[b, j, i] = x[b, i, j], of elements of any dtype.
//
// What it shows: why a shared tile is worth a detour. The copy in and the copy out both go along
// rows of memory; the turn happens on chip, where a shared tile may be read at any index. The dtype
// is a C++ value: fifteen kernels from one function.
#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kTile = 64;

Kernel transpose_kernel(DType dtype) {
  return trace("transpose", [&] {
    Dim batch = dim("batch"), rows = dim("rows"), cols = dim("cols");
    Tensor X = input("x", dtype, {batch, rows, cols}), Y = output("y", dtype, {batch, cols, rows});

    auto [block_x, block_y, b] = launch({ceildiv(cols, kTile), ceildiv(rows, kTile), batch});
    Span in_rows = span(block_y * kTile, kTile), in_cols = span(block_x * kTile, kTile);
    Tile x = alloc_shared({kTile, kTile}, dtype), y = alloc_fragment({kTile, kTile}, dtype);
    copy(X(b, in_rows, in_cols), x);
    for (auto [j, i] : parallel(kTile, kTile)) y(j, i) = x(i, j);
    copy(y, Y(b, in_cols, in_rows));
  });
}

}  // namespace

int examples::transpose(int argc, char** argv) {
  Example example("transpose", argc, argv);
  const DType dtype = example.dtype({kAllDTypes, std::end(kAllDTypes)});
  const int64_t batch = example.number("batch", 2), rows = example.number("rows", 150);
  const int64_t cols = example.number("cols", 100);

  Data x = example.random(dtype, {batch, rows, cols}, 0, 100);
  Data y = example.tensor(dtype, {batch, cols, rows});
  example.run(transpose_kernel(dtype), Arguments().tensor("x", x).tensor("y", y));

  std::vector<double> expected;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t j = 0; j < cols; ++j)
      for (int64_t i = 0; i < rows; ++i) expected.push_back(x({b, i, j}));
  example.check(y, expected, 0);
  return example.finish();
}
