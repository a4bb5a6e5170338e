// A batch of sequences inside a kernel: the tensors that say where they lie, and tiles of one
// sequence's queries and keys. See sequences.h.
#pragma once

#include <optional>
#include <vector>

#include "dsl/dsl.h"
#include "kernels/sequences.h"

namespace kiln {

struct SequenceInterface {
  SequenceConfig c;
  std::optional<Dim> ends;  // of cu_seqlens: one more than sequences
  Expr batch;
  Dim heads = dim("heads"), heads_kv = dim("heads_kv"), seq = dim("seq");
  std::optional<Dim> seq_kv, room, tokens, tokens_kv, pages, slots;
  std::optional<Tensor> cu_seqlens_q, cu_seqlens_k, lengths, table, q_start;

  // With `longest_keys` there is always a dim seq_kv: no sequence has more keys.
  explicit SequenceInterface(const SequenceConfig& config, bool longest_keys = false);
  std::vector<Arg> query_extents(int64_t width) const;  // of q and o
  std::vector<Arg> key_extents(int64_t width) const;    // of k and v
  Expr most_keys() const;                               // that a sequence may have
};

struct Sequence {
  Sequence(const SequenceInterface& interface, const Expr& b);
  // Ends the run with an error if what the device was given is no batch of sequences.
  void check() const;

  const SequenceInterface& t;
  Expr b, q_begin, q_given, k_begin, k_given;  // lengths as given
  Expr q_len, k_len, start;                    // no longer than there is room

  // May a tile of keys reach beyond the sequence's end and yet be inside of the tensor?
  bool ends_inside() const { return t.c.varlen || t.c.lengths; }
  // An element; 0 where `at` is negative.
  Expr key(const Tensor& k, const Expr& head, const Expr& at, const Expr& d) const;
  // Rows first … of a head; beyond the sequence's end, what is there.
  View queries(const Tensor& q, const Expr& head, const Expr& first, int64_t rows) const;
  void load_keys(const Tensor& from, const Expr& head, const Expr& first, const Tile& to) const;
  // Of the tokens first, first + step, … below `end`, no later than the sequence's: those numbered
  // row …, and of each the elements column …. 0 where there is none.
  struct Apart {
    int step;
    Expr first, end, row, column;
  };
  void load_queries(const Tensor& q, const Expr& head, const Apart& some, const Tile& to) const;
  void load_keys(const Tensor& k, const Expr& head, const Apart& some, const Tile& to) const;
  // As many as the sequence has, of a tile of rows first …
  void store(const Tile& rows, const Tensor& o, const Expr& head, const Expr& first) const;
  // The same of numbers, a row each: [batch, heads, seq], or [heads, tokens].
  void store_numbers(const Tile& rows, const Tensor& to, const Expr& head, const Expr& first) const;
};

}  // namespace kiln
