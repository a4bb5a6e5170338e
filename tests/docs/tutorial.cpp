// The programs of docs/tutorial.md, run. Its code blocks are lines of this file, word for word
// (blocks.cpp checks that), so the text cannot promise what does not compile.
#include "dsl/dsl.h"
#include "runtime/runtime.h"

// The tutorial's first block ends here.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "ir/error.h"

namespace kiln {
namespace {

Kernel softmax_of_short_rows() {
  return trace("softmax_of_short_rows", [] {
    Dim rows = dim("rows");
    Tensor x = input("x", F32, {rows, 64});
    Tensor y = output("y", F32, {rows, 64});

    auto first = launch({ceildiv(rows, 16)})[0] * 16;  // this block's first row

    Tile s = alloc_fragment({16, 64}, F32);
    Tile top = alloc_fragment({16}, F32), sum = alloc_fragment({16}, F32);
    copy(x(span(first, 16), all), s);
    reduce_max(s, top);
    for (auto [i, j] : parallel(16, 64)) s(i, j) = exp(s(i, j) - top(i));
    reduce_sum(s, sum);
    for (auto [i, j] : parallel(16, 64)) s(i, j) = s(i, j) / sum(i);
    copy(s, y(span(first, 16), all));
  });
}

Array softmax(const Array& x) {
  Array y(F32, x.shape());
  run(device("host"), softmax_of_short_rows(), Arguments().tensor("x", x.view()).tensor("y", y));
  return y;
}

Kernel best_of_long_rows() {
  return trace("best_of_long_rows", [] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor x = input("x", F32, {rows, cols});
    Tensor top = output("top", F32, {rows, 16}), where = output("where", I32, {rows, 16});
    auto first = launch({ceildiv(rows, 4)})[0] * 4;

    Tile keys = alloc_shared({4, 128}, F32), columns = alloc_shared({4, 128}, I32);
    Tile best = alloc_fragment({4, 16}, F32), best_at = alloc_fragment({4, 16}, I32);
    fill(best, -infinity(F32));
    fill(best_at, -1);
    for (auto t : pipelined(ceildiv(cols, 112))) {
      copy(best, keys(all, span(0, 16)));  // the best so far, then 112 new ones
      copy(best_at, columns(all, span(0, 16)));
      copy(x(span(first, 4), span(t * 112, 112)), keys(all, span(16, 112)), {.pad = -INFINITY});
      for (auto [i, j] : parallel(4, 112)) columns(i, j + 16) = t * 112 + j;
      topk(keys, columns, best, best_at);
    }
    copy(best, top(span(first, 4), all));
    copy(best_at, where(span(first, 4), all));
  });
}

Kernel numbers_of_codes() {
  return trace("numbers_of_codes", [] {
    Dim rows = dim("rows");
    Tensor codes = input("codes", U32, {rows, 16}), levels = input("levels", F32, {16});
    Tensor y = output("y", F16, {rows, 128});
    auto first = launch({ceildiv(rows, 8)})[0] * 8;

    Tile words = alloc_shared({8, 16}, U32);
    Tile bytes = view(words, {8, 64}, U8);  // the same memory, byte by byte
    Tile level = alloc_local({16}, F32);    // a table: any point may read any element
    Tile numbers = alloc_fragment({8, 128}, F16);
    for (auto k : serial(16)) level(k) = levels(k);
    copy(codes(span(first, 8), all), words);
    for (auto [i, j] : parallel(8, 128)) {
      auto pair = cast(bytes(i, j / 2), I32);
      numbers(i, j) = level(select(j % 2 == 0, pair % 16, pair / 16));
    }
    copy(numbers, y(span(first, 8), all));
  });
}

Kernel softmax_of_long_rows() {
  return trace("softmax_of_long_rows", [] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor x = input("x", F32, {rows, cols});
    Tensor y = output("y", F32, {rows, cols});
    auto first = launch({ceildiv(rows, 16)})[0] * 16;

    Tile s = alloc_fragment({16, 64}, F32);
    Tile top = alloc_fragment({16}, F32), old_top = alloc_fragment({16}, F32);
    Tile sum = alloc_fragment({16}, F32), tile_sum = alloc_fragment({16}, F32);
    fill(top, -infinity(F32));
    clear(sum);
    for (auto t : pipelined(ceildiv(cols, 64))) {
      copy(x(span(first, 16), span(t * 64, 64)), s, {.pad = -INFINITY});
      copy(top, old_top);
      reduce_max(s, top, 1, false);  // false: the old maximum takes part
      for (auto [i, j] : parallel(16, 64)) s(i, j) = exp(s(i, j) - top(i));
      reduce_sum(s, tile_sum);
      for (auto i : parallel(16)) sum(i) = sum(i) * exp(old_top(i) - top(i)) + tile_sum(i);
    }
    for (auto t : pipelined(ceildiv(cols, 64))) {
      copy(x(span(first, 16), span(t * 64, 64)), s);
      for (auto [i, j] : parallel(16, 64)) s(i, j) = exp(s(i, j) - top(i)) / sum(i);
      copy(s, y(span(first, 16), span(t * 64, 64)));
    }
  });
}

