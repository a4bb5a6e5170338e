// The code of README.md, run; blocks.cpp checks that it stands there word for word.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "runtime/runtime.h"

namespace kiln {
namespace {

Kernel scores() {
  return trace("scores", [] {
    Dim m = dim("m"), n = dim("n");
    Tensor Q = input("q", F16, {m, 64}), K = input("k", F16, {n, 64}), S = output("s", F32, {m, n});
    auto [x, y, unused] = launch({ceildiv(n, 128), ceildiv(m, 64)});
    Tile q = alloc_shared({64, 64}, F16), k = alloc_shared({128, 64}, F16);
    Tile s = alloc_fragment({64, 128}, F32);
    copy(Q(span(y * 64, 64), all), q);
    copy(K(span(x * 128, 128), all), k);
    gemm(q, k, s, {.transpose_b = true, .clear = true});
    for (auto [i, j] : parallel(64, 128)) s(i, j) = max(s(i, j) * 0.125, 0);
    copy(s, S(span(y * 64, 64), span(x * 128, 128)));
  });
}

void attend_twice(const Array& q, const Array& k, const Array& v, const Array& mask, Array& o) {
  BlockSparseAttention attend = block_sparse_attention(
      device("host"), {.dtype = F16, .head_dim = 128, .block = 64, .causal = true});
  attend({.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .mask = mask.view()});
  attend({.q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .mask = mask.view()});
}

TEST_CASE("README: the kernel") {
  int64_t m = 70, n = 150;
  Array q(F16, {m, 64}), k(F16, {n, 64}), s(F32, {m, n});
  for (int64_t i = 0; i < q.size(); ++i) q.set(i, static_cast<double>(i % 7) - 3);
  for (int64_t i = 0; i < k.size(); ++i) k.set(i, static_cast<double>(i % 5) - 2);
  run(device("host"), scores(), Arguments().tensor("q", q).tensor("k", k).tensor("s", s));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double expected = 0;  // small integers: exact
      for (int64_t d = 0; d < 64; ++d) expected += q.get(i * 64 + d) * k.get(j * 64 + d);
      REQUIRE(s.get(i * n + j) == std::max(expected * 0.125, 0.0));
    }
  }
}

TEST_CASE("README: the library") {
  int64_t seq = 192;
  Shape shape = {1, 2, seq, 128};
  Array q(F16, shape), k(F16, shape), v(F16, shape), o(F16, shape), mask(Bool, {1, 2, 3, 3});
  // With K = 0 a row is the mean of the values that it sees; those of key j are all j / 64.
  for (int64_t i = 0; i < v.size(); ++i) v.set(i, static_cast<double>(i / 128 % seq) / 64);
  for (int64_t cell : {0, 4, 6, 9, 12, 16}) mask.set(cell, 1);
  attend_twice(q, k, v, mask, o);
  auto mean = [](int64_t first, int64_t end) { return static_cast<double>(first + end - 1) / 128; };
  auto row = [&](int64_t head, int64_t i) { return o.get((head * seq + i) * 128); };
  CHECK(row(0, 10) == Approx(mean(0, 11)).epsilon(2e-3));     // the diagonal block, up to itself
  CHECK(row(0, 70) == Approx(mean(64, 71)).epsilon(2e-3));    // block 1
  CHECK(row(0, 150) == Approx(mean(0, 64)).epsilon(2e-3));    // block 0
  CHECK(row(1, 150) == Approx(mean(64, 128)).epsilon(2e-3));  // block 1
}

}  // namespace
}  // namespace kiln
