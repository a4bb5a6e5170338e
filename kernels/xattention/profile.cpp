#include "kernels/xattention/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"

namespace kiln {
namespace {

std::vector<double> row_of(const Array& sums, int64_t row) {
  const int64_t cols = sums.shape()[3];
  std::vector<double> values(static_cast<size_t>(cols));
  for (int64_t c = 0; c < cols; ++c) values[static_cast<size_t>(c)] = sums.get(row * cols + c);
  return values;
}

// The least of the estimates in the smallest set of blocks that has the mass.
double cut_of(const std::vector<double>& full, const std::vector<double>& estimated, double mass) {
  std::vector<size_t> order(full.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return full[a] > full[b]; });
  const double wanted = mass * std::accumulate(full.begin(), full.end(), 0.0);
  double covered = 0, cut = estimated[order[0]];
  for (size_t column : order) {
    cut = std::min(cut, estimated[column]);
    covered += full[column];
    if (covered >= wanted) break;
  }
  return cut;
}

void check_text(const ProfiledText& text, int64_t heads) {
  for (auto [what, sums] : {std::pair("full", &text.full), std::pair("estimated", &text.estimated)})
    if (sums->shape().size() != 4 || !is_float(sums->dtype()) || sums->shape()[1] != heads)
      throw UserError(fmt::format("{}: expected floats [batch, {}, rows, cols], got {} {}", what,
                                  heads, name(sums->dtype()), str(sums->shape())));
  if (text.full.shape() != text.estimated.shape())
    throw UserError(fmt::format("estimated: expected shape {}, as full has, got {}",
                                str(text.full.shape()), str(text.estimated.shape())));
  for (auto [what, sums] : {std::pair("full", &text.full), std::pair("estimated", &text.estimated)})
    for (int64_t i = 0; i < sums->size(); ++i)
      if (!(sums->get(i) >= 0) || std::isinf(sums->get(i)))
        throw UserError(fmt::format("{}: expected finite sums of 0 or more, got {} at element {}",
                                    what, sums->get(i), i));
}

}  // namespace

Array full_block_sums(const Memory& q, const Memory& k, const BlockGrid& grid, double scale) {
  require_grid(grid);
  require_rank("q", q, 4, "batch, heads, seq, dim");
  require_rank("k", k, 4, "batch, heads_kv, seq_kv, dim");
  require_shape("q", q, {q.shape[0], q.shape[1], grid.seq, q.shape[3]});
  require_shape("k", k, {q.shape[0], k.shape[1], grid.seq_kv, q.shape[3]});
  const int64_t heads_kv = k.shape[1];
  if (heads_kv == 0 ? q.shape[1] != 0 : q.shape[1] % heads_kv != 0)
    throw UserError(fmt::format("heads: expected a multiple of the {} heads of k, got {}", heads_kv,
                                q.shape[1]));
  const int64_t batch = q.shape[0], heads = q.shape[1], dim = q.shape[3];
  const int64_t group = heads / std::max<int64_t>(heads_kv, 1);
  const int64_t rows = grid.rows(), cols = grid.cols();
  Array sums(F64, {batch, heads, rows, cols});
  auto* out = static_cast<double*>(sums.data());
  std::vector<double> weights;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < grid.seq; ++i) {
        const int64_t visible = grid.visible_keys(i);
        weights.assign(static_cast<size_t>(visible), 0);
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        for (int64_t j = 0; j < visible; ++j) {
          double score = 0;
          for (int64_t d = 0; d < dim; ++d)
            score += load_double(q, {b, h, i, d}) * load_double(k, {b, h / group, j, d});
          top = std::max(top, weights[static_cast<size_t>(j)] = scale * score);
        }
        for (double& weight : weights) total += weight = std::exp(weight - top);
        double* row = out + ((b * heads + h) * rows + i / grid.block.q) * cols;
        for (int64_t j = 0; j < visible; ++j)
          row[j / grid.block.k] += weights[static_cast<size_t>(j)] / total;
      }
  return sums;
}

std::vector<double> profile_thresholds(std::span<const ProfiledText> texts, double mass) {
  if (!(mass > 0 && mass <= 1))
    throw UserError(fmt::format("mass: expected above 0, at most 1, got {}", mass));
  if (texts.empty()) throw UserError("texts: expected one or more, got none");
  if (texts[0].full.shape().size() != 4) check_text(texts[0], 1);
  const int64_t heads = texts[0].full.shape()[1];
  std::vector<double> thresholds(static_cast<size_t>(heads));
  for (const ProfiledText& text : texts) {
    check_text(text, heads);
    const Shape& shape = text.full.shape();
    std::vector<double> kept(thresholds.size()), all(thresholds.size());
    for (int64_t row = 0; row < shape[0] * heads * shape[2]; ++row) {
      const auto head = static_cast<size_t>(row / shape[2] % heads);
      const std::vector<double> full = row_of(text.full, row);
      const std::vector<double> estimated = row_of(text.estimated, row);
      if (std::none_of(full.begin(), full.end(), [](double sum) { return sum > 0; })) continue;
      const double cut = cut_of(full, estimated, mass);
      for (double sum : estimated) {
        all[head] += sum;
        if (sum >= cut) kept[head] += sum;
      }
    }
    for (size_t h = 0; h < thresholds.size(); ++h)
      if (all[h] > 0) thresholds[h] = std::max(thresholds[h], kept[h] / all[h]);
  }
  // A head of which nothing was seen keeps everything.
  for (double& threshold : thresholds)
    if (threshold == 0) threshold = 1;
  return thresholds;
}

}  // namespace kiln