Kernel flash_attention_by_hand() {
  return trace("flash_attention_by_hand", [] {
    Dim heads = dim("heads"), seq = dim("seq");
    Tensor Q = input("q", F16, {heads, seq, 64}), K = input("k", F16, {heads, seq, 64});
    Tensor V = input("v", F16, {heads, seq, 64}), O = output("o", F16, {heads, seq, 64});
    auto scale = param("scale", F32);
    auto [block, head, unused] = launch({ceildiv(seq, 64), heads});

    Tile q = alloc_shared({64, 64}, F16), k = alloc_shared({64, 64}, F16);
    Tile v = alloc_shared({64, 64}, F16), p = alloc_fragment({64, 64}, F16);
    Tile s = alloc_fragment({64, 64}, F32), acc = alloc_fragment({64, 64}, F32);
    Tile top = alloc_fragment({64}, F32), old_top = alloc_fragment({64}, F32);
    Tile sum = alloc_fragment({64}, F32), tile_sum = alloc_fragment({64}, F32);

    copy(Q(head, span(block * 64, 64), all), q);
    clear(acc);
    clear(sum);
    fill(top, -infinity(F32));
    for (auto t : pipelined(ceildiv(seq, 64))) {
      copy(K(head, span(t * 64, 64), all), k);
      gemm(q, k, s, {.transpose_b = true, .clear = true});  // s = q · kᵀ
      for (auto [i, j] : parallel(64, 64))
        s(i, j) = select(t * 64 + j < seq, s(i, j) * scale, -infinity(F32));
      copy(top, old_top);
      reduce_max(s, top, 1, false);
      for (auto [i, j] : parallel(64, 64)) s(i, j) = exp(s(i, j) - top(i));
      reduce_sum(s, tile_sum);
      for (auto i : parallel(64)) sum(i) = sum(i) * exp(old_top(i) - top(i)) + tile_sum(i);
      for (auto [i, j] : parallel(64, 64)) acc(i, j) = acc(i, j) * exp(old_top(i) - top(i));
      copy(s, p);
      copy(V(head, span(t * 64, 64), all), v);
      gemm(p, v, acc);  // acc += p · v
    }
    for (auto [i, j] : parallel(64, 64)) acc(i, j) = acc(i, j) / sum(i);
    copy(acc, O(head, span(block * 64, 64), all));
  });
}

Kernel flash_attention(bool causal) {
  return trace("flash_attention", {.fast_math = true}, [&] {
    Dim heads = dim("heads"), seq = dim("seq");
    Tensor Q = input("q", F16, {heads, seq, 64}), K = input("k", F16, {heads, seq, 64});
    Tensor V = input("v", F16, {heads, seq, 64}), O = output("o", F16, {heads, seq, 64});
    auto scale = param("scale", F32);
    auto [block, head, unused] = launch({ceildiv(seq, 64), heads});

    Tile q = alloc_shared({64, 64}, F16), k = alloc_shared({64, 64}, F16);
    Tile v = alloc_shared({64, 64}, F16), p = alloc_fragment({64, 64}, F16);
    Tile s = alloc_fragment({64, 64}, F32), acc = alloc_fragment({64, 64}, F32);

    copy(Q(head, span(block * 64, 64), all), q);
    clear(acc);
    OnlineSoftmax softmax = online_softmax(64, scale);
    auto tiles = causal ? block + 1 : ceildiv(seq, 64);
    for (auto t : pipelined(tiles)) {
      copy(K(head, span(t * 64, 64), all), k);
      gemm(q, k, s, {.transpose_b = true, .clear = true});
      for (auto [i, j] : parallel(64, 64)) {
        auto last = causal ? min(block * 64 + i, seq - 1) : seq - 1;
        s(i, j) = select(t * 64 + j <= last, s(i, j), -infinity(F32));
      }
      softmax.step(s, p, acc);
      copy(V(head, span(t * 64, 64), all), v);
      gemm(p, v, acc);
    }
    softmax.finish(acc);
    copy(acc, O(head, span(block * 64, 64), all));
  });
}

