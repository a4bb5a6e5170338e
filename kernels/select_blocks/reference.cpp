// The choice in plain loops: everything sorted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/select_blocks/select_blocks.h"

namespace kiln {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_forced(const SelectConfig& config, const RowChoice& row, int64_t column) {
  if (!config.causal) return false;
  const bool sink = config.force_sink && column == 0 && !(config.ref_compat && row.first_chunk);
  return sink || (config.force_diag && (column == row.low_diagonal || column == row.diagonal));
}

}  // namespace

std::vector<bool> choose_row(const SelectConfig& config, const std::vector<double>& scores,
                             const RowChoice& row) {
  const bool by_mass = config.by == SelectBy::Threshold;
  const bool surplus = config.ref_compat && config.causal;
  std::vector<double> score(scores.begin(), scores.begin() + row.visible);
  for (double& s : score) s = by_mass ? (s > 0 ? s : 0) : (std::isnan(s) ? -kInfinity : s);

  std::vector<int64_t> others;
  std::vector<bool> chosen(scores.size(), false);
  double total = 0, so_far = 0;  // of TopK: numbers
  int64_t forced = 0;
  for (int64_t c = 0; c < row.visible; ++c) {
    total += score[c];
    if (is_forced(config, row, c)) {
      chosen[c] = true;
      so_far += by_mass ? score[c] : 1;
      ++forced;
    } else if (score[c] > (by_mass ? 0 : -kInfinity) || surplus) {
      others.push_back(c);
    }
  }
  std::stable_sort(others.begin(), others.end(),
                   [&](int64_t a, int64_t b) { return score[a] > score[b]; });
  const double wanted = by_mass ? row.threshold * total : row.threshold;
  size_t kept = 0;
  while (kept < others.size() && so_far < wanted && (!by_mass || score[others[kept]] > 0))
    so_far += by_mass ? score[others[kept++]] : (++kept, 1);
  if (surplus && forced == 1 && wanted > 0) kept = std::min(kept + 1, others.size());
  for (size_t i = 0; i < kept; ++i) chosen[others[i]] = true;

  for (int64_t c = 0; c < row.visible; ++c)
    if ((c == 0 && (config.keep_sink || config.ref_compat)) ||
        (config.keep_recent && (c == row.low_diagonal || c == row.diagonal)))
      chosen[c] = true;
  if (config.ref_compat && config.keep_sink && row.first_row) chosen.assign(chosen.size(), true);
  return chosen;
}

std::vector<bool> reduce_masks(HeadReduce reduce, const std::vector<std::vector<bool>>& masks) {
  std::vector<bool> result(masks.at(0).size());
  for (size_t i = 0; i < result.size(); ++i) {
    size_t votes = 0;
    for (const std::vector<bool>& mask : masks) votes += mask[i];
    result[i] = reduce == HeadReduce::Any ? votes > 0 : 2 * votes > masks.size();
  }
  return result;
}

}  // namespace kiln
