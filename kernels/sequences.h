// Where the queries and keys of a batch of sequences lie: in one rectangle, packed one behind
// another, or, of keys, in a cache, which may be paged. What kernels over such batches have in
// common: the words of their configurations and arguments, the checks, and float64's view of them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

#include "kernels/argument_checks.h"
#include "kernels/library_function.h"

namespace kiln {

// q [batch, heads, seq, dim] and k [batch, heads_kv, seq_kv, dim], or
// varlen: q [tokens, heads, dim] and k [tokens_kv, heads_kv, dim], cu_seqlens_q and _k i32 [batch +
//   1]: sequence b has the tokens cu_seqlens[b] … cu_seqlens[b + 1] − 1;
// lengths: keys are in a cache [batch, heads_kv, seq_kv, dim], of which sequence b has the first
//   lengths[b] (i32 [batch]), those of this call's queries, too;
// page: that cache is [pages, page, heads_kv, dim], and key j of sequence b is row j % page of page
//   table[b, j / page] (i32 [batch, slots]).
// Query i stands at position start + i: `start` is keys − queries (bottom-right) or, with q_start,
// as given (i32 [batch]).
struct SequenceConfig {
  bool varlen = false, lengths = false;
  int64_t page = 0;
  bool q_start = false;

  bool packed_keys() const { return varlen && !lengths; }
};
// UserError for a page that is none.
void check_page(int64_t page);

struct SequenceTensors {
  const Memory *q = nullptr, *k = nullptr;
  const Memory *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr, *lengths = nullptr,
               *table = nullptr, *q_start = nullptr;  // null: not given
  std::optional<int64_t> max_seqlen_q, max_seqlen_k;
};
// Of arguments that have fields of these names.
template <class Args>
SequenceTensors sequence_tensors(const Args& args) {
  return {&args.q,
          &args.k,
          given(args.cu_seqlens_q),
          given(args.cu_seqlens_k),
          given(args.lengths),
          given(args.table),
          given(args.q_start),
          args.max_seqlen_q,
          args.max_seqlen_k};
}

// Copies the fields of arguments that say where sequences lie.
template <class From, class To>
void take_sequences(const From& from, To& to) {
  to.cu_seqlens_q = from.cu_seqlens_q;
  to.cu_seqlens_k = from.cu_seqlens_k;
  to.lengths = from.lengths;
  to.table = from.table;
  to.q_start = from.q_start;
  to.max_seqlen_q = from.max_seqlen_q;
  to.max_seqlen_k = from.max_seqlen_k;
}

// The longest queries and keys: what the caller says, where shapes do not.
struct BatchSizes {
  int64_t batch = 0, heads = 0, heads_kv = 0, seq = 0, seq_kv = 0;
};
// UserError naming the argument, what was expected and what came, q's and k's last axes too.
BatchSizes check_sequences(const SequenceConfig& config, const SequenceTensors& tensors,
                           int64_t head_dim);
// Of a checked call.
BatchSizes batch_sizes(const SequenceConfig& config, const SequenceTensors& tensors);
// The dims seq and seq_kv of a call to a kernel that has both, where no tensor tells them.
UpTo<int64_t, 2> longest_sequences(const SequenceConfig& config, const SequenceTensors& tensors);
// Of an attention whose q and k are checked: v as k but `width` wide, o as q but so wide, lse f32
// [batch, heads, seq] or, varlen, [heads, tokens] if it is `wanted`.
void check_attended(const BatchSizes& sizes, const Memory& q, const Memory& k, const Memory& v,
                    const Memory& o, const std::optional<Memory>& lse, bool wanted, int64_t width);

// Sequence b of a call whose tensors are in host memory.
struct HostSequence {
  HostSequence(const SequenceConfig& config, const SequenceTensors& tensors, int64_t b);

  int64_t b, q_begin = 0, q_len, k_begin = 0, k_len, start;
  int64_t visible_keys(int64_t query, bool causal) const;  // keys 0 … n − 1 are visible
  double query(const Memory& tensor, int64_t head, int64_t i, int64_t d) const;
  double key(const Memory& tensor, int64_t head, int64_t j, int64_t d) const;

 private:
  SequenceConfig config_;
  const Memory* table_;
};

}  // namespace kiln
