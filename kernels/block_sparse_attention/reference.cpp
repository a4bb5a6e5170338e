// Attention in float64, one query row after another: softmax over the set of visible keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <thread>

#include "kernels/access.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"

namespace kiln {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One head's keys or values of a sequence as contiguous doubles.
struct Head {
  int64_t width = 0;
  std::vector<double> values;
  Head() = default;
  Head(const Memory& tensor, const HostSequence& sequence, int64_t h) : width(tensor.shape.back()) {
    values.reserve(sequence.k_len * width);
    for (int64_t j = 0; j < sequence.k_len; ++j)
      for (int64_t d = 0; d < width; ++d) values.push_back(sequence.key(tensor, h, j, d));
  }
  const double* row(int64_t j) const { return values.data() + j * width; }
};

double dot(const double* a, const double* b, int64_t n) {
  double partial[4] = {};  // independent sums, so that the compiler may use vectors
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int lane = 0; lane < 4; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) partial[0] += a[i] * b[i];
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

// What a head does, and the row of a mask that is its own.
struct HostHead {
  int64_t type = 1, plane = 0, sink = 0, local = 0;  // as head_mask_type and streaming_info say
};

std::vector<HostHead> heads_of(const AttentionConfig& config, const AttentionArgs& args,
                               const BatchSizes& sizes) {
  std::vector<HostHead> all(sizes.heads);
  int64_t sparse = 0;
  for (int64_t h = 0; h < sizes.heads; ++h) {
    HostHead& head = all[h];
    head.plane = config.per_kv_head ? h / (sizes.heads / sizes.heads_kv) : h;
    if (config.form == BlockForm::Dense) head.type = 0;
    if (!config.head_types) continue;
    head.type = std::min<int64_t>(load_int(*args.head_mask_type, {h}), head.type);
    head.plane = sparse;
    if (load_int(*args.head_mask_type, {h}) > 0) ++sparse;
    if (config.streaming == Streaming::None) {
      head.type = std::max<int64_t>(head.type, 0);
    } else {
      head.sink = std::max<int64_t>(load_int(*args.streaming_info, {h, 0}), 0);
      head.local = load_int(*args.streaming_info, {h, 1});
    }
  }
  return all;
}

// May query i see key j, where its block may be looked at?
bool sees(const AttentionConfig& config, const HostSequence& sequence, const HostHead& head,
          int64_t i, int64_t j) {
  if (head.type >= 0 || config.streaming != Streaming::Tokens) return true;
  return j < head.sink || j >= i + sequence.start - head.local + 1;
}

// May row r of blocks look at column c? `given`: the mask, or what the lists say.
bool looks_at(const AttentionConfig& config, const HostSequence& sequence, const HostHead& head,
              const Memory& given, int64_t r, int64_t c) {
  const BlockShape block = config.block;
  const int64_t first = r * block.q, last = std::min(first + block.q, sequence.q_len) - 1;
  if (first >= sequence.q_len || c * block.k >= sequence.visible_keys(last, config.causal))
    return false;
  if (head.type > 0)
    return head.plane < given.shape[1] && load_double(given, {sequence.b, head.plane, r, c}) != 0;
  if (head.type == 0) return true;
  if (config.streaming == Streaming::Blocks) {
    const int64_t end = ceil_div(sequence.visible_keys(last, config.causal), block.k);
    return c < head.sink || c >= end - head.local;
  }
  for (int64_t i = first; i <= last; ++i) {
    const int64_t end = std::min(sequence.visible_keys(i, config.causal), (c + 1) * block.k);
    for (int64_t j = c * block.k; j < end; ++j)
      if (sees(config, sequence, head, i, j)) return true;
  }
  return false;
}

// One row: `mask` says which blocks it sees. Writes dim_v elements of o, returns the LSE.
double attend_row(const double* q, const Head& k, const Head& v, const uint8_t* mask,
                  const AttentionConfig& config, const HostSequence& sequence, const HostHead& head,
                  int64_t query, double scale, double* o) {
  std::vector<int64_t> keys;
  std::vector<double> weights;
  double top = -kInfinity, sum = 0;
  for (int64_t j = 0, end = sequence.visible_keys(query, config.causal); j < end; ++j) {
    if (!mask[j / config.block.k] || !sees(config, sequence, head, query, j)) continue;
    keys.push_back(j);
    weights.push_back(scale * dot(q, k.row(j), k.width));
    top = std::max(top, weights.back());
  }
  std::fill_n(o, v.width, 0.0);
  if (keys.empty()) return -kInfinity;
  for (double& weight : weights) sum += weight = std::exp(weight - top);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double* value = v.row(keys[i]);
    for (int64_t d = 0; d < v.width; ++d) o[d] += weights[i] / sum * value[d];
  }
  return top + std::log(sum);
}

