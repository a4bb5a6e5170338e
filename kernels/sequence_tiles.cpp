#include "kernels/sequence_tiles.h"

#include <numeric>

namespace kiln {
namespace {

Expr i32(int64_t value) {
  return cast(value, I32);
}

Expr begin_of(const std::optional<Tensor>& cu_seqlens, const Expr& b) {
  return cu_seqlens ? Expr((*cu_seqlens)(b)) : i32(0);
}
Expr within(const Expr& length, const Expr& most) {
  return min(max(length, 0), most);
}

Expr given_queries(const SequenceInterface& t, const Expr& b) {
  if (t.c.varlen) return (*t.cu_seqlens_q)(b + 1) - (*t.cu_seqlens_q)(b);
  return t.seq;
}
Expr given_keys(const SequenceInterface& t, const Expr& b) {
  if (t.c.lengths) return (*t.lengths)(b);
  if (t.c.varlen) return (*t.cu_seqlens_k)(b + 1) - (*t.cu_seqlens_k)(b);
  return *t.seq_kv;
}

}  // namespace

SequenceInterface::SequenceInterface(const SequenceConfig& config, bool longest_keys)
    : c(config),
      ends(c.varlen ? std::optional(dim("ends")) : std::nullopt),
      batch(ends ? *ends - 1 : Expr(dim("batch"))) {
  if (c.varlen) {
    tokens.emplace("tokens");
    cu_seqlens_q.emplace(input("cu_seqlens_q", I32, {*ends}));
  }
  if (c.packed_keys()) {
    tokens_kv.emplace("tokens_kv");
    cu_seqlens_k.emplace(input("cu_seqlens_k", I32, {*ends}));
  } else if (c.page) {
    pages.emplace("pages");
    slots.emplace("slots");
    table.emplace(input("table", I32, {batch, *slots}));
  } else if (c.lengths) {
    room.emplace("room");
  } else {
    longest_keys = true;
  }
  if (longest_keys) seq_kv.emplace("seq_kv");
  if (c.lengths) lengths.emplace(input("lengths", I32, {batch}));
  if (c.q_start) q_start.emplace(input("q_start", I32, {batch}));
}

std::vector<Arg> SequenceInterface::query_extents(int64_t width) const {
  if (c.varlen) return {*tokens, heads, width};
  return {batch, heads, seq, width};
}

std::vector<Arg> SequenceInterface::key_extents(int64_t width) const {
  if (c.page) return {*pages, c.page, heads_kv, width};
  if (c.packed_keys()) return {*tokens_kv, heads_kv, width};
  return {batch, heads_kv, room ? *room : *seq_kv, width};
}

Expr SequenceInterface::most_keys() const {
  if (!c.varlen && !c.lengths) return *seq_kv;
  const Expr most = c.page ? *slots * c.page : room ? Expr(*room) : Expr(*tokens_kv);
  return seq_kv ? min(most, *seq_kv) : most;
}

Sequence::Sequence(const SequenceInterface& interface, const Expr& sequence)
    : t(interface),
      b(sequence),
      q_begin(begin_of(t.cu_seqlens_q, b)),
      q_given(given_queries(t, b)),
      k_begin(begin_of(t.cu_seqlens_k, b)),
      k_given(given_keys(t, b)),
      q_len(t.c.varlen ? within(q_given, t.seq) : q_given),
      k_len(ends_inside() ? within(k_given, t.most_keys()) : k_given),
      start(t.c.q_start ? Expr((*t.q_start)(b)) : k_len - q_len) {}

void Sequence::check() const {
  if (t.c.varlen) {
    device_assert(q_given >= 0, "cu_seqlens_q: expected numbers that do not become smaller");
    device_assert(q_given <= t.seq, "cu_seqlens_q: expected no sequence longer than max_seqlen_q");
    device_assert(q_begin >= 0 && q_begin + q_given <= *t.tokens,
                  "cu_seqlens_q: expected no more tokens than q has");
  }
  if (t.c.packed_keys()) {
    device_assert(k_given >= 0, "cu_seqlens_k: expected numbers that do not become smaller");
    device_assert(k_begin >= 0 && k_begin + k_given <= *t.tokens_kv,
                  "cu_seqlens_k: expected no more tokens than k has");
    if (t.seq_kv)
      device_assert(k_given <= *t.seq_kv,
                    "cu_seqlens_k: expected no sequence longer than max_seqlen_k");
  }
  if (t.c.lengths)
    device_assert(k_given >= 0 && k_given <= t.most_keys(),
                  "lengths: expected 0 to the cache's keys");
  if (t.c.q_start)
    device_assert(start >= 0 && start + q_len <= k_len,
                  "q_start: expected 0 or more, with keys for all queries behind it");
  if (!t.c.page) return;
  constexpr int64_t kSlots = 256;
  const Expr used = min(ceildiv(k_len, t.c.page), *t.slots);
  for (auto chunk : serial(ceildiv(used, kSlots)))
    for (auto i : parallel(kSlots)) {
      auto slot = chunk * kSlots + i;
      auto page = (*t.table)(b, select(slot < used, slot, -1));
      device_assert(slot >= used || (page >= 0 && page < *t.pages),
                    "table: expected a page of the cache for each that the sequence has");
    }
}

Expr Sequence::key(const Tensor& k, const Expr& head, const Expr& at, const Expr& d) const {
  if (t.c.packed_keys()) return k(select(at < 0, -1, k_begin + at), head, d);
  if (!t.c.page) return k(b, head, at, d);
  const Expr page = select(at < 0, -1, (*t.table)(b, select(at < 0, -1, at / t.c.page)));
  return k(page, at % t.c.page, head, d);
}

View Sequence::queries(const Tensor& q, const Expr& head, const Expr& first, int64_t rows) const {
  if (t.c.varlen) return q(span(q_begin + first, rows), head, all);
  return q(b, head, span(first, rows), all);
}

// Of the table only what the sequence has is looked at.
void Sequence::load_keys(const Tensor& from, const Expr& head, const Expr& first,
                         const Tile& to) const {
  const int64_t rows = to.shape()[0];
  if (t.c.packed_keys()) return copy(from(span(k_begin + first, rows), head, all), to);
  if (!t.c.page) return copy(from(b, head, span(first, rows), all), to);
  const int64_t piece = std::gcd(t.c.page, rows);
  for (int64_t row = 0; row < rows; row += piece) {
    const Expr key = first + row;
    const Expr page =
        select(key < k_len, (*t.table)(b, select(key < k_len, key / t.c.page, -1)), -1);
    const View keys = from(page, span(key % t.c.page, piece), head, all);
    piece == rows ? copy(keys, to) : copy(keys, to(span(row, piece), all));
  }
}

void Sequence::load_queries(const Tensor& q, const Expr& head, const Apart& some,
                            const Tile& to) const {
  const Span rows = span(some.row, to.shape()[0]), columns = span(some.column, to.shape()[1]);
  if (t.c.varlen)
    return copy(every(q, 0, some.step, q_begin + some.first, q_begin + min(some.end, q_len))(
                    rows, head, columns),
                to);
  copy(every(q, 2, some.step, some.first, min(some.end, q_len))(b, head, rows, columns), to);
}

void Sequence::load_keys(const Tensor& k, const Expr& head, const Apart& some,
                         const Tile& to) const {
  const int64_t count = to.shape()[0];
  const Span rows = span(some.row, count), columns = span(some.column, to.shape()[1]);
  const Expr end = min(some.end, k_len);
  if (t.c.packed_keys())
    return copy(every(k, 0, some.step, k_begin + some.first, k_begin + end)(rows, head, columns),
                to);
  if (!t.c.page) return copy(every(k, 2, some.step, some.first, end)(b, head, rows, columns), to);

  constexpr int64_t kFewest = 16;  // rows that are copied together: of fewer there are too many
  const int64_t of_page = t.c.page / some.step, piece = std::gcd(of_page, count);
  if (t.c.page % some.step != 0 || piece < kFewest) {
    for (auto [i, d] : parallel(count, to.shape()[1])) {
      auto at = some.first + (some.row + i) * some.step;
      to(i, d) = key(k, head, select(at < end, at, -1), some.column + d);
    }
    return;
  }
  for (int64_t row = 0; row < count; row += piece) {
    const Expr at = some.row + row, slot = at / of_page;
    const Expr there = at * some.step < end;
    const Expr page = select(there, (*t.table)(b, select(there, slot, -1)), -1);
    const View keys = every(k, 1, some.step, some.first, end - slot * t.c.page)(
        page, span(at % of_page, piece), head, columns);
    piece == count ? copy(keys, to) : copy(keys, to(span(row, piece), all));
  }
}

void Sequence::store(const Tile& rows, const Tensor& o, const Expr& head, const Expr& first) const {
  const int64_t count = rows.shape()[0], width = rows.shape()[1];
  if (!t.c.varlen) return copy(rows, queries(o, head, first, count));
  when(
      first + count <= q_len, [&] { copy(rows, queries(o, head, first, count)); },
      [&] {  // the next sequence's rows lie behind
        for (auto [i, d] : parallel(count, width))
          o(select(first + i < q_len, q_begin + first + i, -1), head, d) = rows(i, d);
      });
}

void Sequence::store_numbers(const Tile& rows, const Tensor& to, const Expr& head,
                             const Expr& first) const {
  const int64_t count = rows.shape()[0];
  if (!t.c.varlen) return copy(rows, to(b, head, span(first, count)));
  for (auto i : parallel(count))
    to(head, select(first + i < q_len, q_begin + first + i, -1)) = rows(i);
}

}  // namespace kiln
