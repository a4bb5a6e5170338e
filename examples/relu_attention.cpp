// Attention with max(q·k, 0) / (keys that the row sees) in the softmax's place.
//
// What it shows: two chained gemms whose middle never leaves the chip; a C++ bool that makes two
// kernels out of one function; lengths that are known only at launch, with no code for the edges:
// keys beyond the end read as 0, and here a score of 0 weighs nothing. Unlike the softmax's, these
// weights know nothing of each other: the only state from tile to tile is the accumulator.
#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kDim = 64;   // of a head
constexpr int64_t kTile = 64;  // queries, and keys, at a time

Kernel relu_attention_kernel(DType dtype, bool causal) {
  return trace("relu_attention", [&] {
    Dim heads = dim("heads"), seq = dim("seq"), seq_kv = dim("seq_kv");
    Tensor Q = input("q", dtype, {heads, seq, kDim}), K = input("k", dtype, {heads, seq_kv, kDim});
    Tensor V = input("v", dtype, {heads, seq_kv, kDim});
    Tensor O = output("o", dtype, {heads, seq, kDim});
    auto scale = param("scale", F32);

    auto [block, head, unused] = launch({ceildiv(seq, kTile), heads});
    auto first = block * kTile;
    // How many keys a query sees, the last query all of them.
    auto keys_of = [&](const Expr& query) {
      return causal ? max(min(query + 1 + seq_kv - seq, seq_kv), 0) : seq_kv;
    };

    Tile q = alloc_shared({kTile, kDim}, dtype), k = alloc_shared({kTile, kDim}, dtype);
    Tile v = alloc_shared({kTile, kDim}, dtype), p = alloc_fragment({kTile, kTile}, dtype);
    Tile s = alloc_fragment({kTile, kTile}, F32), o = alloc_fragment({kTile, kDim}, F32);
    copy(Q(head, span(first, kTile), all), q);
    clear(o);
    for (auto t : pipelined(ceildiv(keys_of(first + kTile - 1), kTile))) {
      copy(K(head, span(t * kTile, kTile), all), k);
      gemm(q, k, s, {.transpose_b = true, .clear = true});
      for (auto [i, j] : parallel(kTile, kTile)) {
        auto weight = max(s(i, j) * scale, 0);
        s(i, j) = causal ? select(t * kTile + j < keys_of(first + i), weight, 0) : weight;
      }
      copy(s, p);  // converts to the dtype of v
      copy(V(head, span(t * kTile, kTile), all), v);
      gemm(p, v, o);
    }
    for (auto [i, d] : parallel(kTile, kDim)) o(i, d) /= max(cast(keys_of(first + i), F32), 1);
    copy(o, O(head, span(first, kTile), all));
  });
}

std::vector<double> reference(const examples::Data& q, const examples::Data& k,
                              const examples::Data& v, double scale, bool causal) {
  const int64_t heads = q.shape()[0], seq = q.shape()[1], seq_kv = k.shape()[1];
  std::vector<double> o;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < seq; ++i) {
      const int64_t keys = causal ? std::max<int64_t>(i + 1 + seq_kv - seq, 0) : seq_kv;
      std::vector<double> row(kDim);
      for (int64_t j = 0; j < keys; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < kDim; ++d) dot += q({h, i, d}) * k({h, j, d});
        const double weight = std::max(dot * scale, 0.0) / static_cast<double>(keys);
        for (int64_t d = 0; d < kDim; ++d) row[d] += weight * v({h, j, d});
      }
      o.insert(o.end(), row.begin(), row.end());
    }
  return o;
}

}  // namespace

int examples::relu_attention(int argc, char** argv) {
  Example example("relu_attention", argc, argv);
  const DType dtype = example.dtype({F16, BF16, F32});
  const int64_t heads = example.number("heads", 2), seq = example.number("seq", 200);
  const int64_t seq_kv = example.number("seq-kv", seq);
  const bool causal = example.flag("causal");
  const double scale = 0.125;

  Data q = example.random(dtype, {heads, seq, kDim}), o = example.tensor(dtype, q.shape());
  Data k = example.random(dtype, {heads, seq_kv, kDim}), v = example.random(dtype, k.shape());
  Arguments arguments;
  arguments.tensor("q", q).tensor("k", k).tensor("v", v).tensor("o", o).param("scale", scale);
  example.run(relu_attention_kernel(dtype, causal), arguments);
  example.check(o, reference(q, k, v, scale, causal), tolerance(dtype));
  return example.finish();
}
