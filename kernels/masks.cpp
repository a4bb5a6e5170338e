#include "kernels/masks.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"

namespace kiln {
namespace {

struct Rows {
  int64_t count, cols;
};
// A mask or score array as rows of columns.
Rows rows_of(const Array& array, const char* what) {
  if (array.shape().size() != 4)
    throw UserError(std::string(what) + ": expected shape [batch, heads, rows, cols], got " +
                    str(array.shape()));
  int64_t cols = array.shape()[3];
  return {array.shape()[0] * array.shape()[1] * array.shape()[2], cols};
}

bool is_set(const Array& mask, int64_t at) {
  return mask.span<uint8_t>()[at] != 0;
}
void set(Array& mask, int64_t at, bool value) {
  mask.span<uint8_t>()[at] = value;
}

// The mean of `count` rows of `tensor` from `begin` on.
std::vector<double> mean_row(const Memory& tensor, int64_t b, int64_t h, int64_t begin,
                             int64_t count) {
  std::vector<double> mean(tensor.shape[3]);
  for (int64_t i = begin; i < begin + count; ++i)
    for (size_t d = 0; d < mean.size(); ++d)
      mean[d] += load_double(tensor, {b, h, i, static_cast<int64_t>(d)});
  for (double& value : mean) value /= static_cast<double>(count);
  return mean;
}
std::vector<std::vector<double>> block_means(const Memory& tensor, int64_t b, int64_t h,
                                             int64_t block) {
  std::vector<std::vector<double>> means;
  for (int64_t begin = 0; begin < tensor.shape[2]; begin += block)
    means.push_back(mean_row(tensor, b, h, begin, std::min(block, tensor.shape[2] - begin)));
  return means;
}

}  // namespace

std::string str(BlockShape block) {
  return block.q == block.k ? std::to_string(block.q)
                            : std::to_string(block.q) + "x" + std::to_string(block.k);
}

BlockShape block_shape(std::string_view what, std::string_view text) {
  const auto number = [&](std::string_view digits) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size())
      throw UserError(std::string(what) + ": expected an integer or two, 64 or 64x128, got '" +
                      std::string(text) + "'");
    return value;
  };
  const size_t x = text.find('x');
  if (x == std::string_view::npos) return number(text);
  return {number(text.substr(0, x)), number(text.substr(x + 1))};
}

int64_t BlockGrid::visible_keys(int64_t query) const {
  return causal ? std::clamp(query + 1 + seq_kv - seq, int64_t{0}, seq_kv) : seq_kv;
}

int64_t BlockGrid::visible_cols(int64_t row) const {
  return (visible_keys(std::min((row + 1) * block.q, seq) - 1) + block.k - 1) / block.k;
}

void require_mask(const Array& mask) {
  if (mask.shape().size() != 4 || (mask.dtype() != Bool && mask.dtype() != I8))
    throw UserError("mask: expected bool or i8 [batch, heads, rows, cols], got " +
                    std::string(name(mask.dtype())) + " " + str(mask.shape()));
}

void require_grid(const BlockGrid& grid) {
  if (grid.block.q < 1 || grid.block.k < 1)
    throw UserError("block: expected 1 or more queries by 1 or more keys, got " + str(grid.block));
  if (grid.seq < 0 || grid.seq_kv < 0)
    throw UserError("seq, seq_kv: expected 0 or more, got " + std::to_string(grid.seq) + " and " +
                    std::to_string(grid.seq_kv));
}

Array top_k_mask(const Array& scores, int64_t k) {
  if (k < 0) throw UserError("top-k: expected 0 or more, got " + std::to_string(k));
  Rows rows = rows_of(scores, "scores");
  Array mask(Bool, scores.shape());
  std::vector<int64_t> order(rows.cols);
  std::vector<double> key(rows.cols);
  for (int64_t row = 0; row < rows.count; ++row) {
    for (int64_t c = 0; c < rows.cols; ++c) {
      double value = scores.get(row * rows.cols + c);
      key[c] = std::isnan(value) ? -std::numeric_limits<double>::infinity() : value;
    }
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return key[a] > key[b]; });
    for (int64_t i = 0; i < std::min(k, rows.cols); ++i)
      set(mask, row * rows.cols + order[i], true);
  }
  return mask;
}

