#include "tests/kernels/cell_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/attention_case.h"

namespace kiln::test {
namespace {

constexpr int64_t kBetween = 3;  // tokens of nobody after a packed batch

int64_t total(const std::vector<SequenceSizes>& all, int64_t SequenceSizes::*tokens) {
  int64_t sum = kBetween;
  for (const SequenceSizes& one : all) sum += one.*tokens;
  return sum;
}

Array tokens(const CellCase& c, int64_t heads, int64_t SequenceSizes::*length) {
  const int64_t dim = c.config.head_dim;
  if (c.config.varlen) return Array(c.config.dtype, {total(c.sequences, length), heads, dim});
  return Array(c.config.dtype, {c.batch(), heads, c.sequences.at(0).*length, dim});
}

}  // namespace

CellCase::CellCase(const AntidiagConfig& config, std::vector<SequenceSizes> all, int64_t heads,
                   int64_t heads_kv, std::mt19937_64& random)
    : config(config),
      sequences(std::move(all)),
      heads(heads),
      heads_kv(heads_kv),
      q(tokens(*this, heads, &SequenceSizes::queries)),
      k(tokens(*this, heads_kv, &SequenceSizes::keys)),
      cu_q(I32, {batch() + 1}),
      cu_k(I32, {batch() + 1}),
      starts(I32, {batch()}) {
  fill_normal(q, random);
  fill_normal(k, random);
  for (int64_t b = 0; b < batch(); ++b) {
    cu_q.set(b + 1, cu_q.get(b) + static_cast<double>(sequences[b].queries));
    cu_k.set(b + 1, cu_k.get(b) + static_cast<double>(sequences[b].keys));
    starts.set(b, static_cast<double>(sequences[b].start));
  }
  for (Array* array : {&q, &k})
    for (int64_t i = 0; config.varlen && i < kBetween * array->size() / array->shape()[0]; ++i)
      array->set(array->size() - 1 - i, NAN);
}

int64_t CellCase::seq() const {
  int64_t most = 0;
  for (const SequenceSizes& one : sequences) most = std::max(most, one.queries);
  return most;
}
int64_t CellCase::seq_kv() const {
  int64_t most = 0;
  for (const SequenceSizes& one : sequences) most = std::max(most, one.keys);
  return most;
}

CellArgs CellCase::args() {
  CellArgs args{q.view(), k.view()};
  if (config.varlen) {
    args.cu_seqlens_q = cu_q.view();
    args.cu_seqlens_k = cu_k.view();
    args.max_seqlen_q = seq();
    args.max_seqlen_k = seq_kv();
  }
  if (config.q_start) args.q_start = starts.view();
  return args;
}

Arguments CellCase::arguments() {
  Arguments arguments;
  arguments.tensor("q", q).tensor("k", k);
  if (config.varlen)
    arguments.tensor("cu_seqlens_q", cu_q)
        .tensor("cu_seqlens_k", cu_k)
        .dim("seq", seq())
        .dim("seq_kv", seq_kv());
  if (config.q_start) arguments.tensor("q_start", starts);
  return arguments;
}

std::map<std::string, std::string> CellCase::settings() const {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  return {{"dtype", std::string(name(config.dtype))},
          {"head_dim", std::to_string(config.head_dim)},
          {"stride", std::to_string(config.stride)},
          {"causal", flag(config.causal)},
          {"varlen", flag(config.varlen)},
          {"q_start", flag(config.q_start)},
          {"checked", flag(config.checked)}};
}

std::string CellCase::describe() const {
  std::string text = fmt::format("heads {}/{}", heads, heads_kv);
  for (const auto& [key, value] : settings()) text += fmt::format(" {} {}", key, value);
  for (const SequenceSizes& one : sequences)
    text += fmt::format(" ({} of {} from {})", one.queries, one.keys, one.start);
  return text;
}

int64_t CellCase::at_q(int64_t b, int64_t head, int64_t token, int64_t d) const {
  const int64_t row = config.varlen ? (static_cast<int64_t>(cu_q.get(b)) + token) * heads + head
                                    : (b * heads + head) * sequences[0].queries + token;
  return row * config.head_dim + d;
}
int64_t CellCase::at_k(int64_t b, int64_t head, int64_t token, int64_t d) const {
  const int64_t row = config.varlen ? (static_cast<int64_t>(cu_k.get(b)) + token) * heads_kv + head
                                    : (b * heads_kv + head) * sequences[0].keys + token;
  return row * config.head_dim + d;
}

std::vector<SequenceSizes> random_sequences(const AntidiagConfig& config, int64_t batch,
                                            int64_t longest, std::mt19937_64& random) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto length = [&] { return below(6) == 0 ? below(3) : below(longest + 1); };
  std::vector<SequenceSizes> all;
  for (int64_t b = 0; b < batch; ++b) {
    SequenceSizes one{length(), length(), 0};
    if (!config.varlen && b > 0) one = all[0];
    if (config.q_start) one.start = below(std::max<int64_t>(one.keys - one.queries, 0) + 1);
    all.push_back(one);
  }
  return all;
}

}  // namespace kiln::test
