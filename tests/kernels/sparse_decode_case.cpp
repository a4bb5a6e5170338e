#include "tests/kernels/sparse_decode_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

namespace kiln::test {
namespace {

constexpr int64_t kSpare = 3;  // pages of nobody

// `which` of two caches in one array [outer, 2, keys, heads, width].
Memory interleaved(Array& store, int64_t which) {
  Memory all = store.view();
  Memory one = all;
  one.data = static_cast<std::byte*>(all.data) +
             which * all.strides[1] * static_cast<int64_t>(size_of(all.dtype));
  one.shape.erase(one.shape.begin() + 1);
  one.strides.erase(one.strides.begin() + 1);
  return one;
}

// [outer, heads, keys, width] as [outer, keys, heads, width].
Memory heads_inside(Array& store) {
  Memory view = store.view();
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

}  // namespace

SparseDecodeCase::SparseDecodeCase(const DecodeConfig& wanted, const DecodeProblem& s)
    : config(validated(wanted)), sizes(s) {
  const DecodeConfig& c = config;
  const int64_t heads = s.heads_kv * c.group, slots = c.page ? (s.room + c.page - 1) / c.page : 1;
  if (c.page) sizes.room = slots * c.page;
  q = Array(c.dtype, {s.batch, c.tokens, heads, c.head_dim});
  o = Array(c.dtype, {s.batch, c.tokens, heads, c.dim_v()});
  lse = Array(F32, {s.batch, c.tokens, heads});
  lengths = Array(I32, {s.batch});
  starts = Array(I32, {s.batch});
  table = Array(I32, {s.batch, slots});
  std::iota(table.span<int32_t>().begin(), table.span<int32_t>().end(), 0);
  const int64_t blocks = (sizes.room + c.block - 1) / c.block;
  const bool listed = c.form == DecodeForm::Indices;
  chosen = Array(listed                           ? I32
                 : c.form == DecodeForm::MaskBool ? Bool
                                                  : I8,
                 {s.batch, selections(), s.heads_kv, listed ? s.entries : blocks + s.entries});
  const int64_t outer = c.page ? s.batch * slots + kSpare : s.batch;
  const int64_t keys = c.page ? c.page : sizes.room;
  if (c.head_dim != c.dim_v() && sizes.layout == CacheLayout::Interleaved)
    sizes.layout = CacheLayout::Nhd;
  if (sizes.layout == CacheLayout::Interleaved) {
    k_store = Array(c.cache(), {outer, 2, keys, s.heads_kv, c.head_dim});
    args.k = interleaved(k_store, 0);
    args.v = interleaved(k_store, 1);
  } else if (sizes.layout == CacheLayout::Hnd) {
    k_store = Array(c.cache(), {outer, s.heads_kv, keys, c.head_dim});
    v_store = Array(c.cache(), {outer, s.heads_kv, keys, c.dim_v()});
    args.k = heads_inside(k_store);
    args.v = heads_inside(v_store);
  } else {
    k_store = Array(c.cache(), {outer, keys, s.heads_kv, c.head_dim});
    v_store = Array(c.cache(), {outer, keys, s.heads_kv, c.dim_v()});
    args.k = k_store.view();
    args.v = v_store.view();
  }
  args.q = q.view();
  args.o = o.view();
  args.lengths = lengths.view();
  if (c.lse) args.lse = lse.view();
  if (c.page) args.table = table.view();
  if (c.left_pad) args.starts = starts.view();
  k_scale = Array(F32, {s.heads_kv}), v_scale = Array(F32, {1});
  fill(k_scale, 1);
  fill(v_scale, 1);
  if (c.fp8_cache) args.k_scale = k_scale.view(), args.v_scale = v_scale.view();
  if (c.form != DecodeForm::Dense) args.chosen = chosen.view();
}

void SparseDecodeCase::randomize(std::mt19937_64& random) {
  const auto uniform = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto number = [&](int64_t low, int64_t high) {
    return static_cast<double>(uniform(low, high));
  };
  for (int64_t b = 0; b < sizes.batch; ++b) {
    const int64_t length = uniform(0, 3) ? uniform(0, sizes.room) : uniform(0, 1);
    lengths.set(b, static_cast<double>(length));
    starts.set(b, number(0, length));
  }
  const int64_t blocks = (sizes.room + config.block - 1) / config.block;
  for (int64_t i = 0; i < chosen.size(); ++i)
    chosen.set(i, config.form == DecodeForm::Indices ? number(-2, blocks + 1) : number(0, 1));
  if (config.form == DecodeForm::Indices && chosen.size() > 0)
    chosen.set(uniform(0, chosen.size() - 1), 2147483647);
  for (Array* scales : {&k_scale, &v_scale})
    for (int64_t i = 0; i < scales->size(); ++i) scales->set(i, number(1, 8) / 4);
  std::vector<int32_t> pages(static_cast<size_t>(table.size() + kSpare));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  for (int64_t i = 0; i < table.size(); ++i) table.set(i, pages[static_cast<size_t>(i)]);
}

bool SparseDecodeCase::sees(int64_t b, int64_t token, int64_t head_kv, int64_t key) const {
  const auto end = static_cast<int64_t>(lengths.get(b)) - (config.tokens - 1 - token);
  if (key >= end || (config.left_pad && static_cast<double>(key) < starts.get(b))) return false;
  if (config.form == DecodeForm::Dense) return true;
  const int64_t entries = chosen.shape().back(), selection = config.per_token ? token : 0;
  const int64_t row = ((b * selections() + selection) * sizes.heads_kv + head_kv) * entries;
  const int64_t block = key / config.block;
  if (config.form != DecodeForm::Indices) return chosen.get(row + block) != 0;
  for (int64_t i = 0; i < entries; ++i)
    if (chosen.get(row + i) == static_cast<double>(block)) return true;
  return false;
}

void SparseDecodeCase::set(const Memory& cache, int64_t b, int64_t key, int64_t head, int64_t d,
                           double value) const {
  int64_t outer = b, inner = key;
  if (config.page) {
    outer = static_cast<int64_t>(table.get(b * table.shape()[1] + key / config.page));
    inner = key % config.page;
  }
  const int64_t at = outer * cache.strides[0] + inner * cache.strides[1] + head * cache.strides[2] +
                     d * cache.strides[3];
  store_element(
      convert(Scalar::of_float(F64, value), cache.dtype),
      static_cast<std::byte*>(cache.data) + at * static_cast<int64_t>(size_of(cache.dtype)));
}

void SparseDecodeCase::fill_cache(std::mt19937_64& random, double poison) {
  fill_normal(q, random);
  fill(k_store, poison);
  fill(v_store, poison);
  std::normal_distribution<double> normal;
  for (int64_t b = 0; b < sizes.batch; ++b)
    for (int64_t h = 0; h < sizes.heads_kv; ++h)
      for (int64_t key = 0; key < sizes.room; ++key) {
        bool seen = false;
        for (int64_t token = 0; token < config.tokens; ++token) seen |= sees(b, token, h, key);
        for (int64_t d = 0; seen && d < config.head_dim; ++d)
          set(args.k, b, key, h, d, normal(random));
        for (int64_t d = 0; seen && d < config.dim_v(); ++d)
          set(args.v, b, key, h, d, normal(random));
      }
  for (int64_t b = 0; config.page && b < sizes.batch; ++b)
    for (int64_t slot = 0; slot < table.shape()[1]; ++slot)
      if (static_cast<double>(slot * config.page) >= lengths.get(b))
        table.set(b * table.shape()[1] + slot, slot % 2 ? 2147483647 : -2147483647);
}

void SparseDecodeCase::run(Device& device) {
  fill(o, NAN);
  fill(lse, NAN);
  const SparseDecode decode = sparse_decode(device, config);
  kiln::testing::run_on(device, *decode.executable(), decode.bind(args));
}

void SparseDecodeCase::check(Device& device) {
  INFO("on " << device.name());
  run(device);
  compare_with_reference();
}

void SparseDecodeCase::compare_with_reference() const {
  const DecodeReference reference = decode_reference(config, args);
  INFO(describe());
  const Comparison outputs =
      compare(o.values(), reference.o, config.dim_v(), accuracy_rule(config.dtype));
  INFO("o: " << outputs.str());
  CHECK(outputs.ok());
  if (!config.lse) return;
  const Comparison sums = compare(lse.values(), reference.lse, 1, lse_accuracy_rule());
  INFO("lse: " << sums.str());
  CHECK(sums.ok());
}

std::string SparseDecodeCase::describe() const {
  const char* forms[] = {"indices", "mask", "mask_i8", "dense"};
  const char* layouts[] = {"NHD", "HND", "interleaved"};
  const DecodeConfig& c = config;
  return fmt::format(
      "{} {}{}{}{}{} B{} T{}{} H{}/{} room {} D{}/{} block {} page {} {} entries {} splits {}{}",
      forms[static_cast<int>(c.form)], name(c.dtype), c.fp8_cache ? " fp8" : "",
      c.lse ? " lse" : "", c.split ? " split" : "", c.left_pad ? " left_pad" : "", sizes.batch,
      c.tokens, c.per_token ? " each" : "", sizes.heads_kv * c.group, sizes.heads_kv, sizes.room,
      c.head_dim, c.dim_v(), c.block, c.page, layouts[static_cast<int>(sizes.layout)],
      sizes.entries, args.splits.value_or(0), args.batch_invariant ? " invariant" : "");
}

}  // namespace kiln::test