Kernel sparse_flash_attention() {
  return trace("sparse_flash_attention", {.fast_math = true}, [] {
    Dim heads = dim("heads"), seq = dim("seq"), blocks = dim("blocks");
    Tensor Q = input("q", F16, {heads, seq, 64}), K = input("k", F16, {heads, seq, 64});
    Tensor V = input("v", F16, {heads, seq, 64}), O = output("o", F16, {heads, seq, 64});
    Tensor M = input("mask", Bool, {heads, blocks, blocks});
    auto scale = param("scale", F32);
    auto [block, head, unused] = launch({ceildiv(seq, 64), heads});

    Tile q = alloc_shared({64, 64}, F16), k = alloc_shared({64, 64}, F16);
    Tile v = alloc_shared({64, 64}, F16), p = alloc_fragment({64, 64}, F16);
    Tile s = alloc_fragment({64, 64}, F32), acc = alloc_fragment({64, 64}, F32);

    copy(Q(head, span(block * 64, 64), all), q);
    clear(acc);
    OnlineSoftmax softmax = online_softmax(64, scale);
    for (auto t : selected(M(head, block, all), {.limit = ceildiv(seq, 64)})) {
      copy(K(head, span(t * 64, 64), all), k);
      gemm(q, k, s, {.transpose_b = true, .clear = true});
      when(t * 64 + 64 > seq, [&] {  // only the last block has an end to mind
        for (auto [i, j] : parallel(64, 64))
          s(i, j) = select(t * 64 + j < seq, s(i, j), -infinity(F32));
      });
      softmax.step(s, p, acc);
      copy(V(head, span(t * 64, 64), all), v);
      gemm(p, v, acc);
    }
    softmax.finish(acc);
    copy(acc, O(head, span(block * 64, 64), all));
  });
}

// The rest is not shown in the tutorial: is all of that true?

Array random_array(DType dtype, Shape shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Array array(dtype, std::move(shape));
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, normal(random));
  return array;
}

void check_softmax(const Array& x, const Array& y) {
  int64_t rows = x.shape()[0], cols = x.shape()[1];
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < cols; ++j) sum += std::exp(x.get(i * cols + j));
    for (int64_t j = 0; j < cols; ++j) {
      INFO("row " << i << ", column " << j);
      REQUIRE(y.get(i * cols + j) == Approx(std::exp(x.get(i * cols + j)) / sum).epsilon(1e-5));
    }
  }
}

// Attention of [heads, seq, 64] in float64; key j of row i counts if sees(head, i, j).
template <class Sees>
void check_attention(const Array& q, const Array& k, const Array& v, const Array& o, double scale,
                     const Sees& sees) {
  int64_t heads = q.shape()[0], seq = q.shape()[1];
  auto at = [&](int64_t h, int64_t i, int64_t d) { return (h * seq + i) * 64 + d; };
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < seq; ++i) {
      std::vector<double> expected(64);
      double sum = 0;
      for (int64_t j = 0; j < seq; ++j) {
        if (!sees(h, i, j)) continue;
        double s = 0;
        for (int64_t d = 0; d < 64; ++d) s += q.get(at(h, i, d)) * k.get(at(h, j, d));
        double weight = std::exp(scale * s);
        sum += weight;
        for (int64_t d = 0; d < 64; ++d) expected[d] += weight * v.get(at(h, j, d));
      }
      for (int64_t d = 0; d < 64; ++d) {
        double reference = sum == 0 ? 0 : expected[d] / sum;
        INFO("head " << h << ", row " << i << ", column " << d);
        REQUIRE(std::abs(o.get(at(h, i, d)) - reference) <= 2e-3 + 2e-3 * std::abs(reference));
      }
    }
  }
}

struct Problem {
  static constexpr int64_t kHeads = 2, kSeq = 150;  // not a multiple of 64: the edges count
  static constexpr double kScale = 0.125;
  Array q = random_array(F16, {kHeads, kSeq, 64}, 1);
  Array k = random_array(F16, {kHeads, kSeq, 64}, 2);
  Array v = random_array(F16, {kHeads, kSeq, 64}, 3);
  Array o{F16, {kHeads, kSeq, 64}};

  Arguments arguments() {
    Arguments result;
    result.tensor("q", q).tensor("k", k).tensor("v", v).tensor("o", o).param("scale", kScale);
    return result;
  }
  template <class Sees>
  void check(const Sees& sees) const {
    check_attention(q, k, v, o, kScale, sees);
  }
};

