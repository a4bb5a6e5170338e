// The choice in plain loops: everything sorted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/access.h"
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
  const double wanted = by_mass && row.amount >= 1 ? kInfinity
                        : by_mass                  ? row.amount * total
                                                   : row.amount;
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

ChoiceResults choose_rows(const SelectConfig& config, const ChoiceArgs& args, const Shape& shape,
                          const std::vector<double>& scores,
                          const std::function<RowChoice(int64_t b, int64_t row)>& place_of) {
  const bool votes = config.reduce == HeadReduce::Any || config.reduce == HeadReduce::Majority;
  const bool by_mass = config.by == SelectBy::Threshold;
  const int64_t heads = shape[1], rows = shape[2], cols = shape[3], out_heads = args.mask.shape[1];
  const int64_t group = out_heads ? heads / out_heads : 1;
  // Of the mean of the `members` heads from `head` on, by the amount of the entry `who`.
  const auto choice = [&](int64_t b, int64_t row, int64_t head, int64_t members, int64_t who) {
    std::vector<double> mean(static_cast<size_t>(cols));
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t m = 0; m < members; ++m)
        mean[c] += scores[((b * heads + head + m) * rows + row) * cols + c];
      // Rounded as the kernel's means are, so that equal ones are equal.
      if (members > 1) mean[c] = static_cast<float>(mean[c] / static_cast<double>(members));
    }
    RowChoice place = place_of(b, row);
    place.amount = args.thresholds ? load_double(*args.thresholds, {who})
                   : by_mass       ? args.threshold.value_or(kDefaultThreshold)
                                   : static_cast<double>(*args.top_k);
    if (place.takes_all) {
      std::fill(mean.begin(), mean.end(), 1.0);
      place.amount = by_mass ? 1 : static_cast<double>(cols);
    }
    return choose_row(config, mean, place);
  };
  ChoiceResults results;
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < out_heads; ++h)
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<bool> chosen;
        if (votes) {
          std::vector<int64_t> count(static_cast<size_t>(cols));
          for (int64_t m = h * group; m < (h + 1) * group; ++m) {
            const std::vector<bool> ballot = choice(b, row, m, 1, m);
            for (int64_t c = 0; c < cols; ++c) count[c] += ballot[c];
          }
          for (int64_t n : count)
            chosen.push_back(config.reduce == HeadReduce::Any ? n > 0 : 2 * n > group);
        } else {
          chosen = choice(b, row, h * group, group, h);
        }
        const size_t end = results.indices.size() + chosen.size();
        for (size_t c = 0; c < chosen.size(); ++c) {
          results.mask.push_back(chosen[c]);
          if (chosen[c]) results.indices.push_back(static_cast<double>(c));
        }
        const auto count = std::count(chosen.begin(), chosen.end(), true);
        results.counts.push_back(static_cast<double>(count));
        results.indices.resize(end, -1);
      }
  return results;
}

}  // namespace kiln
