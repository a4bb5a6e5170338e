#include "tests/kernels/sparse_decode.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "dsl/dsl.h"
#include "kernels/compare.h"
#include "runtime/compile.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

namespace kiln::test {

Kernel sparse_decode_kernel(const DecodeConfig& c) {
  return trace("sparse_decode", [&] {
    constexpr int64_t kRows = 16;  // of a query tile: the group, and rows that are not stored
    Dim batch = dim("batch"), heads_kv = dim("heads_kv"), room = dim("room");
    Dim entries = dim("entries"), splits = dim("splits");
    Tensor q = input("q", c.dtype, {batch, heads_kv, c.group, c.dim});
    Tensor k = input("k", c.dtype, {batch, heads_kv, room, c.dim});
    Tensor v = input("v", c.dtype, {batch, heads_kv, room, c.dim});
    Tensor lengths = input("lengths", I32, {batch});
    Tensor chosen = input("chosen", c.lists ? I32 : Bool, {batch, heads_kv, entries});
    Tensor o = output("o", c.dtype, {batch, heads_kv, c.group, c.dim});
    Tensor lse = output("lse", F32, {batch, heads_kv, c.group});
    Tensor parts = workspace("parts", F32, {batch, heads_kv, splits, c.group, c.dim});
    Tensor part_lse = workspace("part_lse", F32, {batch, heads_kv, splits, c.group});

    {
      const auto grid = launch({splits, heads_kv, batch});
      const Expr &split = grid[0], &h = grid[1], &b = grid[2];
      Tile queries = alloc_shared({kRows, c.dim}, c.dtype);
      Tile keys = alloc_shared({c.block, c.dim}, c.dtype);
      Tile values = alloc_shared({c.block, c.dim}, c.dtype);
      Tile s = alloc_fragment({kRows, c.block}, F32), p = alloc_fragment({kRows, c.block}, c.dtype);
      Tile sum = alloc_fragment({kRows, c.dim}, F32), total = alloc_fragment({kRows}, F32);
      const Expr length = lengths(b);
      clear(queries);
      copy(q(b, h, all, all), queries(span(0, c.group), all));
      clear(sum);
      OnlineSoftmax softmax = online_softmax(kRows, 1 / std::sqrt(static_cast<double>(c.dim)));
      // A block belongs to one split, so that one that is listed twice counts once.
      for (auto block : selected(chosen(b, h, all), {.limit = ceildiv(length, c.block)}))
        when(block % splits == split, [&] {
          auto first = block * c.block;
          copy(k(b, h, span(first, c.block), all), keys);
          copy(v(b, h, span(first, c.block), all), values);
          gemm(queries, keys, s, {.transpose_b = true, .clear = true});
          when(first + c.block > length, [&] {  // 0 · NaN is NaN: such values must go
            for (auto [i, j] : parallel(kRows, c.block))
              s(i, j) = select(first + j < length, s(i, j), -infinity(F32));
            for (auto [j, d] : parallel(c.block, c.dim))
              values(j, d) = select(first + j < length, values(j, d), 0);
          });
          softmax.step(s, p, sum);
          gemm(p, values, sum);
        });
      softmax.finish(sum, total);
      copy(sum(span(0, c.group), all), parts(b, h, split, all, all));
      copy(total(span(0, c.group)), part_lse(b, h, split, all));
    }
    auto [h, b, unused] = launch({heads_kv, batch});
    Tile part = alloc_fragment({c.group, c.dim}, F32), sum = alloc_fragment({c.group, c.dim}, F32);
    Tile its = alloc_fragment({c.group}, F32), weight = alloc_fragment({c.group}, F32);
    Tile most = alloc_fragment({c.group}, F32), total = alloc_fragment({c.group}, F32);
    fill(most, -infinity(F32));
    clear(total);
    clear(sum);
    for (auto split : serial(splits)) {
      copy(part_lse(b, h, split, all), its);
      for (auto i : parallel(c.group)) most(i) = max(most(i), its(i));
    }
    for (auto split : pipelined(splits)) {
      copy(part_lse(b, h, split, all), its);
      copy(parts(b, h, split, all, all), part);
      for (auto i : parallel(c.group)) {
        weight(i) = select(its(i) == -infinity(F32), 0.f, exp(its(i) - most(i)));
        total(i) += weight(i);
      }
      for (auto [i, d] : parallel(c.group, c.dim)) sum(i, d) += weight(i) * part(i, d);
    }
    for (auto [i, d] : parallel(c.group, c.dim))
      sum(i, d) = select(total(i) > 0.f, sum(i, d) / total(i), 0.f);
    for (auto i : parallel(c.group)) most(i) = most(i) + log(total(i));
    copy(sum, o(b, h, all, all));
    copy(most, lse(b, h, all));
  });
}

DecodeCase::DecodeCase(const DecodeConfig& c, const DecodeSizes& s)
    : config(c),
      sizes(s),
      q(c.dtype, {s.batch, s.heads_kv, c.group, c.dim}),
      k(c.dtype, {s.batch, s.heads_kv, s.room, c.dim}),
      v(c.dtype, {s.batch, s.heads_kv, s.room, c.dim}),
      lengths(I32, {s.batch}),
      chosen(c.lists ? I32 : Bool, {s.batch, s.heads_kv, s.entries}),
      o(c.dtype, {s.batch, s.heads_kv, c.group, c.dim}),
      lse(F32, {s.batch, s.heads_kv, c.group}) {}

void DecodeCase::randomize(std::mt19937_64& random) {
  for (Array* array : {&q, &k, &v}) fill_normal(*array, random);
  const auto uniform = [&](int64_t low, int64_t high) {
    return static_cast<double>(std::uniform_int_distribution<int64_t>(low, high)(random));
  };
  for (int64_t b = 0; b < sizes.batch; ++b) lengths.set(b, uniform(0, sizes.room));
  const int64_t blocks = sizes.room / config.block + 1;
  for (int64_t i = 0; i < chosen.size(); ++i)
    chosen.set(i, config.lists ? uniform(-2, blocks + 1) : uniform(0, 1));
}

bool DecodeCase::sees(int64_t b, int64_t head_kv, int64_t key) const {
  if (static_cast<double>(key) >= lengths.get(b)) return false;
  const int64_t block = key / config.block, row = (b * sizes.heads_kv + head_kv) * sizes.entries;
  if (!config.lists) return block < sizes.entries && chosen.get(row + block) != 0;
  for (int64_t i = 0; i < sizes.entries; ++i)
    if (chosen.get(row + i) == static_cast<double>(block)) return true;
  return false;
}

void DecodeCase::poison(double value) {
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t h = 0; h < sizes.heads_kv; ++h)
      for (int64_t key = 0; key < sizes.room; ++key)
        for (int64_t d = 0; d < config.dim && !sees(b, h, key); ++d)
          for (Array* array : {&k, &v})
            array->set(((b * sizes.heads_kv + h) * sizes.room + key) * config.dim + d, value);
}

