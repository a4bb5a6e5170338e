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

// One head of a [B, H, S, D] tensor as contiguous doubles.
struct Head {
  int64_t width = 0;
  std::vector<double> values;
  Head() = default;
  Head(const Memory& tensor, int64_t b, int64_t h) : width(tensor.shape[3]) {
    values.reserve(tensor.shape[2] * width);
    for (int64_t i = 0; i < tensor.shape[2]; ++i)
      for (int64_t d = 0; d < width; ++d) values.push_back(load_double(tensor, {b, h, i, d}));
  }
  const double* row(int64_t i) const { return values.data() + i * width; }
};

double dot(const double* a, const double* b, int64_t n) {
  double partial[4] = {};  // independent sums, so that the compiler may use vectors
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (int lane = 0; lane < 4; ++lane) partial[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) partial[0] += a[i] * b[i];
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

// One row: `mask` says which blocks it sees. Writes dim_v elements of o, returns the LSE.
double attend_row(const double* q, const Head& k, const Head& v, const uint8_t* mask,
                  const BlockGrid& grid, int64_t query, double scale, double* o) {
  std::vector<int64_t> keys;
  std::vector<double> weights;
  double top = -kInfinity, sum = 0;
  for (int64_t j = 0, end = grid.visible_keys(query); j < end; ++j) {
    if (!mask[j / grid.block.k]) continue;
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
  BlockGrid grid = grid_of(config, args);
  int64_t batch = args.q.shape[0], heads = args.q.shape[1];
  Array mask(Bool, {batch, heads, grid.rows(), grid.cols()});
  Array listed = config.form == BlockForm::Lists
                     ? from_lists(*args.counts, *args.indices, grid.cols())
                     : Array();
  Memory given = config.form == BlockForm::Lists ? listed.view() : args.mask.value_or(Memory{});
  auto cells = mask.span<uint8_t>();
  for (int64_t b = 0, at = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < grid.rows(); ++r)
        for (int64_t c = 0; c < grid.cols(); ++c, ++at)
          cells[at] = c < grid.visible_cols(r) &&
                      (config.form == BlockForm::Dense || load_double(given, {b, h, r, c}) != 0);
  return mask;
}

std::vector<int64_t> all_rows(const AttentionArgs& args) {
  std::vector<int64_t> rows(args.q.shape[0] * args.q.shape[1] * args.q.shape[2]);
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

AttentionReference attention_reference(const AttentionConfig& config, const AttentionArgs& args,
                                       std::vector<int64_t> rows,
                                       const std::function<void(double)>& progress) {
  std::sort(rows.begin(), rows.end());
  BlockGrid grid = grid_of(config, args);
  Array mask = effective_mask(config, args);
  const uint8_t* cells = mask.span<uint8_t>().data();
  int64_t heads = args.q.shape[1], seq = args.q.shape[2], width = args.v.shape[3];
  double scale = scale_of(config, args);
  AttentionReference result;
  result.o.resize(rows.size() * width);
  result.lse.resize(rows.size());

  Head k, v;
  int64_t loaded = -1;
  for (size_t begin = 0; begin < rows.size();) {
    int64_t head = rows[begin] / seq, b = head / heads, h = head % heads;
    int64_t kv_head = h / (heads / args.k.shape[1]);
    if (loaded != b * heads + kv_head) {
      k = Head(args.k, b, kv_head);
      v = Head(args.v, b, kv_head);
      loaded = b * heads + kv_head;
    }
    size_t end = begin;
    while (end < rows.size() && rows[end] / seq == head) ++end;
    in_threads(end - begin, [&](int64_t first, int64_t last) {
      std::vector<double> q(args.q.shape[3]);
      for (int64_t n = begin + first; n < static_cast<int64_t>(begin) + last; ++n) {
        int64_t i = rows[n] % seq;
        for (size_t d = 0; d < q.size(); ++d)
          q[d] = load_double(args.q, {b, h, i, static_cast<int64_t>(d)});
        const uint8_t* row = cells + (head * grid.rows() + i / grid.block.q) * grid.cols();
        result.lse[n] = attend_row(q.data(), k, v, row, grid, i, scale, &result.o[n * width]);
      }
    });
    begin = end;
    if (progress) progress(static_cast<double>(end) / static_cast<double>(rows.size()));
  }
  result.rows = std::move(rows);
  return result;
}

AttentionWork attention_work(const AttentionConfig& config, const AttentionArgs& args) {
  AttentionWork work;
  Array mask = effective_mask(config, args);
  work.blocks = count_blocks(mask.view(), grid_of(config, args));
  double area = static_cast<double>(config.block.q * config.block.k);
  work.flops = 2.0 * static_cast<double>(config.head_dim + config.dim_v()) * area *
               static_cast<double>(work.blocks.selected);
  // Each query block reads its own rows once and the keys and values of its blocks.
  double element = static_cast<double>(size_of(config.dtype));
  double rows = static_cast<double>(args.q.shape[0] * args.q.shape[1] * args.q.shape[2]);
  work.bytes = element * static_cast<double>(config.head_dim + config.dim_v()) *
               (rows + static_cast<double>(config.block.k * work.blocks.selected));
  return work;
}

}  // namespace kiln
