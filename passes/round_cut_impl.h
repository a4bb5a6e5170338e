// A round of a loop cut in two: the head, a gemm with all that it needs, can be computed while the
// round before is not done with its tail, the rest, in which another gemm needs what the first
// gives. pipeline_gemms decides by it.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "passes/dependence.h"

namespace kiln {

class RoundCut {
 public:
  // Free: without effects, computed wherever it is needed. Fetch: an `if` around pushes, which is
  // split by channel. Commit: once in each round.
  enum class Part { Free, Head, Tail, Fetch, Commit };

  RoundCut(const Kernel& kernel, OpId launch, OpId loop);

  OpId gemm() const { return gemm_; }  // of the head; none if no gemm needs another's result
  const std::string& why_not() const { return why_not_; }  // empty if the loop can be cut

  const std::vector<OpId>& ops() const { return ops_; }  // of the body
  Part part(size_t at) const { return parts_[at]; }
  bool is_free(OpId op) const;  // at the top of the body
  // Are the channel's slots popped by the head?
  bool is_early(Value channel) const { return early_.contains(channel); }
  // Fragments that both parts use: two rounds have one each.
  const std::vector<Value>& twice() const { return twice_; }
  // ops()[0 … top-1] fetch; what of the head comes after goes best before the tail's start().
  size_t top() const { return top_; }
  size_t start() const { return start_; }
  bool reads_tensors() const;  // by ops of the head

 private:
  const Op& op(size_t at) const { return kernel_.op(ops_[at]); }
  void find_gemms();
  std::string cut();
  std::string classify();
  std::string classify(size_t at);
  void make_head();
  void add_to_head(size_t at);
  std::string take_channels();
  std::string check();
  std::string check(size_t tail, size_t head);
  std::string why_not_twice(Value tile) const;
  void find_start();
  bool is_pushing(const Op& op) const;
  Value channel_at(const Op& op) const;
  void each_source(const Op& op, const std::function<void(size_t)>& visit) const;
  bool uses_result(const Op& op, size_t of) const;

  const Kernel& kernel_;
  const Op& loop_;
  const Effects in_loop_, in_launch_;
  std::vector<OpId> ops_;
  std::map<OpId, size_t> at_;
  std::vector<Part> parts_;
  OpId gemm_, second_;
  std::set<Value> early_, apart_;  // apart_: storage of which the two parts need not be in order
  std::set<Value> viewed_;         // tiles that have views
  std::vector<Value> twice_;
  size_t top_ = 0, start_ = 0;
  std::string why_not_;
};

}  // namespace kiln
