// The k largest numbers of each row, in order, and their columns; rows of any length.
//
// What it shows: `topk` with values that go along with the keys; a tile filled part by part, by
// copies into views of it, so that the best so far and a new stretch of the row compete; NaN as the
// pad of a copy: it sorts last, so that what is beyond the end does not win even against -inf.
// Equal numbers keep the order of their columns: every device gives the same columns.
#include <algorithm>
#include <cmath>

#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kRows = 4, kCols = 96;  // of the stretch that a step adds

// NaNs in the row are not numbers: where it has fewer than k, the rest is -inf in column -1.
Kernel long_topk_kernel(DType dtype, int64_t k) {
  return trace("long_topk", [&] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor X = input("x", dtype, {rows, cols});
    Tensor Top = output("top", dtype, {rows, k}), Where = output("where", I32, {rows, k});

    auto first = launch({ceildiv(rows, kRows)})[0] * kRows;
    Tile keys = alloc_shared({kRows, k + kCols}, F32);
    Tile columns = alloc_shared({kRows, k + kCols}, I32);
    Tile best = alloc_fragment({kRows, k}, F32), best_at = alloc_fragment({kRows, k}, I32);
    fill(best, NAN);
    fill(best_at, -1);
    for (auto t : serial(ceildiv(cols, kCols))) {
      copy(best, keys(all, span(0, k)));  // in front: of equal numbers the first column stays
      copy(best_at, columns(all, span(0, k)));
      copy(X(span(first, kRows), span(t * kCols, kCols)), keys(all, span(k, kCols)), {.pad = NAN});
      for (auto [i, j] : parallel(kRows, kCols)) columns(i, k + j) = t * kCols + j;
      topk(keys, columns, best, best_at);
    }
    for (auto [i, j] : parallel(kRows, k)) {
      auto is_number = best(i, j) == best(i, j);
      best_at(i, j) = select(is_number, best_at(i, j), -1);
      best(i, j) = select(is_number, best(i, j), -infinity(F32));
    }
    copy(best, Top(span(first, kRows), all));
    copy(best_at, Where(span(first, kRows), all));
  });
}

}  // namespace

int examples::long_topk(int argc, char** argv) {
  Example example("long_topk", argc, argv);
  const DType dtype = example.dtype({F32, F16, BF16});
  const int64_t rows = example.number("rows", 10), cols = example.number("cols", 500);
  const int64_t k = example.number("k", 10);
  if (k < 1) throw UserError("long_topk: --k: expected 1 or more, got 0");

  // Many equal numbers, some infinities and NaNs.
  Data x = example.tensor(dtype, {rows, cols}), top = example.tensor(dtype, {rows, k});
  Data where = example.tensor(I32, {rows, k});
  std::vector<double> values(static_cast<size_t>(rows * cols));
  for (double& value : values) {
    value = std::round(example.uniform(-50, 50));
    if (value == 50) value = INFINITY;
    if (std::abs(value) == 49) value = -INFINITY;
    if (std::abs(value) == 48) value = NAN;
  }
  x.set(values);
  example.run(long_topk_kernel(dtype, k),
              Arguments().tensor("x", x).tensor("top", top).tensor("where", where));

  std::vector<double> expected, expected_at;
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<int64_t> order;
    for (int64_t j = 0; j < cols; ++j)
      if (!std::isnan(x({i, j}))) order.push_back(j);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return x({i, a}) > x({i, b});
    });
    for (int64_t n = 0; n < k; ++n) {
      const bool there = n < static_cast<int64_t>(order.size());
      expected.push_back(there ? x({i, order[n]}) : -INFINITY);
      expected_at.push_back(there ? static_cast<double>(order[n]) : -1);
    }
  }
  example.check(top, expected, 0);
  example.check(where, expected_at, 0);
  return example.finish();
}
