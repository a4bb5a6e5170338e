#include "tests/kernels/batch_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "kernels/compare.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

namespace kiln::test {
namespace {

constexpr double kMark = -1024;  // of what a run is to write
constexpr int64_t kSpare = 5;    // tokens and pages of nobody

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A dot of random numbers in the dtype that they are kept in.
double rounded(DType dtype, double value) {
  return convert(Scalar::of_float(F64, value), dtype).f;
}

Array numbers(const std::vector<int64_t>& values) {
  Array array(I32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    array.set(static_cast<int64_t>(i), static_cast<double>(values[i]));
  return array;
}

}  // namespace

BatchCase::BatchCase(const AttentionConfig& wanted, std::vector<Lengths> given, int64_t query_heads,
                     int64_t key_heads, uint64_t seed, double density)
    : config(validated(wanted, fast_device().target())),
      lengths(std::move(given)),
      heads(query_heads),
      heads_kv(key_heads) {
  draw(seed);
  make_tensors(seed);
  lay_out();
  if (config.head_types) use(std::vector<HeadKind>(static_cast<size_t>(heads)));
  const BlockGrid grid = grid_of(config, args);
  mask = Array(Bool, {static_cast<int64_t>(lengths.size()), heads, grid.rows(), grid.cols()});
  std::mt19937_64 random(seed + 1);
  std::bernoulli_distribution coin(density);
  for (int64_t i = 0; i < mask.size(); ++i) mask.set(i, coin(random));
  set_mask();
}

void BatchCase::draw(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](std::vector<double>& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    for (double& value : values) value = rounded(config.dtype, normal(random));
  };
  for (const Lengths& length : lengths) {
    Elements& one = elements_.emplace_back();
    fill(one.q, length.q * heads * config.head_dim);
    fill(one.k, length.k * heads_kv * config.head_dim);
    fill(one.v, length.k * heads_kv * config.dim_v());
  }
}

void BatchCase::make_tensors(uint64_t seed) {
  const AttentionConfig& c = config;
  const auto batch = static_cast<int64_t>(lengths.size());
  int64_t longest_q = 0, longest_k = 0, slots = 1;
  std::vector<int64_t> ends_q = {0}, ends_k = {0}, own;
  for (const Lengths& length : lengths) {
    longest_q = std::max(longest_q, length.q);
    longest_k = std::max(longest_k, length.k);
    ends_q.push_back(ends_q.back() + length.q);
    ends_k.push_back(ends_k.back() + length.k);
    own.push_back(length.k);
  }
  if (c.varlen) {
    const int64_t tokens = ends_q.back() + kSpare;
    q_ = Array(c.dtype, {tokens, heads, c.head_dim});
    o_ = Array(c.dtype, {tokens, heads, c.dim_v()});
    lse_ = Array(F32, {heads, tokens});
    cu_q_ = numbers(ends_q);
    args.cu_seqlens_q = cu_q_.view();
    args.max_seqlen_q = longest_q;
  } else {
    q_ = Array(c.dtype, {batch, heads, longest_q, c.head_dim});
    o_ = Array(c.dtype, {batch, heads, longest_q, c.dim_v()});
    lse_ = Array(F32, {batch, heads, longest_q});
  }
  const auto keys = [&](const Shape& outer) {
    for (auto [array, width] : {std::pair(&k_, c.head_dim), std::pair(&v_, c.dim_v())}) {
      Shape shape = outer;
      shape.push_back(width);
      *array = Array(c.dtype, shape);
    }
  };
  if (c.page) {
    std::vector<int64_t> all;
    for (const Lengths& length : lengths) slots = std::max(slots, ceil_div(length.k, c.page) + 1);
    all.resize(static_cast<size_t>(batch * slots + kSpare));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), std::mt19937_64(seed));
    table_ = Array(I32, {batch, slots});
    fill(table_, 2147483647);
    for (int64_t b = 0; b < batch; ++b) {
      std::vector<int64_t>& pages = pages_.emplace_back();
      for (int64_t slot = 0; slot * c.page < lengths[b].k; ++slot, all.pop_back()) {
        pages.push_back(all.back());
        table_.set(b * slots + slot, static_cast<double>(all.back()));
      }
    }
    args.table = table_.view();
    keys({batch * slots + kSpare, c.page, heads_kv});
  } else if (c.varlen && !c.lengths) {
    keys({ends_k.back() + kSpare, heads_kv});
    cu_k_ = numbers(ends_k);
    args.cu_seqlens_k = cu_k_.view();
    args.max_seqlen_k = longest_k;
  } else {
    keys({batch, heads_kv, longest_k + (c.lengths ? kSpare : 0)});
  }
  lengths_ = numbers(own);
  if (c.lengths) args.lengths = lengths_.view();
  args.q = q_.view();
  args.k = k_.view();
  args.v = v_.view();
  args.o = o_.view();
  if (c.lse) args.lse = lse_.view();
  if (c.q_start) use_starts(std::vector<int64_t>(lengths.size()));
}

