// The choice of blocks, on the host.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/quest/quest.h"

namespace kiln {
namespace {

int64_t block_count(int64_t length, int64_t block) {
  return (std::max<int64_t>(length, 0) + block - 1) / block;
}

void check(const Memory& scores, const Memory& lengths, int64_t block) {
  if (block < 1) throw UserError(fmt::format("block: expected 1 or more, got {}", block));
  if (!is_float(scores.dtype) || scores.shape.size() != 3)
    throw UserError(fmt::format("scores: expected floats [batch, heads_kv, blocks], got {} {}",
                                name(scores.dtype), str(scores.shape)));
  if (lengths.dtype != I32 || lengths.shape != Shape{scores.shape[0]})
    throw UserError(fmt::format("lengths: expected i32 [{}], got {} {}", scores.shape[0],
                                name(lengths.dtype), str(lengths.shape)));
  for (int64_t b = 0; b < scores.shape[0]; ++b) {
    const auto length = static_cast<int64_t>(load_double(lengths, {b}));
    if (length < 0 || block_count(length, block) > scores.shape[2])
      throw UserError(fmt::format("lengths: sequence {}: expected 0 to {}, {} blocks of {}, got {}",
                                  b, scores.shape[2] * block, scores.shape[2], block, length));
  }
}

// The numbers of the `kept` best of the first `count`, the last always one of them; ascending.
std::vector<int64_t> best(const Memory& scores, int64_t b, int64_t h, int64_t count, int64_t kept) {
  std::vector<double> key(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double score = load_double(scores, {b, h, i});
    key[i] = std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
  }
  std::vector<int64_t> order(key.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t c) {
    if ((a == count - 1) != (c == count - 1)) return a == count - 1;
    return key[a] > key[c];
  });
  order.resize(static_cast<size_t>(kept));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

int64_t kept_blocks(int64_t length, int64_t block, double sparse_ratio, int64_t least) {
  if (!(sparse_ratio >= 0 && sparse_ratio <= 1))
    throw UserError(fmt::format("sparse_ratio: expected 0 to 1, got {}", sparse_ratio));
  constexpr double kRounding = 1e-9;  // 1000 · (1 − 0.9) / 10 is a little more than 10
  const double wanted =
      static_cast<double>(length) * (1 - sparse_ratio) / static_cast<double>(block);
  const auto kept = static_cast<int64_t>(std::ceil(wanted - kRounding));
  return std::min(std::max({kept, least, int64_t{1}}), block_count(length, block));
}

Array select_blocks(const Memory& scores, const Memory& lengths, int64_t block, double sparse_ratio,
                    int64_t least) {
  check(scores, lengths, block);
  const int64_t batch = scores.shape[0], heads = scores.shape[1];
  std::vector<int64_t> length, kept;
  for (int64_t b = 0; b < batch; ++b) {
    length.push_back(static_cast<int64_t>(load_double(lengths, {b})));
    kept.push_back(kept_blocks(length.back(), block, sparse_ratio, least));
  }
  const int64_t most = kept.empty() ? 0 : *std::max_element(kept.begin(), kept.end());
  Array chosen(I32, {batch, heads, most});
  for (int64_t row = 0; row < batch * heads; ++row) {
    const int64_t b = row / heads;
    const auto numbers = best(scores, b, row % heads, block_count(length[b], block), kept[b]);
    for (int64_t i = 0; i < most; ++i)
      chosen.set(row * most + i, i < kept[b] ? static_cast<double>(numbers[i]) : -1);
  }
  return chosen;
}

}  // namespace kiln
