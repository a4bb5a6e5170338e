// Decode in float64, one query after another: softmax over the set of keys that it sees.
#include <algorithm>
#include <cmath>

#include "kernels/access.h"
#include "kernels/sparse_decode/sparse_decode.h"

namespace kiln {
namespace {

// The arguments, one element after another.
struct Problem {
  const DecodeConfig& c;
  const DecodeArgs& args;

  double element(const Memory& tensor, int64_t b, int64_t token, int64_t head, int64_t d) const {
    if (tensor.shape.size() == 3) return load_double(tensor, {b, head, d});
    return load_double(tensor, {b, token, head, d});
  }
  double cached(const Memory& cache, int64_t b, int64_t key, int64_t head, int64_t d) const {
    if (!c.page) return load_double(cache, {b, key, head, d});
    const auto page = static_cast<int64_t>(load_double(*args.table, {b, key / c.page}));
    return load_double(cache, {page, key % c.page, head, d});
  }
  double scale(const std::optional<Memory>& scales, int64_t head) const {
    if (!scales) return 1;
    const int64_t i = scales->shape[0] == 1 ? 0 : head;
    return scales->shape.size() == 1 ? load_double(*scales, {i}) : load_double(*scales, {i, 0});
  }
  int64_t length(int64_t b) const {
    return std::clamp<int64_t>(static_cast<int64_t>(load_double(args.lengths, {b})), 0,
                               capacity(c, args));
  }

  bool selects(int64_t b, int64_t token, int64_t head, int64_t block) const {
    if (c.form == DecodeForm::Dense) return true;
    const auto entry = [&](int64_t i) {
      if (args.chosen->shape.size() == 3) return load_double(*args.chosen, {b, head, i});
      return load_double(*args.chosen, {b, c.per_token ? token : 0, head, i});
    };
    const int64_t entries = args.chosen->shape.back();
    if (c.form != DecodeForm::Indices) return block < entries && entry(block) != 0;
    for (int64_t i = 0; i < entries; ++i)
      if (entry(i) == static_cast<double>(block)) return true;
    return false;
  }

  std::vector<int64_t> keys(int64_t b, int64_t token, int64_t head) const {
    const int64_t end = length(b) - (c.tokens - 1) + token;
    const int64_t start =
        args.starts ? static_cast<int64_t>(load_double(*args.starts, {b})) : int64_t{0};
    std::vector<int64_t> seen;
    for (int64_t block = 0; block * c.block < end; ++block) {
      if (!selects(b, token, head, block)) continue;
      const int64_t first = std::max(start, block * c.block);
      for (int64_t key = first; key < std::min(end, (block + 1) * c.block); ++key)
        seen.push_back(key);
    }
    return seen;
  }
};

void attend(const Problem& problem, int64_t b, int64_t token, int64_t head,
            DecodeReference& result) {
  const DecodeConfig& c = problem.c;
  const DecodeArgs& args = problem.args;
  const int64_t kv_head = head / c.group;
  const std::vector<int64_t> keys = problem.keys(b, token, kv_head);
  std::vector<double> scores, sum(static_cast<size_t>(c.dim_v()), 0);
  double top = -INFINITY, total = 0;
  for (int64_t key : keys) {
    double dot = 0;
    for (int64_t d = 0; d < c.head_dim; ++d)
      dot +=
          problem.element(args.q, b, token, head, d) * problem.cached(args.k, b, key, kv_head, d);
    scores.push_back(dot * problem.scale(args.k_scale, kv_head) *
                     static_cast<double>(scale_of(c, args)));
    top = std::max(top, scores.back());
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(scores[i] - top);
    total += weight;
    for (int64_t d = 0; d < c.dim_v(); ++d)
      sum[static_cast<size_t>(d)] += weight * problem.cached(args.v, b, keys[i], kv_head, d);
  }
  const double v_scale = problem.scale(args.v_scale, kv_head);
  for (double one : sum) result.o.push_back(keys.empty() ? 0 : v_scale * one / total);
  result.lse.push_back(keys.empty() ? -INFINITY : top + std::log(total));
}

}  // namespace

DecodeReference decode_reference(const DecodeConfig& config, const DecodeArgs& args) {
  const Problem problem{config, args};
  const int64_t heads = args.k.shape[2] * config.group;
  DecodeReference result;
  for (int64_t b = 0; b < args.q.shape[0]; ++b)
    for (int64_t token = 0; token < config.tokens; ++token)
      for (int64_t head = 0; head < heads; ++head) attend(problem, b, token, head, result);
  return result;
}

DecodeWork decode_work(const DecodeConfig& config, const DecodeArgs& args) {
  const Problem problem{config, args};
  DecodeWork work;
  int64_t pairs = 0;
  for (int64_t b = 0; b < args.q.shape[0]; ++b)
    for (int64_t head = 0; head < args.k.shape[2]; ++head)
      for (int64_t token = 0; token < config.tokens; ++token) {
        const auto keys = static_cast<int64_t>(problem.keys(b, token, head).size());
        pairs += keys * config.group;
        if (config.per_token || token == config.tokens - 1) work.keys += keys;
      }
  const auto width = static_cast<double>(config.head_dim + config.dim_v());
  work.flops = 2 * width * static_cast<double>(pairs);
  work.bytes =
      width * static_cast<double>(size_of(config.cache())) * static_cast<double>(work.keys);
  return work;
}

}  // namespace kiln
