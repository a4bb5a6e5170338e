// How many numbers fall into each of `bins` equal parts of [low, high).
//
// What it shows: atomics, on a shared tile where a block's points meet, then on a tensor where
// blocks meet; that out of range they do nothing, so that no bound is checked by hand; two
// launches, the first of which sets the counts to 0. There may be any number of bins: a block
// counts a range of them, and the second axis of the grid is the range.
#include <algorithm>
#include <cmath>

#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kBins = 512;    // of a block
constexpr int64_t kTile = 1024;   // numbers at a time
constexpr int64_t kPerBlock = 4;  // tiles

Kernel histogram_kernel(DType dtype) {
  return trace("histogram", [&] {
    Dim n = dim("n"), bins = dim("bins");
    Tensor X = input("x", dtype, {n}), Counts = inout("counts", I32, {bins});
    auto low = param("low", F32), high = param("high", F32);

    auto part = launch({ceildiv(bins, kBins)})[0];
    clear(Counts(span(part * kBins, kBins)));

    auto [block, range, unused] = launch({ceildiv(n, kTile * kPerBlock), ceildiv(bins, kBins)});
    auto first_bin = range * kBins;
    auto per_unit = cast(bins, F32) / (high - low);
    Tile x = alloc_fragment({kTile}, F32), counts = alloc_shared({kBins}, I32);
    clear(counts);
    for (auto t : pipelined(kPerBlock)) {
      copy(X(span((block * kPerBlock + t) * kTile, kTile)), x, {.pad = NAN});
      for (auto i : parallel(kTile)) {
        auto inside = x(i) >= low && x(i) < high;  // NaN is not
        auto bin = min(cast((x(i) - low) * per_unit, I32), bins - 1);
        atomic_add(counts(select(inside, bin - first_bin, -1)), 1);
      }
    }
    for (auto b : parallel(kBins)) atomic_add(Counts(first_bin + b), counts(b));
  });
}

}  // namespace

int examples::histogram(int argc, char** argv) {
  Example example("histogram", argc, argv);
  const DType dtype = example.dtype({F32, F16, BF16});
  const int64_t n = example.number("n", 10000), bins = example.number("bins", 100);
  const float low = -1, high = 3;

  Data x = example.tensor(dtype, {n}), counts = example.tensor(I32, {bins});
  std::vector<double> values(static_cast<size_t>(n));
  for (double& value : values) value = example.uniform(-1.5, 3.5);
  if (n > 2) values[n / 2] = NAN;
  x.set(values);
  Arguments arguments;
  arguments.tensor("x", x).tensor("counts", counts).param("low", low).param("high", high);
  example.run(histogram_kernel(dtype), arguments);

  // Where a number lies within rounding of a border, f32 decides: as the kernel, in f32.
  std::vector<double> expected(static_cast<size_t>(bins));
  const float per_unit = static_cast<float>(bins) / (high - low);
  for (int64_t i = 0; i < n; ++i) {
    const auto value = static_cast<float>(x({i}));
    if (bins > 0 && value >= low && value < high)
      expected[std::min(static_cast<int64_t>((value - low) * per_unit), bins - 1)] += 1;
  }
  example.check(counts, expected, 0);
  return example.finish();
}