// Where a row (a place of an lse) lies: its sequence, head and query there.
struct RowPlace {
  int64_t b, h, i;
};
struct RowPlaces {
  const AttentionArgs& args;
  std::vector<int64_t> ends;  // cu_seqlens_q

  explicit RowPlaces(const AttentionArgs& given) : args(given) {
    if (!args.cu_seqlens_q) return;
    for (int64_t b = 0; b < args.cu_seqlens_q->shape[0]; ++b)
      ends.push_back(load_int(*args.cu_seqlens_q, {b}));
  }
  RowPlace of(int64_t row) const {
    const Shape& q = args.q.shape;
    if (ends.empty()) return {row / q[2] / q[1], row / q[2] % q[1], row % q[2]};
    const int64_t token = row % q[0];
    const auto next = std::upper_bound(ends.begin(), ends.end(), token);
    const int64_t b = next - ends.begin() - 1;
    return {b, row / q[0], token - ends[b]};
  }
};

template <class Body>
void in_threads(int64_t count, const Body& body) {  // body(begin, end)
  int64_t threads =
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max(count, int64_t{1}));
  std::vector<std::thread> pool;
  for (int64_t t = 1; t < threads; ++t)
    pool.emplace_back([&, t] { body(count * t / threads, count * (t + 1) / threads); });
  body(0, count / threads);
  for (std::thread& thread : pool) thread.join();
}

}  // namespace

Array effective_mask(const AttentionConfig& config, const AttentionArgs& args) {
  const BatchSizes sizes = sizes_of(config, args);
  const BlockGrid grid = grid_of(config, args);
  Array mask(Bool, {sizes.batch, sizes.heads, grid.rows(), grid.cols()});
  const bool lists = config.form == BlockForm::Lists;
  const Array listed = lists ? from_lists(*args.counts, *args.indices, grid.cols()) : Array();
  const Memory given = lists ? listed.view() : args.mask.value_or(Memory{});
  const std::vector<HostHead> heads = heads_of(config, args, sizes);
  auto cells = mask.span<uint8_t>();
  size_t at = 0;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    const HostSequence sequence(config.sequences(), sequence_tensors(args), b);
    for (const HostHead& head : heads)
      for (int64_t r = 0; r < grid.rows(); ++r)
        for (int64_t c = 0; c < grid.cols(); ++c)
          cells[at++] = looks_at(config, sequence, head, given, r, c);
  }
  return mask;
}

std::vector<int64_t> all_rows(const AttentionArgs& args) {
  const Shape& q = args.q.shape;
  std::vector<int64_t> rows;
  if (!args.cu_seqlens_q) {
    rows.resize(q[0] * q[1] * q[2]);
    std::iota(rows.begin(), rows.end(), int64_t{0});
    return rows;
  }
  const std::vector<int64_t> ends = RowPlaces(args).ends;
  for (int64_t h = 0; h < q[1]; ++h)
    for (int64_t i = ends.front(); i < ends.back(); ++i) rows.push_back(h * q[0] + i);
  return rows;
}

std::vector<double> rows_of(const AttentionArgs& args, const Memory& result,
                            std::span<const int64_t> rows) {
  const Shape& q = args.q.shape;
  const bool packed = args.cu_seqlens_q.has_value();
  const bool is_lse = result.shape.size() + 1 == q.size();
  const int64_t width = is_lse ? 1 : result.shape.back();
  std::vector<double> values;
  values.reserve(rows.size() * width);
  for (int64_t row : rows) {
    const int64_t seq = packed ? q[0] : q[2], i = row % seq, head = row / seq;
    for (int64_t d = 0; d < width; ++d)
      values.push_back(
          packed   ? (is_lse ? load_double(result, {head, i}) : load_double(result, {i, head, d}))
          : is_lse ? load_double(result, {head / q[1], head % q[1], i})
                   : load_double(result, {head / q[1], head % q[1], i, d}));
  }
  return values;
}

