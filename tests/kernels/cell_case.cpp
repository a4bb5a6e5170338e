#include "tests/kernels/cell_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/attention_case.h"

namespace kiln::test {
namespace {

constexpr int64_t kBetween = 3;  // tokens of nobody after a packed batch

int64_t total(const std::vector<SequenceSizes>& all, int64_t SequenceSizes::*tokens) {
  int64_t sum = kBetween;
  for (const SequenceSizes& one : all) sum += one.*tokens;
  return sum;
}

int64_t longest(const CellCase& c, int64_t SequenceSizes::*length) {
  int64_t most = 0;
  for (const SequenceSizes& one : c.sequences) most = std::max(most, one.*length);
  return most;
}

Array queries(const CellCase& c) {
  const int64_t dim = c.config.head_dim;
  if (c.config.varlen)
    return Array(c.config.dtype, {total(c.sequences, &SequenceSizes::queries), c.heads, dim});
  return Array(c.config.dtype, {c.batch(), c.heads, c.seq(), dim});
}

int64_t slots(const CellCase& c) {
  return c.config.page ? c.seq_kv() / c.config.page + 1 : 0;
}

Array keys(const CellCase& c) {
  const AntidiagConfig& config = c.config;
  const int64_t dim = config.head_dim;
  if (config.page)
    return Array(config.dtype, {c.batch() * slots(c) + kBetween, config.page, c.heads_kv, dim});
  if (config.sequences().packed_keys())
    return Array(config.dtype, {total(c.sequences, &SequenceSizes::keys), c.heads_kv, dim});
  const int64_t room = c.seq_kv() + (config.lengths ? kBetween : 0);
  return Array(config.dtype, {c.batch(), c.heads_kv, room, dim});
}

}  // namespace

CellCase::CellCase(const AntidiagConfig& given, std::vector<SequenceSizes> all, int64_t heads,
                   int64_t heads_kv, std::mt19937_64& random)
    : config(validated(given)),
      sequences(std::move(all)),
      heads(heads),
      heads_kv(heads_kv),
      q(queries(*this)),
      k(keys(*this)),
      cu_q(I32, {batch() + 1}),
      cu_k(I32, {batch() + 1}),
      starts(I32, {batch()}),
      lengths(I32, {batch()}),
      table(I32, {batch(), slots(*this)}) {
  std::vector<int32_t> pages(static_cast<size_t>(table.size() + kBetween));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  for (int64_t i = 0; i < table.size(); ++i) table.set(i, pages[static_cast<size_t>(i)]);
  for (int64_t b = 0; b < batch(); ++b) {
    cu_q.set(b + 1, cu_q.get(b) + static_cast<double>(sequences[b].queries));
    cu_k.set(b + 1, cu_k.get(b) + static_cast<double>(sequences[b].keys));
    starts.set(b, static_cast<double>(sequences[b].start));
    lengths.set(b, static_cast<double>(sequences[b].keys));
  }
  fill(q, NAN);
  fill(k, NAN);
  std::normal_distribution<double> normal;
  for (int64_t b = 0; b < batch(); ++b)
    for (int64_t d = 0; d < config.head_dim; ++d) {
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < sequences[b].queries; ++i) q.set(at_q(b, h, i, d), normal(random));
      for (int64_t h = 0; h < heads_kv; ++h)
        for (int64_t j = 0; j < sequences[b].keys; ++j) k.set(at_k(b, h, j, d), normal(random));
    }
  for (int64_t b = 0; b < batch(); ++b)  // what no key lies in is no page
    for (int64_t slot = 0; slot < slots(*this); ++slot)
      if (slot * config.page >= sequences[b].keys)
        table.set(b * slots(*this) + slot, slot % 2 ? 2147483647 : -2147483647);
}

int64_t CellCase::seq() const {
  return longest(*this, &SequenceSizes::queries);
}
int64_t CellCase::seq_kv() const {
  return longest(*this, &SequenceSizes::keys);
}

CellArgs CellCase::args() {
  CellArgs args{q.view(), k.view()};
  if (config.varlen) {
    args.cu_seqlens_q = cu_q.view();
    args.max_seqlen_q = seq();
  }
  if (config.sequences().packed_keys()) args.cu_seqlens_k = cu_k.view();
  if (config.varlen || config.lengths) args.max_seqlen_k = seq_kv();
  if (config.lengths) args.lengths = lengths.view();
  if (config.page) args.table = table.view();
  if (config.q_start) args.q_start = starts.view();
  return args;
}

Arguments CellCase::arguments() {
  Arguments arguments;
  arguments.tensor("q", q).tensor("k", k);
  if (config.varlen) arguments.tensor("cu_seqlens_q", cu_q).dim("seq", seq());
  if (config.sequences().packed_keys()) arguments.tensor("cu_seqlens_k", cu_k);
  if (config.varlen || config.lengths) arguments.dim("seq_kv", seq_kv());
  if (config.lengths) arguments.tensor("lengths", lengths);
  if (config.page) arguments.tensor("table", table);
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
          {"lengths", flag(config.lengths)},
          {"page", std::to_string(config.page)},
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
                                    : (b * heads + head) * seq() + token;
  return row * config.head_dim + d;
}
int64_t CellCase::at_k(int64_t b, int64_t head, int64_t token, int64_t d) const {
  int64_t row = (b * heads_kv + head) * k.shape()[2] + token;
  if (config.page) {
    const auto page = static_cast<int64_t>(table.get(b * table.shape()[1] + token / config.page));
    row = (page * config.page + token % config.page) * heads_kv + head;
  } else if (config.sequences().packed_keys()) {
    row = (static_cast<int64_t>(cu_k.get(b)) + token) * heads_kv + head;
  }
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
    if (!config.varlen && b > 0) one.queries = all[0].queries;
    if (!config.varlen && !config.lengths && b > 0) one = all[0];
    if (config.q_start) one.start = below(std::max<int64_t>(one.keys - one.queries, 0) + 1);
    all.push_back(one);
  }
  return all;
}

}  // namespace kiln::test