// The flat index of a row's first element.
size_t BatchCase::place(const Memory& tensor, size_t b, int64_t head, int64_t token,
                        bool is_key) const {
  const std::vector<int64_t>& s = tensor.strides;
  const auto sequence = static_cast<int64_t>(b);
  int64_t begin = 0;
  for (size_t i = 0; i < b; ++i) begin += is_key ? lengths[i].k : lengths[i].q;
  if (is_key && config.page)
    return static_cast<size_t>(pages_[b][static_cast<size_t>(token / config.page)] * s[0] +
                               token % config.page * s[1] + head * s[2]);
  if (is_key ? config.varlen && !config.lengths : config.varlen)
    return static_cast<size_t>((begin + token) * s[0] + head * s[1]);
  return static_cast<size_t>(sequence * s[0] + head * s[1] + token * s[2]);
}

void BatchCase::lay_out() {
  for (Array* array : {&q_, &k_, &v_}) fill(*array, NAN);
  const auto put = [&](Array& to, size_t b, bool is_key, int64_t tokens, int64_t of_heads,
                       const std::vector<double>& values) {
    const int64_t width = to.shape().back();
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t h = 0; h < of_heads; ++h) {
        const auto at = static_cast<int64_t>(place(to.view(), b, h, token, is_key));
        for (int64_t d = 0; d < width; ++d)
          to.set(at + d, values[static_cast<size_t>((token * of_heads + h) * width + d)]);
      }
  };
  for (size_t b = 0; b < lengths.size(); ++b) {
    put(q_, b, false, lengths[b].q, heads, elements_[b].q);
    put(k_, b, true, lengths[b].k, heads_kv, elements_[b].k);
    put(v_, b, true, lengths[b].k, heads_kv, elements_[b].v);
  }
}

void BatchCase::set_mask() {
  if (config.form == BlockForm::Lists) {
    lists_ = to_lists(mask);
    args.counts = lists_.counts.view();
    args.indices = lists_.indices.view();
  } else if (config.form != BlockForm::Dense) {
    if (config.form == BlockForm::MaskI8) mask = Array(I8, mask.shape(), mask.values());
    args.mask = mask.view();
  }
}

void BatchCase::use(const std::vector<HeadKind>& kinds) {
  types_ = Array(I32, {heads});
  info_ = Array(I32, {heads, 2});
  int64_t planes = 0;
  for (int64_t h = 0; h < heads; ++h) {
    const HeadKind& kind = kinds[static_cast<size_t>(h)];
    types_.set(h, static_cast<double>(kind.type));
    info_.set(2 * h, static_cast<double>(kind.sink));
    info_.set(2 * h + 1, static_cast<double>(kind.local));
    if (kind.type > 0) ++planes;
  }
  args.head_mask_type = types_.view();
  if (config.streaming != Streaming::None) args.streaming_info = info_.view();
  if (mask.size() == 0) return;
  Array fewer(Bool, {mask.shape()[0], planes, mask.shape()[2], mask.shape()[3]});
  const int64_t cells = mask.shape()[2] * mask.shape()[3];
  for (int64_t i = 0; i < fewer.size(); ++i)
    fewer.set(i, mask.get((i / cells / std::max<int64_t>(planes, 1) * mask.shape()[1] +
                           i / cells % std::max<int64_t>(planes, 1)) *
                              cells +
                          i % cells));
  mask = fewer;
  set_mask();
}

void BatchCase::use_starts(const std::vector<int64_t>& starts) {
  starts_ = numbers(starts);
  args.q_start = starts_.view();
}

void BatchCase::take_elements(const BatchCase& other, size_t first) {
  for (size_t b = 0; b < lengths.size(); ++b) elements_[b] = other.elements_[first + b];
  lay_out();
  copy_mask(other, first, 0);
}

