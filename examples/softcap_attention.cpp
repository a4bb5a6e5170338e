// Attention whose scores are capped, cap · tanh(q·k · scale / cap), and then biased by ALiBi:
// slope · (position of the key − position of the query), a slope a head.
//
// What it shows: `online_softmax` with anything between the two gemms; -inf for what a row must not
// see; grouped queries by integer arithmetic on block indices; a batch axis; numbers from a small
// tensor, one a block. A row that sees no key (causal, more queries than keys) gives 0.
#include <cmath>

#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kDim = 64;               // of a head
constexpr int64_t kRows = 64, kKeys = 32;  // queries, and keys, at a time

Kernel softcap_attention_kernel(DType dtype, bool causal) {
  return trace("softcap_attention", {.fast_math = true}, [&] {
    Dim batch = dim("batch"), heads = dim("heads"), heads_kv = dim("heads_kv");
    Dim seq = dim("seq"), seq_kv = dim("seq_kv");
    Tensor Q = input("q", dtype, {batch, heads, seq, kDim});
    Tensor K = input("k", dtype, {batch, heads_kv, seq_kv, kDim});
    Tensor V = input("v", dtype, {batch, heads_kv, seq_kv, kDim});
    Tensor O = output("o", dtype, {batch, heads, seq, kDim});
    Tensor slopes = input("slopes", F32, {heads});
    auto scale = param("scale", F32), cap = param("cap", F32);

    auto [block, head, b] = launch({ceildiv(seq, kRows), heads, batch});
    auto head_kv = head / (heads / heads_kv);
    auto slope = slopes(head);
    auto first = block * kRows + (seq_kv - seq);  // of this block's queries, as a key's position
    auto end = causal ? min(first + kRows, seq_kv) : seq_kv;  // of the keys that it visits

    Tile q = alloc_shared({kRows, kDim}, dtype), k = alloc_shared({kKeys, kDim}, dtype);
    Tile v = alloc_shared({kKeys, kDim}, dtype), p = alloc_fragment({kRows, kKeys}, dtype);
    Tile s = alloc_fragment({kRows, kKeys}, F32), o = alloc_fragment({kRows, kDim}, F32);
    copy(Q(b, head, span(block * kRows, kRows), all), q);
    clear(o);
    OnlineSoftmax softmax = online_softmax(kRows, 1);  // the scores are scaled before the cap
    for (auto t : pipelined(ceildiv(end, kKeys))) {
      copy(K(b, head_kv, span(t * kKeys, kKeys), all), k);
      gemm(q, k, s, {.transpose_b = true, .clear = true});
      for (auto [i, j] : parallel(kRows, kKeys)) {
        auto query = first + i, key = t * kKeys + j;
        auto capped = cap * tanh(s(i, j) * (scale / cap));
        auto biased = capped + slope * cast(key - query, F32);
        auto seen = causal ? key < seq_kv && key <= query : key < seq_kv;
        s(i, j) = select(seen, biased, -infinity(F32));
      }
      softmax.step(s, p, o);
      copy(V(b, head_kv, span(t * kKeys, kKeys), all), v);
      gemm(p, v, o);
    }
    softmax.finish(o);
    copy(o, O(b, head, span(block * kRows, kRows), all));
  });
}

struct Problem {
  const examples::Data &q, &k, &v, &slopes;
  double scale, cap;
  bool causal;

  std::vector<double> row(int64_t b, int64_t h, int64_t i) const {
    const int64_t seq = q.shape()[2], seq_kv = k.shape()[2];
    const int64_t h_kv = h / (q.shape()[1] / k.shape()[1]), position = i + seq_kv - seq;
    std::vector<double> scores, o(kDim);
    for (int64_t j = 0; j < seq_kv && (!causal || j <= position); ++j) {
      double dot = 0;
      for (int64_t d = 0; d < kDim; ++d) dot += q({b, h, i, d}) * k({b, h_kv, j, d});
      scores.push_back(cap * std::tanh(dot * scale / cap) +
                       slopes({h}) * static_cast<double>(j - position));
    }
    double top = -INFINITY, sum = 0;
    for (double s : scores) top = std::max(top, s);
    for (double& s : scores) sum += s = std::exp(s - top);
    for (size_t j = 0; j < scores.size(); ++j)
      for (int64_t d = 0; d < kDim; ++d)
        o[d] += scores[j] / sum * v({b, h_kv, static_cast<int64_t>(j), d});
    return o;
  }
};

}  // namespace

int examples::softcap_attention(int argc, char** argv) {
  Example example("softcap_attention", argc, argv);
  const DType dtype = example.dtype({F16, BF16, F32});
  const int64_t batch = example.number("batch", 1), seq = example.number("seq", 150);
  const int64_t heads = example.number("heads", 4), heads_kv = example.number("heads-kv", 2);
  const int64_t seq_kv = example.number("seq-kv", seq);
  const bool causal = example.flag("causal");
  if (heads_kv == 0 || heads % heads_kv != 0)
    throw UserError("softcap_attention: --heads: expected a multiple of --heads-kv");
  const double scale = 0.5, cap = 3;  // so that the cap is felt

  Data q = example.random(dtype, {batch, heads, seq, kDim});
  Data k = example.random(dtype, {batch, heads_kv, seq_kv, kDim});
  Data v = example.random(dtype, k.shape()), o = example.tensor(dtype, q.shape());
  Data slopes = example.random(F32, {heads}, 0, 0.25);
  Arguments arguments;
  arguments.tensor("q", q).tensor("k", k).tensor("v", v).tensor("slopes", slopes).tensor("o", o);
  arguments.param("scale", scale).param("cap", cap);
  example.run(softcap_attention_kernel(dtype, causal), arguments);
  const Problem problem{q, k, v, slopes, scale, cap, causal};
  std::vector<double> expected;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < seq; ++i) {
        const std::vector<double> row = problem.row(b, h, i);
        expected.insert(expected.end(), row.begin(), row.end());
      }
  example.check(o, expected, tolerance(dtype));
  return example.finish();
}