Array threshold_mask(const Array& scores, double threshold) {
  if (std::isnan(threshold)) throw UserError("threshold: expected a number, got NaN");
  Rows rows = rows_of(scores, "scores");
  Array mask(Bool, scores.shape());
  for (int64_t i = 0; i < rows.count * rows.cols; ++i) set(mask, i, scores.get(i) > threshold);
  return mask;
}

void trim(Array& mask, const BlockGrid& grid) {
  Rows rows = rows_of(mask, "mask");
  for (int64_t row = 0; row < rows.count; ++row) {
    int64_t r = row % mask.shape()[2];
    int64_t visible = r < grid.rows() ? grid.visible_cols(r) : 0;
    for (int64_t c = visible; c < rows.cols; ++c) set(mask, row * rows.cols + c, false);
  }
}

void set_last_rows(Array& mask) {
  Rows rows = rows_of(mask, "mask");
  for (int64_t row = 0; row < rows.count; ++row)
    if (row % mask.shape()[2] >= mask.shape()[2] - 2)
      for (int64_t c = 0; c < rows.cols; ++c) set(mask, row * rows.cols + c, true);
}

Array slice_rows(const Array& mask, int64_t past, int64_t block_q) {
  require_mask(mask);
  const int64_t all = mask.shape()[2], cols = mask.shape()[3];
  if (block_q < 1 || past < 0 || past % block_q || past / block_q > all)
    throw UserError("past: expected a multiple of the block " + std::to_string(block_q) +
                    " from 0 to " + std::to_string(all) + " blocks, got " + std::to_string(past));
  const int64_t skipped = past / block_q, rows = all - skipped;
  Array rest(mask.dtype(), {mask.shape()[0], mask.shape()[1], rows, cols});
  for (int64_t i = 0; i < rest.size(); ++i)
    rest.set(i, mask.get(i + (i / (rows * cols) + 1) * skipped * cols));
  return rest;
}

Array random_mask(int64_t batch, int64_t heads, const BlockGrid& grid, double density,
                  uint64_t seed) {
  if (!(density >= 0 && density <= 1))
    throw UserError("density: expected 0 to 1, got " + std::to_string(density));
  int64_t rows = grid.rows(), cols = grid.cols();
  Array mask(Bool, {batch, heads, rows, cols});
  std::mt19937_64 random(seed);
  for (int64_t head = 0; head < batch * heads; ++head) {
    std::vector<int64_t> others;
    int64_t visible = 0, chosen = 0;
    for (int64_t r = 0; r < rows; ++r) {
      int64_t n = grid.visible_cols(r), begin = (head * rows + r) * cols;
      if (n == 0) continue;
      // Without causality the diagonal of a square mask is its own; the last column bounds it.
      int64_t diagonal = grid.causal ? n - 1 : std::min(r * grid.block.q / grid.block.k, n - 1);
      for (int64_t c = 0; c < n; ++c)
        if (c != diagonal) others.push_back(begin + c);
      set(mask, begin + diagonal, true);
      visible += n;
      ++chosen;
    }
    std::shuffle(others.begin(), others.end(), random);
    int64_t target = std::llround(density * static_cast<double>(visible));
    for (size_t i = 0; i < others.size() && chosen < target; ++i, ++chosen)
      set(mask, others[i], true);
  }
  return mask;
}

Array random_scores(int64_t batch, int64_t heads, const BlockGrid& grid, uint64_t seed) {
  Array scores(F32, {batch, heads, grid.rows(), grid.cols()});
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < scores.size(); ++i) scores.set(i, normal(random));
  return scores;
}