AttentionReference attention_reference(const AttentionConfig& config, const AttentionArgs& args,
                                       std::vector<int64_t> rows,
                                       const std::function<void(double)>& progress) {
  std::sort(rows.begin(), rows.end());
  const BatchSizes sizes = sizes_of(config, args);
  const BlockGrid grid = grid_of(config, args);
  const Array mask = effective_mask(config, args);
  const uint8_t* cells = mask.span<uint8_t>().data();
  const std::vector<HostHead> heads = heads_of(config, args, sizes);
  const RowPlaces places(args);
  const int64_t width = args.v.shape.back();
  const double scale = scale_of(config, args);
  AttentionReference result;
  result.o.resize(rows.size() * width);
  result.lse.resize(rows.size());

  Head k, v;
  int64_t loaded = -1;
  for (size_t begin = 0; begin < rows.size();) {
    const RowPlace place = places.of(rows[begin]);
    const HostSequence sequence(config.sequences(), sequence_tensors(args), place.b);
    const int64_t kv_head = place.h / (sizes.heads / sizes.heads_kv);
    if (loaded != place.b * sizes.heads + kv_head) {
      k = Head(args.k, sequence, kv_head);
      v = Head(args.v, sequence, kv_head);
      loaded = place.b * sizes.heads + kv_head;
    }
    size_t end = begin;
    for (; end < rows.size(); ++end) {
      const RowPlace next = places.of(rows[end]);
      if (next.b != place.b || next.h != place.h) break;
    }
    in_threads(end - begin, [&](int64_t first, int64_t last) {
      std::vector<double> q(args.q.shape.back());
      for (int64_t n = begin + first; n < static_cast<int64_t>(begin) + last; ++n) {
        const int64_t i = places.of(rows[n]).i;
        for (size_t d = 0; d < q.size(); ++d)
          q[d] = sequence.query(args.q, place.h, i, static_cast<int64_t>(d));
        const uint8_t* row =
            cells +
            ((place.b * sizes.heads + place.h) * grid.rows() + i / config.block.q) * grid.cols();
        result.lse[n] = attend_row(q.data(), k, v, row, config, sequence, heads[place.h], i, scale,
                                   &result.o[n * width]);
      }
    });
    begin = end;
    if (progress) progress(static_cast<double>(end) / static_cast<double>(rows.size()));
  }
  result.rows = std::move(rows);
  return result;
}

// A result of all rows in the layout of its tensor; 0 where no sequence has a token.
static std::vector<double> in_layout(const AttentionArgs& args, const AttentionReference& reference,
                                     const std::vector<double>& values, bool is_lse) {
  if (!args.cu_seqlens_q || is_lse) {
    std::vector<double> all(is_lse ? count(args.lse->shape) : values.size());
    const size_t width = is_lse ? 1 : args.o.shape.back();
    for (size_t n = 0; n < reference.rows.size(); ++n)
      std::copy_n(&values[n * width], width, &all[reference.rows[n] * width]);
    return all;
  }
  const int64_t tokens = args.o.shape[0], heads = args.o.shape[1], width = args.o.shape[2];
  std::vector<double> all(tokens * heads * width);
  for (size_t n = 0; n < reference.rows.size(); ++n) {
    const int64_t token = reference.rows[n] % tokens, head = reference.rows[n] / tokens;
    std::copy_n(&values[n * width], width, &all[(token * heads + head) * width]);
  }
  return all;
}

ReferenceResults attention_results(const AttentionConfig& config, const AttentionArgs& args) {
  const AttentionReference reference = attention_reference(config, args, all_rows(args));
  ReferenceResults results{{"o", in_layout(args, reference, reference.o, false)}};
  if (config.lse) results["lse"] = in_layout(args, reference, reference.lse, true);
  return results;
}

AttentionWork attention_work(const AttentionConfig& config, const AttentionArgs& args) {
  AttentionWork work;
  const BatchSizes sizes = sizes_of(config, args);
  const Array mask = effective_mask(config, args);
  int64_t queries = 0;
  for (int64_t b = 0; b < sizes.batch; ++b) {
    const HostSequence sequence(config.sequences(), sequence_tensors(args), b);
    queries += sequence.q_len;
    for (int64_t r = 0; r * config.block.q < sequence.q_len; ++r) {
      const int64_t last = std::min((r + 1) * config.block.q, sequence.q_len) - 1;
      work.blocks.visible +=
          sizes.heads * ceil_div(sequence.visible_keys(last, config.causal), config.block.k);
    }
  }
  for (const uint8_t cell : mask.span<uint8_t>()) work.blocks.selected += cell;
  double area = static_cast<double>(config.block.q * config.block.k);
  work.flops = 2.0 * static_cast<double>(config.head_dim + config.dim_v()) * area *
               static_cast<double>(work.blocks.selected);
  // Each query block reads its own rows once and the keys and values of its blocks.
  double element = static_cast<double>(size_of(config.dtype));
  double rows = static_cast<double>(sizes.heads * queries);
  work.bytes = element * static_cast<double>(config.head_dim + config.dim_v()) *
               (rows + static_cast<double>(config.block.k * work.blocks.selected));
  return work;
}

}  // namespace kiln
