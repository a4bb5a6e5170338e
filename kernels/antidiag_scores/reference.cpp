#include <algorithm>

#include "kernels/access.h"
#include "kernels/antidiag_scores/antidiag_scores.h"

namespace kiln {
namespace {}  // namespace

CellReference::CellReference(const AntidiagConfig& config, const CellArgs& args, int64_t b)
    : config_(config), args_(args), sequence_(config.sequences(), sequence_tensors(args), b) {
  const BatchSizes sizes = sizes_of(config, args);
  group_ = sizes.heads_kv ? sizes.heads / sizes.heads_kv : 1;
  k_end_ = sequence_.k_len;
  if (config.causal) k_end_ = std::clamp<int64_t>(start() + queries(), 0, k_end_);
}

int64_t CellReference::rows() const {
  return ceil_div(queries(), config_.stride);
}
int64_t CellReference::cols() const {
  return ceil_div(k_end_, config_.stride);
}
int64_t CellReference::cell(int64_t row) const {
  const int64_t s = config_.stride;
  return (start() >= 0 ? start() / s : -ceil_div(-start(), s)) + row;
}

double CellReference::score(int64_t head, int64_t row, int64_t col) const {
  if (row >= rows() || col >= cols() || (config_.causal && col > cell(row))) return 0;
  double sum = 0;
  for (int64_t t = 0; t < config_.stride; ++t) {
    const int64_t query = row * config_.stride + config_.stride - 1 - t;
    const int64_t key = col * config_.stride + t;
    if (query >= queries() || key >= k_end_) continue;
    for (int64_t d = 0; d < config_.head_dim; ++d)
      sum +=
          sequence_.query(args_.q, head, query, d) * sequence_.key(args_.k, head / group_, key, d);
  }
  return sum;
}

}  // namespace kiln
