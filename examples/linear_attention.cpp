// Causal linear attention with a decay a head,
//
//     o[t] = sum over u <= t of decay^(t-u) · (q[t]·k[u]) · v[u],
//
// as a scan over chunks: what came before a chunk is in a state of kDim x kDim, which the chunk
// reads and then updates. The work grows with the length, not with its square.
//
// What it shows: a fragment that lives across the trips of a loop; operands of a gemm made on chip,
// one of them read transposed; an `inout` tensor, the state, which a call takes up where another
// ended; `cast` from indices to floats; several results.
#include <cmath>

#include "examples/example.h"

using namespace kiln;

namespace {

constexpr int64_t kDim = 64;    // of a head
constexpr int64_t kChunk = 64;  // steps at a time

Kernel linear_attention_kernel(DType dtype) {
  return trace("linear_attention", [&] {
    Dim heads = dim("heads"), seq = dim("seq");
    Tensor Q = input("q", dtype, {heads, seq, kDim}), K = input("k", dtype, {heads, seq, kDim});
    Tensor V = input("v", dtype, {heads, seq, kDim}), O = output("o", dtype, {heads, seq, kDim});
    Tensor log_decay = input("log_decay", F32, {heads});  // below 0
    Tensor State = inout("state", F32, {heads, kDim, kDim});

    auto head = launch({heads})[0];
    auto rate = log_decay(head);
    // Of steps below 0 nobody uses the result, but infinity · 0 would be NaN.
    auto decay = [&](const Expr& steps) { return exp(rate * cast(max(steps, 0), F32)); };

    Tile q = alloc_shared({kChunk, kDim}, dtype), k = alloc_shared({kChunk, kDim}, dtype);
    Tile v = alloc_shared({kChunk, kDim}, dtype), left = alloc_shared({kChunk, kDim}, dtype);
    Tile state = alloc_fragment({kDim, kDim}, F32), state_in = alloc_shared({kDim, kDim}, dtype);
    Tile s = alloc_fragment({kChunk, kChunk}, F32), p = alloc_fragment({kChunk, kChunk}, dtype);
    Tile o = alloc_fragment({kChunk, kDim}, F32);
    copy(State(head, all, all), state);
    for (auto t : pipelined(ceildiv(seq, kChunk))) {
      auto first = t * kChunk, size = min(seq - first, kChunk);
      copy(Q(head, span(first, kChunk), all), q);
      copy(K(head, span(first, kChunk), all), k);
      copy(V(head, span(first, kChunk), all), v);
      copy(state, state_in);
      // From before the chunk …
      gemm(q, state_in, o, {.clear = true});
      for (auto [i, d] : parallel(kChunk, kDim)) o(i, d) *= decay(i + 1);
      // … and from within.
      gemm(q, k, s, {.transpose_b = true, .clear = true});
      for (auto [i, j] : parallel(kChunk, kChunk))
        s(i, j) = select(j <= i, s(i, j) * decay(i - j), 0);
      copy(s, p);
      gemm(p, v, o);
      copy(o, O(head, span(first, kChunk), all));
      // What the chunk leaves to the next: rows beyond the end are 0 and leave nothing.
      for (auto [i, d] : parallel(kChunk, kDim)) left(i, d) = k(i, d) * decay(size - 1 - i);
      for (auto [c, d] : parallel(kDim, kDim)) state(c, d) *= decay(size);
      gemm(left, v, state, {.transpose_a = true});
    }
    copy(state, State(head, all, all));
  });
}

}  // namespace

int examples::linear_attention(int argc, char** argv) {
  Example example("linear_attention", argc, argv);
  const DType dtype = example.dtype({F16, BF16, F32});
  const int64_t heads = example.number("heads", 2), seq = example.number("seq", 200);

  Data q = example.random(dtype, {heads, seq, kDim}, -0.25, 0.25);
  Data k = example.random(dtype, q.shape(), -0.25, 0.25), v = example.random(dtype, q.shape());
  Data log_decay = example.random(F32, {heads}, -0.5, -0.01);
  Data state = example.random(F32, {heads, kDim, kDim}), o = example.tensor(dtype, q.shape());

  // Step by step; the state before the first is the kernel's input.
  std::vector<double> expected, final = state.values();
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t t = 0; t < seq; ++t)
      for (int64_t d = 0; d < kDim; ++d) {
        double sum = 0;
        for (int64_t c = 0; c < kDim; ++c) {
          double& element = final[(h * kDim + c) * kDim + d];
          element = element * std::exp(log_decay({h})) + k({h, t, c}) * v({h, t, d});
          sum += q({h, t, c}) * element;
        }
        expected.push_back(sum);
      }

  Arguments arguments;
  arguments.tensor("q", q).tensor("k", k).tensor("v", v).tensor("o", o);
  arguments.tensor("log_decay", log_decay).tensor("state", state);
  example.run(linear_attention_kernel(dtype), arguments);
  example.check(o, expected, tolerance(dtype));
  example.check(state, final, tolerance(dtype));
  return example.finish();
}