Array pooled_scores(const Memory& q, const Memory& k, const BlockGrid& grid, double scale) {
  int64_t batch = q.shape[0], heads = q.shape[1], rows = grid.rows(), cols = grid.cols();
  int64_t group = heads / std::max<int64_t>(k.shape[1], 1);
  Array scores(F32, {batch, heads, rows, cols});
  for (int64_t b = 0; b < batch; ++b) {
    std::vector<std::vector<double>> keys;
    for (int64_t h = 0; h < heads; ++h) {
      if (h % group == 0) keys = block_means(k, b, h / group, grid.block.k);
      auto queries = block_means(q, b, h, grid.block.q);
      for (int64_t r = 0; r < rows; ++r) {
        int64_t visible = grid.visible_cols(r), begin = ((b * heads + h) * rows + r) * cols;
        std::vector<double> logits(visible);
        for (int64_t c = 0; c < visible; ++c)
          logits[c] = scale * std::inner_product(queries[r].begin(), queries[r].end(),
                                                 keys[c].begin(), 0.0);
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (double logit : logits) top = std::max(top, logit);
        for (double& logit : logits) sum += logit = std::exp(logit - top);
        for (int64_t c = 0; c < visible; ++c) scores.set(begin + c, logits[c] / sum);
      }
    }
  }
  return scores;
}

BlockLists to_lists(const Array& mask) {
  require_mask(mask);
  Rows rows = rows_of(mask, "mask");
  std::vector<std::vector<int64_t>> lists(rows.count);
  size_t longest = 0;
  for (int64_t row = 0; row < rows.count; ++row) {
    for (int64_t c = 0; c < rows.cols; ++c)
      if (is_set(mask, row * rows.cols + c)) lists[row].push_back(c);
    longest = std::max(longest, lists[row].size());
  }
  int64_t width = static_cast<int64_t>(longest);
  BlockLists out{Array(I32, {mask.shape()[0], mask.shape()[1], mask.shape()[2]}),
                 Array(I32, {mask.shape()[0], mask.shape()[1], mask.shape()[2], width})};
  for (int64_t row = 0; row < rows.count; ++row) {
    const auto& list = lists[row];
    out.counts.set(row, static_cast<double>(list.size()));
    for (int64_t i = 0; i < width; ++i)
      out.indices.set(row * width + i,
                      i < static_cast<int64_t>(list.size()) ? static_cast<double>(list[i]) : -1);
  }
  return out;
}

Array from_lists(const Memory& counts, const Memory& indices, int64_t cols) {
  const Shape& shape = indices.shape;
  require_rank("indices", indices, 4, "batch, heads, rows, entries");
  require_rank("counts", counts, 3, "batch, heads, rows");
  require_shape("counts", counts, {shape[0], shape[1], counts.shape[2]});
  if (counts.shape[2] < shape[2]) require_shape("counts", counts, {shape[0], shape[1], shape[2]});
  Array mask(Bool, {shape[0], shape[1], shape[2], cols});
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t r = 0; r < shape[2]; ++r) {
        int64_t row = (b * shape[1] + h) * shape[2] + r;
        auto entries = std::min(load_double(counts, {b, h, r}), static_cast<double>(shape[3]));
        for (int64_t i = 0; static_cast<double>(i) < entries; ++i) {
          auto c = static_cast<int64_t>(load_double(indices, {b, h, r, i}));
          if (c >= 0 && c < cols) set(mask, row * cols + c, true);
        }
      }
  return mask;
}

BlockCount count_blocks(const Memory& mask, const BlockGrid& grid) {
  BlockCount total;
  for (int64_t b = 0; b < mask.shape[0]; ++b)
    for (int64_t h = 0; h < mask.shape[1]; ++h)
      for (int64_t r = 0; r < grid.rows(); ++r) {
        int64_t visible = grid.visible_cols(r);
        total.visible += visible;
        for (int64_t c = 0; c < visible; ++c)
          total.selected += load_double(mask, {b, h, r, c}) != 0;
      }
  return total;
}

}  // namespace kiln