void BatchCase::take_chunk(const BatchCase& other, int64_t done) {
  const auto part = [](const std::vector<double>& all, int64_t begin, int64_t end, int64_t width) {
    return std::vector<double>(all.begin() + begin * width, all.begin() + end * width);
  };
  for (size_t b = 0; b < lengths.size(); ++b) {
    const Elements& from = other.elements_[b];
    const int64_t begin = std::min(done, other.lengths[b].q);
    elements_[b].q = part(from.q, begin, begin + lengths[b].q, heads * config.head_dim);
    elements_[b].k = part(from.k, 0, lengths[b].k, heads_kv * config.head_dim);
    elements_[b].v = part(from.v, 0, lengths[b].k, heads_kv * config.dim_v());
  }
  lay_out();
  copy_mask(other, 0, done / config.block.q);
}

void BatchCase::copy_mask(const BatchCase& other, size_t first, int64_t first_row) {
  const Shape& to = mask.shape();
  const Shape& from = other.mask.shape();
  int64_t i = 0;
  for (int64_t b = 0; b < to[0]; ++b)
    for (int64_t h = 0; h < to[1]; ++h)
      for (int64_t r = first_row; r < first_row + to[2]; ++r)
        for (int64_t c = 0; c < to[3]; ++c, ++i) {
          const bool there = r < from[2] && c < from[3];
          const int64_t row = ((b + static_cast<int64_t>(first)) * from[1] + h) * from[2] + r;
          mask.set(i, there ? other.mask.get(row * from[3] + c) : 0);
        }
  set_mask();
}

void BatchCase::run(Device& device) {
  fill(o_, kMark);
  fill(lse_, kMark);
  const BlockSparseAttention call = block_sparse_attention(device, config);
  kiln::testing::run_on(device, *call.executable(), call.bind(args));
}

void BatchCase::check(Device& device) {
  INFO(describe() << " on " << device.name());
  run(device);
  const AttentionReference reference = attention_reference(config, args, all_rows(args));
  const Comparison outputs = compare(rows_of(args, args.o, reference.rows), reference.o,
                                     config.dim_v(), accuracy_rule(config.dtype));
  INFO("o: " << outputs.str());
  CHECK(outputs.ok());
  int64_t untouched = 0;
  for (int64_t i = 0; i < o_.size(); ++i) untouched += o_.get(i) == kMark;
  CHECK(untouched == o_.size() - static_cast<int64_t>(reference.o.size()));
  if (!config.lse) return;
  const Comparison sums =
      compare(rows_of(args, *args.lse, reference.rows), reference.lse, 1, lse_accuracy_rule());
  INFO("lse: " << sums.str());
  CHECK(sums.ok());
  for (int64_t i = untouched = 0; i < lse_.size(); ++i) untouched += lse_.get(i) == kMark;
  CHECK(untouched == lse_.size() - static_cast<int64_t>(reference.lse.size()));
}

std::vector<double> BatchCase::result(size_t sequence) const {
  std::vector<double> values;
  for (int64_t i = 0; i < lengths[sequence].q; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const auto at = static_cast<int64_t>(place(args.o, sequence, h, i, false));
      for (int64_t d = 0; d < config.dim_v(); ++d) values.push_back(o_.get(at + d));
    }
  return values;
}

std::string BatchCase::describe() const {
  const char* forms[] = {"mask", "mask_i8", "lists", "dense"};
  const char* streaming[] = {"", " streaming blocks", " streaming tokens"};
  std::string text = fmt::format(
      "{} {}{}{}{}{}{}{} H{}/{} D{}/{} blocks {}x{} tiles {}x{} page {}:",
      forms[static_cast<int>(config.form)], name(config.dtype), config.causal ? " causal" : "",
      config.varlen ? " varlen" : "", config.lengths ? " lengths" : "",
      config.q_start ? " q_start" : "", config.head_types ? " head_types" : "",
      streaming[static_cast<int>(config.streaming)], heads, heads_kv, config.head_dim,
      config.dim_v(), config.block.q, config.block.k, config.block_m, config.block_n, config.page);
  for (const Lengths& length : lengths) text += fmt::format(" {}/{}", length.q, length.k);
  return text;
}

}  // namespace kiln::test
