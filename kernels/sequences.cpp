#include "kernels/sequences.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"
#include "kernels/access.h"

namespace kiln {
namespace {

// Given if and only if it is `wanted`, and then i32 of the shape.
void require_i32(const char* what, const Memory* tensor, bool wanted, const char* without,
                 Extents shape) {
  if (!wanted) {
    if (tensor) refuse_given(what, without);
    return;
  }
  if (!tensor) refuse_missing(what);
  require_dtype(what, *tensor, I32);
  require_shape(what, *tensor, shape);
}

void check_longest(const char* what, const std::optional<int64_t>& most, bool needed, bool allowed,
                   const char* without) {
  if (!most && !needed) return;
  if (!allowed)
    throw UserError(fmt::format("{}: given, but the kernel was compiled {}", what, without));
  if (!most || *most < 0)
    throw UserError(fmt::format("{}: expected the longest sequence's tokens, got {}", what,
                                most ? std::to_string(*most) : "nothing"));
}

void check_queries(const SequenceConfig& config, const SequenceTensors& t, int64_t head_dim) {
  const Memory& q = *t.q;
  require_rank("q", q, config.varlen ? 3 : 4,
               config.varlen ? "tokens, heads, dim" : "batch, heads, seq, dim");
  check_longest("max_seqlen_q", t.max_seqlen_q, config.varlen, config.varlen, "without varlen");
  if (!config.varlen) {
    require_shape("q", q, {q.shape[0], q.shape[1], q.shape[2], head_dim});
    if (t.cu_seqlens_q) refuse_given("cu_seqlens_q", "without varlen");
    return;
  }
  require_shape("q", q, {q.shape[0], q.shape[1], head_dim});
  if (!t.cu_seqlens_q) refuse_missing("cu_seqlens_q");
  require_dtype("cu_seqlens_q", *t.cu_seqlens_q, I32);
  require_rank("cu_seqlens_q", *t.cu_seqlens_q, 1, "batch + 1");
  if (t.cu_seqlens_q->shape[0] < 1)
    throw UserError("cu_seqlens_q: expected 1 entry or more, got none");
}

void check_keys(const SequenceConfig& config, const SequenceTensors& t, int64_t head_dim) {
  const Memory& k = *t.k;
  const int64_t batch = config.varlen ? t.cu_seqlens_q->shape[0] - 1 : t.q->shape[0];
  const bool known = config.lengths || config.packed_keys();
  check_longest("max_seqlen_k", t.max_seqlen_k, config.packed_keys(), known,
                "for keys whose shape says it");
  require_i32("cu_seqlens_k", t.cu_seqlens_k, config.packed_keys(), "without packed keys",
              {batch + 1});
  require_i32("lengths", t.lengths, config.lengths, "without lengths", {batch});
  require_i32("q_start", t.q_start, config.q_start, "without q_start", {batch});
  if (config.page) {
    require_rank("k", k, 4, "pages, page, heads_kv, dim");
    require_shape("k", k, {k.shape[0], config.page, k.shape[2], head_dim});
    if (t.table) require_rank("table", *t.table, 2, "batch, slots");
  } else if (config.packed_keys()) {
    require_rank("k", k, 3, "tokens_kv, heads_kv, dim");
    require_shape("k", k, {k.shape[0], k.shape[1], head_dim});
  } else {
    require_rank("k", k, 4, "batch, heads_kv, seq_kv, dim");
    require_shape("k", k, {batch, k.shape[1], k.shape[2], head_dim});
  }
  require_i32("table", t.table, config.page > 0, "without pages",
              {batch, t.table && config.page ? t.table->shape[1] : 0});
}

}  // namespace

void check_page(int64_t page) {
  constexpr int64_t kMost = 1 << 20;
  if (page < 0 || page > kMost || page % 16)
    throw UserError(
        fmt::format("page: expected 0 or a multiple of 16 up to {}, got {}", kMost, page));
}

BatchSizes batch_sizes(const SequenceConfig& config, const SequenceTensors& t) {
  const Shape &q = t.q->shape, &k = t.k->shape;
  BatchSizes sizes{q[0], q[1], k[config.page ? 2 : 1], 0, 0};
  sizes.seq = config.varlen ? *t.max_seqlen_q : q[2];
  if (config.varlen) sizes.batch = t.cu_seqlens_q->shape[0] - 1;
  if (config.packed_keys()) {
    sizes.seq_kv = *t.max_seqlen_k;
  } else {
    const int64_t room = config.page ? t.table->shape[1] * config.page : k[2];
    sizes.seq_kv = std::min(room, t.max_seqlen_k.value_or(room));
  }
  return sizes;
}

BatchSizes check_sequences(const SequenceConfig& config, const SequenceTensors& tensors,
                           int64_t head_dim) {
  check_queries(config, tensors, head_dim);
  check_keys(config, tensors, head_dim);
  const BatchSizes sizes = batch_sizes(config, tensors);
  if (sizes.heads_kv == 0 ? sizes.heads != 0 : sizes.heads % sizes.heads_kv != 0)
    throw UserError(fmt::format("heads: expected a multiple of the {} heads of k and v, got {}",
                                sizes.heads_kv, sizes.heads));
  return sizes;
}

UpTo<int64_t, 2> longest_sequences(const SequenceConfig& config, const SequenceTensors& tensors) {
  const BatchSizes sizes = batch_sizes(config, tensors);
  if (config.varlen) return {{sizes.seq, sizes.seq_kv}, 2};
  if (config.lengths) return {{sizes.seq_kv}, 1};
  return {{}, 0};
}

// But for the last axis.
static void require_like(const char* what, const Memory& tensor, const Shape& s, int64_t width) {
  s.size() == 4 ? require_shape(what, tensor, {s[0], s[1], s[2], width})
                : require_shape(what, tensor, {s[0], s[1], width});
}

void check_attended(const BatchSizes& sizes, const Memory& q, const Memory& k, const Memory& v,
                    const Memory& o, const std::optional<Memory>& lse, bool wanted, int64_t width) {
  require_like("v", v, k.shape, width);
  require_like("o", o, q.shape, width);
  if (!present("lse", lse, wanted)) return;
  require_dtype("lse", *lse, F32);
  q.shape.size() == 3 ? require_shape("lse", *lse, {sizes.heads, q.shape[0]})
                      : require_shape("lse", *lse, {sizes.batch, sizes.heads, sizes.seq});
}

// As the kernels do: lengths that cannot be are cut to what there is room for.
HostSequence::HostSequence(const SequenceConfig& config, const SequenceTensors& t, int64_t sequence)
    : b(sequence), config_(config), table_(t.table) {
  const BatchSizes sizes = batch_sizes(config, t);
  q_len = sizes.seq;
  k_len = sizes.seq_kv;
  const auto packed = [&](const Memory& ends, int64_t& begin, int64_t& length) {
    begin = load_int(ends, {b});
    length = std::clamp<int64_t>(load_int(ends, {b + 1}) - begin, 0, length);
  };
  if (config.varlen) packed(*t.cu_seqlens_q, q_begin, q_len);
  if (config.packed_keys()) packed(*t.cu_seqlens_k, k_begin, k_len);
  if (config.lengths) k_len = std::clamp<int64_t>(load_int(*t.lengths, {b}), 0, k_len);
  start = config.q_start ? load_int(*t.q_start, {b}) : k_len - q_len;
}

int64_t HostSequence::visible_keys(int64_t query, bool causal) const {
  return causal ? std::clamp<int64_t>(start + query + 1, 0, k_len) : k_len;
}

double HostSequence::query(const Memory& tensor, int64_t head, int64_t i, int64_t d) const {
  return config_.varlen ? load_double(tensor, {q_begin + i, head, d})
                        : load_double(tensor, {b, head, i, d});
}

double HostSequence::key(const Memory& tensor, int64_t head, int64_t j, int64_t d) const {
  if (config_.page) {
    const auto page = static_cast<int64_t>(load_double(*table_, {b, j / config_.page}));
    return load_double(tensor, {page, j % config_.page, head, d});
  }
  return config_.packed_keys() ? load_double(tensor, {k_begin + j, head, d})
                               : load_double(tensor, {b, head, j, d});
}

}  // namespace kiln
