// Queries and keys for the kernels of XAttention: in batches, packed, in a cache or in pages,
// poison wherever no token is.
#pragma once

#include <optional>
#include <random>
#include <vector>

#include "kernels/antidiag_scores/antidiag_scores.h"
#include "runtime/array.h"

namespace kiln::test {

struct SequenceSizes {
  int64_t queries = 0, keys = 0, start = 0;  // start: of q_start alone
};

struct CellCase {
  AntidiagConfig config;
  std::vector<SequenceSizes> sequences;  // without varlen all of the first one's lengths
  int64_t heads, heads_kv;
  Array q, k, cu_q, cu_k, starts, lengths, table;

  CellCase(const AntidiagConfig& config, std::vector<SequenceSizes> sequences, int64_t heads,
           int64_t heads_kv, std::mt19937_64& random);

  int64_t batch() const { return static_cast<int64_t>(sequences.size()); }
  int64_t seq() const;  // the longest
  int64_t seq_kv() const;
  int64_t cells(int64_t tokens) const { return (tokens + config.stride - 1) / config.stride; }
  CellArgs args();
  Arguments arguments();
  std::map<std::string, std::string> settings() const;
  std::string describe() const;
  // Element of q or k of a sequence's token; may be set.
  int64_t at_q(int64_t b, int64_t head, int64_t token, int64_t d) const;
  int64_t at_k(int64_t b, int64_t head, int64_t token, int64_t d) const;
};

// Some sequences, empty ones too: of one length unless varlen.
std::vector<SequenceSizes> random_sequences(const AntidiagConfig& config, int64_t batch,
                                            int64_t longest, std::mt19937_64& random);

}  // namespace kiln::test