TEST_CASE("tutorial: softmax of short rows") {
  for (int64_t rows : {1, 16, 37}) {
    Array x = random_array(F32, {rows, 64}, 4);
    check_softmax(x, softmax(x));
  }
}

TEST_CASE("tutorial: softmax of long rows") {
  for (const char* where : {"host", "interpreter"}) {
    for (int64_t cols : {1, 64, 200}) {
      Array x = random_array(F32, {37, cols}, 5), y(F32, {37, cols});
      run(device(where), softmax_of_long_rows(), Arguments().tensor("x", x).tensor("y", y));
      check_softmax(x, y);
    }
  }
}

TEST_CASE("tutorial: attention by hand") {
  for (const char* where : {"host", "interpreter"}) {
    Problem problem;
    run(device(where), flash_attention_by_hand(), problem.arguments());
    problem.check([](int64_t, int64_t, int64_t) { return true; });
  }
}

TEST_CASE("tutorial: attention with online_softmax") {
  for (bool causal : {false, true}) {
    Problem problem;
    Function attention = compile(device("host"), flash_attention(causal));
    attention(problem.arguments());
    problem.check([&](int64_t, int64_t i, int64_t j) { return !causal || j <= i; });
  }
}

TEST_CASE("tutorial: attention over selected blocks") {
  Problem problem;
  Array mask(Bool, {2, 3, 3});
  for (int64_t cell : {0, 2, 4, 10, 11, 15, 17}) mask.set(cell, 1);  // two rows see nothing
  run(device("host"), sparse_flash_attention(), problem.arguments().tensor("mask", mask));
  problem.check([&](int64_t h, int64_t i, int64_t j) {
    return mask.get((h * 3 + i / 64) * 3 + j / 64) != 0;
  });
}

TEST_CASE("tutorial: the largest of each row") {
  for (const char* where : {"host", "interpreter"})
    for (int64_t cols : {5, 16, 300}) {
      Array x = random_array(F32, {6, cols}, 7), top(F32, {6, 16}), at(I32, {6, 16});
      run(device(where), best_of_long_rows(),
          Arguments().tensor("x", x).tensor("top", top).tensor("where", at));
      for (int64_t row = 0; row < 6; ++row) {
        std::vector<std::pair<double, int64_t>> expected;  // the largest first, then the leftmost
        for (int64_t col = 0; col < cols; ++col)
          expected.emplace_back(-x.get(row * cols + col), col);
        std::sort(expected.begin(), expected.end());
        expected.resize(16, {INFINITY, -1});
        for (int64_t i = 0; i < 16; ++i) {
          CHECK(top.get(row * 16 + i) == -expected[static_cast<size_t>(i)].first);
          CHECK(at.get(row * 16 + i) == expected[static_cast<size_t>(i)].second);
        }
      }
    }
}

TEST_CASE("tutorial: numbers from codes of four bits") {
  Array codes(U32, {13, 16}), levels(F32, {16}), y(F16, {13, 128});
  std::mt19937 random(5);
  for (int64_t i = 0; i < 13 * 16; ++i) codes.set(i, static_cast<double>(random()));
  for (int64_t i = 0; i < 16; ++i) levels.set(i, static_cast<double>(i * i) / 8 - 4);
  for (const char* where : {"host", "emulator", "interpreter"}) {
    run(device(where), numbers_of_codes(),
        Arguments().tensor("codes", codes).tensor("levels", levels).tensor("y", y));
    for (int64_t i = 0; i < 13 * 128; ++i) {
      const auto word = static_cast<uint32_t>(codes.get(i / 8));
      REQUIRE(y.get(i) == levels.get(word >> (i % 8 * 4) & 15));
    }
  }
}

TEST_CASE("tutorial: a mistake is a sentence at the user's line") {
  int line = 0;
  auto mistaken = [&] {
    return trace("mistaken", [&] {
      launch({1});
      Tile a = alloc_shared({64, 128}, F16), b = alloc_shared({64, 128}, F16);
      Tile c = alloc_fragment({64, 64}, F32);
      line = __LINE__ + 1;
      gemm(a, b, c);
    });
  };
  try {
    mistaken();
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(error.loc().line == line);
    CHECK(error.message() == "gemm: inner extents differ: a is 64x128 f16, b is 64x128 f16");
    CHECK(error.hint() == "did you mean transpose_b?");
  }
}

}  // namespace
}  // namespace kiln
