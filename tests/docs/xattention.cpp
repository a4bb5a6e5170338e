// The programs of docs/xattention.md, run: chunks of a prompt over a paged cache, and heads of
// several kinds.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "kernels/kernels.h"
#include "kernels/mask_formats.h"
#include "kernels/xattention/profile.h"

namespace kiln {
namespace {

constexpr int64_t kHeads = 4, kHeadsKv = 2, kDim = 64;

void fill(Array& array, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, normal(random));
}

// Two sequences of 300 and 200 tokens; 128 of each, then the rest.
std::vector<double> prefill_in_chunks(const std::vector<int64_t>& chunk_sizes) {
  std::mt19937_64 random(7);
  const int64_t lens[] = {300, 200};
  Array all(F16, {500, kHeads, kDim}), k(F16, {16, 64, kHeadsKv, kDim}), v(F16, k.shape());
  fill(all, random);
  fill(k, random);
  fill(v, random);
  Array table(I32, {2, 8}), lengths(I32, {2}), ends(I32, {3});
  for (int64_t i = 0; i < 16; ++i) table.set(i, static_cast<double>(15 - i));
  std::vector<double> result(static_cast<size_t>(all.size()));

  PrefillConfig config{.head_dim = 64, .block = 64, .varlen = true, .page = 64, .dense_below = 0};
  XattentionPrefill prefill = xattention_prefill(device("host"), config);
  int64_t done = 0;
  for (int64_t chunk : chunk_sizes) {
    std::vector<int64_t> rows;  // of `all`, the queries of this step
    for (int64_t b = 0; b < 2; ++b) {
      const int64_t end = std::min(done + chunk, lens[b]);
      for (int64_t i = std::min(done, lens[b]); i < end; ++i) rows.push_back(b * 300 + i);
      ends.set(b + 1, static_cast<double>(rows.size()));
      lengths.set(b, static_cast<double>(end));
    }
    const auto tokens = static_cast<int64_t>(rows.size());
    Array q(F16, {tokens, kHeads, kDim}), o(F16, q.shape());
    for (int64_t i = 0; i < q.size(); ++i)
      q.set(i, all.get(rows[static_cast<size_t>(i / 256)] * 256 + i % 256));
    prefill({.q = q.view(),
             .k = k.view(),
             .v = v.view(),
             .o = o.view(),
             .threshold = 0.9F,
             .cu_seqlens_q = ends.view(),
             .lengths = lengths.view(),
             .table = table.view(),
             .max_seqlen_q = chunk});
    for (int64_t i = 0; i < o.size(); ++i)
      result[static_cast<size_t>(rows[static_cast<size_t>(i / 256)] * 256 + i % 256)] = o.get(i);
    done += chunk;
  }
  return result;
}

Array mixed_heads(const Array& q, const Array& k, const Array& v, const Array& mask) {
  // Heads 0 and 2 follow the mask's planes 0 and 1, head 1 is dense, head 3 sees a sink of one
  // block and the last two.
  Array types(I32, {4}, std::vector<double>{1, 0, 1, -1});
  Array windows(I32, {4, 2}, std::vector<double>{0, 0, 0, 0, 0, 0, 1, 2});
  Array o(F16, q.shape());
  BlockSparseAttention attend =
      block_sparse_attention(device("host"), {.head_dim = 64,
                                              .block = 128,
                                              .causal = true,
                                              .head_types = true,
                                              .streaming = Streaming::Blocks});
  attend({.q = q.view(),
          .k = k.view(),
          .v = v.view(),
          .o = o.view(),
          .mask = mask.view(),
          .head_mask_type = types.view(),
          .streaming_info = windows.view()});
  return o;
}

TEST_CASE("docs/xattention.md: chunks give what all at once does") {
  CHECK(prefill_in_chunks({128, 192}) == prefill_in_chunks({320}));
}

TEST_CASE("docs/xattention.md: heads of several kinds") {
  std::mt19937_64 random(3);
  Array q(F16, {1, 4, 512, 64}), k(F16, {1, 2, 512, 64}), v(F16, {1, 2, 512, 64});
  fill(q, random);
  fill(k, random);
  // Values that tell their block.
  for (int64_t i = 0; i < v.size(); ++i) v.set(i, static_cast<double>(i / 64 % 512 / 128 == 1));
  Array mask(Bool, {1, 2, 4, 4});
  for (int64_t r = 0; r < 4; ++r) mask.set(r * 4 + 0, 1), mask.set(16 + r * 4 + r, 1);
  const Array o = mixed_heads(q, k, v, mask);
  const auto last = [&](int64_t head) { return o.get((head * 512 + 511) * 64); };
  CHECK(last(0) == 0);                       // block 0 alone
  CHECK((last(1) > 0.15 && last(1) < 0.4));  // all four blocks
  CHECK(last(2) == 0);                       // the diagonal
  CHECK(last(3) == 0);                       // blocks 0, 2 and 3
  CHECK(o.get((3 * 512 + 255) * 64) > 0.2);  // blocks 0 and 1
}

TEST_CASE("docs/xattention.md: masks of others, thresholds of heads") {
  const Array causal =
      create_causal_mask(1, 1, {.seq = 4096, .seq_kv = 4096, .block = 1024, .causal = true});
  const Array fine = expand(causal, 8, 32, 32);
  CHECK(coarsen(fine, 8, CoarsenRule::All).values() == causal.values());
  BlockCsr csr = to_csr(fine);
  CHECK(from_csr(csr.indptr.view(), csr.indices.view(), fine.shape()).values() == fine.values());
}

}  // namespace
}  // namespace kiln