void DecodeCase::run(Device& device) {
  fill(o, NAN);
  fill(lse, NAN);
  const Function compiled = compile(device, sparse_decode_kernel(config));
  Arguments arguments;
  arguments.tensor("q", q).tensor("k", k).tensor("v", v).tensor("lengths", lengths);
  arguments.tensor("chosen", chosen).tensor("o", o).tensor("lse", lse);
  arguments.dim("splits", sizes.splits);
  kiln::testing::run_on(device, *compiled.executable(), bind(compiled.signature(), arguments));
}

void DecodeCase::check(Device& device) {
  run(device);
  compare_with_reference();
}

void DecodeCase::compare_with_reference() const {
  std::vector<double> right_o, right_lse;
  const double scale = 1 / std::sqrt(static_cast<double>(config.dim));
  for (int64_t row = 0; row < sizes.batch * sizes.heads_kv * config.group; ++row) {
    const int64_t head = row / config.group, b = head / sizes.heads_kv;
    std::vector<double> sum(static_cast<size_t>(config.dim), 0);
    std::vector<double> scores;
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < sizes.room; ++key) {
      if (!sees(b, head % sizes.heads_kv, key)) continue;
      double score = 0;
      for (int64_t d = 0; d < config.dim; ++d)
        score += q.get(row * config.dim + d) * k.get((head * sizes.room + key) * config.dim + d);
      scores.push_back(score * scale);
      keys.push_back(key);
    }
    double most = -INFINITY, total = 0;
    for (double score : scores) most = std::max(most, score);
    for (size_t i = 0; i < keys.size(); ++i) {
      const double weight = std::exp(scores[i] - most);
      total += weight;
      for (int64_t d = 0; d < config.dim; ++d)
        sum[static_cast<size_t>(d)] +=
            weight * v.get((head * sizes.room + keys[i]) * config.dim + d);
    }
    for (double one : sum) right_o.push_back(keys.empty() ? 0 : one / total);
    right_lse.push_back(keys.empty() ? -INFINITY : most + std::log(total));
  }
  const Comparison outputs = compare(o.values(), right_o, config.dim, accuracy_rule(config.dtype));
  INFO("o: " << outputs.str());
  CHECK(outputs.ok());
  const Comparison sums = compare(lse.values(), right_lse, 1, lse_accuracy_rule());
  INFO("lse: " << sums.str());
  CHECK(sums.ok());
}

}  // namespace kiln::test
