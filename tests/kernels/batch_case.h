// One attention problem over a batch of sequences of different lengths, wherever these lie.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "kernels/block_sparse_attention/block_sparse_attention.h"

namespace kiln::test {

// Of one sequence: its queries, and its keys with those.
struct Lengths {
  int64_t q = 0, k = 0;
};

// What a head does: as head_mask_type and streaming_info say.
struct HeadKind {
  int64_t type = 1, sink = 0, local = 0;
};

// Every sequence's q, k and v, a mask and, from them, arguments in the layout that the
// configuration asks for. Wherever no sequence has an element lies NaN, and in tables a page that
// does not exist. Without varlen all sequences have as many queries; without lengths as many keys.
class BatchCase {
 public:
  BatchCase(const AttentionConfig& config, std::vector<Lengths> lengths, int64_t heads,
            int64_t heads_kv, uint64_t seed, double density = 0.5);
  BatchCase(const BatchCase&) = delete;

  // Heads as given, planes for the sparse ones.
  void use(const std::vector<HeadKind>& kinds);
  void use_starts(const std::vector<int64_t>& starts);  // of queries, with q_start
  // Copies what another case, of another layout, has: its first sequence is `first` there.
  void take_elements(const BatchCase& other, size_t first = 0);
  // The same of the queries `done` … of each sequence, which are whole blocks, and the keys in
  // front of their ends.
  void take_chunk(const BatchCase& other, int64_t done);

  // Results hold a mark before the run, so that what is not written shows.
  void run(Device& device);
  // Runs and compares all rows with float64; what no sequence has must be untouched.
  void check(Device& device);
  // Of a sequence, [q, heads, dim_v], after a run.
  std::vector<double> result(size_t sequence) const;
  std::string describe() const;

  AttentionConfig config;
  std::vector<Lengths> lengths;
  int64_t heads, heads_kv;
  AttentionArgs args;  // may be changed by the test
  Array mask;          // bool [batch, planes, rows, cols]

 private:
  // [sequence][token][head][dim], as they were drawn.
  struct Elements {
    std::vector<double> q, k, v;
  };
  void draw(uint64_t seed);
  void make_tensors(uint64_t seed);
  void lay_out();
  void set_mask();
  void copy_mask(const BatchCase& other, size_t first, int64_t first_row);
  size_t place(const Memory& tensor, size_t b, int64_t head, int64_t token, bool is_key) const;

  std::vector<Elements> elements_;
  std::vector<std::vector<int64_t>> pages_;  // of each sequence
  Array q_, k_, v_, o_, lse_, cu_q_, cu_k_, lengths_, table_, starts_, types_, info_;
  BlockLists lists_;
};

}  // namespace kiln::test
