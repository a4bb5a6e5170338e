// The programs of docs/paged.md, run: a decode loop over an interleaved paged cache, compared with
// plain attention over what was appended.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "kernels/kernels.h"

namespace kiln {
namespace {

// k (which = 0) or v (1) of a cache [pages, 2, page, heads_kv, dim].
Memory half_of(Array& cache, int64_t which) {
  const Memory all = cache.view();
  const Shape& s = all.shape;
  auto* begin = static_cast<std::byte*>(all.data) +
                which * all.strides[1] * static_cast<int64_t>(size_of(all.dtype));
  return {.data = begin,
          .dtype = all.dtype,
          .shape = {s[0], s[2], s[3], s[4]},
          .strides = {all.strides[0], all.strides[2], all.strides[3], 1}};
}

constexpr int64_t kBatch = 3, kHeadsKv = 2, kDim = 64, kPage = 32, kSlots = 4, kGroup = 4;

// What was appended, token by token: rows of heads_kv · dim numbers.
struct Sequence {
  std::vector<std::vector<double>> keys, values;
};

// One head of one query, in plain loops.
std::vector<double> attend(const Array& q, int64_t row, const Sequence& sequence, int64_t kv_head) {
  std::vector<double> scores, sum(kDim, 0);
  double total = 0;
  for (const auto& key : sequence.keys) {
    double dot = 0;
    for (int64_t d = 0; d < kDim; ++d)
      dot += q.get(row * kDim + d) * key[static_cast<size_t>(kv_head * kDim + d)];
    scores.push_back(std::exp(dot / 8));
    total += scores.back();
  }
  for (size_t t = 0; t < scores.size(); ++t)
    for (int64_t d = 0; d < kDim; ++d)
      sum[static_cast<size_t>(d)] +=
          scores[t] / total * sequence.values[t][static_cast<size_t>(kv_head * kDim + d)];
  return sum;
}

void decode_loop(int steps) {
  const int64_t batch = kBatch, slots = kSlots, heads = kHeadsKv * kGroup;
  Array cache(F16, {kBatch * kSlots, 2, kPage, kHeadsKv, kDim});
  Array q(F16, {batch, heads, kDim}), o(F16, {batch, heads, kDim});
  Array lengths(I32, {batch}), table(I32, {batch, slots});
  for (int64_t i = 0; i < table.size(); ++i) table.set(i, 2147483647);
  std::vector<Sequence> sequences(static_cast<size_t>(batch));
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  int free_page = 0;

  const auto append = [&](int64_t b, int64_t token, int) {
    const auto page = static_cast<int64_t>(table.get(b * slots + token / kPage));
    Sequence& one = sequences[static_cast<size_t>(b)];
    for (int64_t which : {0, 1}) {
      auto& rows = which ? one.values : one.keys;
      rows.emplace_back();
      for (int64_t i = 0; i < kHeadsKv * kDim; ++i) {
        const int64_t at = ((page * 2 + which) * kPage + token % kPage) * kHeadsKv * kDim + i;
        cache.set(at, normal(random));
        rows.back().push_back(cache.get(at));
      }
    }
    for (int64_t i = 0; i < heads * kDim; ++i) q.set(b * heads * kDim + i, normal(random));
  };
  const auto use = [&](int) {
    for (int64_t row = 0; row < batch * heads; ++row) {
      const std::vector<double> right =
          attend(q, row, sequences[static_cast<size_t>(row / heads)], row % heads / kGroup);
      for (int64_t d = 0; d < kDim; ++d)
        REQUIRE(o.get(row * kDim + d) == Approx(right[static_cast<size_t>(d)]).margin(4e-3));
    }
  };

  DecodeConfig config{.head_dim = 64, .group = 4, .page = 32, .form = DecodeForm::Dense};
  SparseDecode decode = sparse_decode(device("host"), config);
  DecodeArgs args{.q = q.view(),
                  .k = half_of(cache, 0),
                  .v = half_of(cache, 1),
                  .o = o.view(),
                  .lengths = lengths.view(),
                  .table = table.view()};
  for (int step = 0; step < steps; ++step) {
    for (int64_t b = 0; b < batch; ++b) {
      const auto length = static_cast<int64_t>(lengths.get(b));
      if (length % config.page == 0) table.set(b * slots + length / config.page, free_page++);
      append(b, length, step);  // writes the key and value of token `length`, and q
      lengths.set(b, static_cast<double>(length + 1));
    }
    decode(args);
    use(step);
  }
}

TEST_CASE("paged: a decode loop over an interleaved cache") {
  decode_loop(70);
}

}  // namespace
}  // namespace kiln
