#include <algorithm>

#include "kernels/access.h"
#include "kernels/antidiag_scores/antidiag_scores.h"

namespace kiln {
namespace {

int64_t entry(const Memory& tensor, int64_t i) {
  return static_cast<int64_t>(load_double(tensor, {i}));
}
int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

CellReference::CellReference(const AntidiagConfig& config, const CellArgs& args, int64_t b)
    : config_(config), args_(args), b_(b) {
  const CellSizes sizes = sizes_of(config, args);
  group_ = sizes.heads_kv ? sizes.heads / sizes.heads_kv : 1;
  q_len_ = sizes.seq;
  k_end_ = sizes.seq_kv;
  if (config.varlen) {
    q_begin_ = entry(*args.cu_seqlens_q, b);
    k_begin_ = entry(*args.cu_seqlens_k, b);
    q_len_ = std::clamp<int64_t>(entry(*args.cu_seqlens_q, b + 1) - q_begin_, 0, sizes.seq);
    k_end_ = std::clamp<int64_t>(entry(*args.cu_seqlens_k, b + 1) - k_begin_, 0, sizes.seq_kv);
  }
  start_ = config.q_start ? entry(*args.q_start, b) : k_end_ - q_len_;
  if (config.causal) k_end_ = std::clamp<int64_t>(start_ + q_len_, 0, k_end_);
}

int64_t CellReference::rows() const {
  return ceil_div(q_len_, config_.stride);
}
int64_t CellReference::cols() const {
  return ceil_div(k_end_, config_.stride);
}
int64_t CellReference::cell(int64_t row) const {
  const int64_t s = config_.stride;
  return (start_ >= 0 ? start_ / s : -ceil_div(-start_, s)) + row;
}

double CellReference::score(int64_t head, int64_t row, int64_t col) const {
  if (row >= rows() || col >= cols() || (config_.causal && col > cell(row))) return 0;
  double sum = 0;
  for (int64_t t = 0; t < config_.stride; ++t) {
    const int64_t query = row * config_.stride + config_.stride - 1 - t;
    const int64_t key = col * config_.stride + t;
    if (query >= q_len_ || key >= k_end_) continue;
    for (int64_t d = 0; d < config_.head_dim; ++d)
      sum += config_.varlen ? load_double(args_.q, {q_begin_ + query, head, d}) *
                                  load_double(args_.k, {k_begin_ + key, head / group_, d})
                            : load_double(args_.q, {b_, head, query, d}) *
                                  load_double(args_.k, {b_, head / group_, key, d});
  }
  return sum;
}

}  // namespace kiln
