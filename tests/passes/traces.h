// The ways in which a launch may run, each as a list of ops: every loop 0 to 3 times, every branch
// either way, a `loop` left at any of its exits, in its third round at the latest.
#pragma once

#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "ir/kernel.h"

namespace kiln::testing {

struct Step {
  const Op* op;
  int round = 0;  // of a For: this round begins
};
using Trace = std::vector<Step>;

class Traces {
 public:
  // Calls visit(trace) until it gives false. All traces, if there are at most `most`; else as many,
  // half of them at random.
  static void each(const Kernel& kernel, RegionId launch, int most,
                   const std::function<bool(const Trace&)>& visit) {
    Traces traces(kernel);
    bool more = true;
    for (int i = 0; i < most && more; ++i) {
      traces.at_random_ = i >= most / 2;
      traces.next_ = 0;
      traces.trace_.clear();
      traces.region(launch);
      more = visit(traces.trace_) && (traces.at_random_ || traces.advance());
    }
  }

 private:
  explicit Traces(const Kernel& kernel) : kernel_(kernel) {}

  void region(RegionId region) {
    for (OpId id : kernel_.region(region).ops) one(id);
  }

  void one(OpId id) {
    const Op& op = kernel_.op(id);
    if (op.code == OpCode::For) {
      const int rounds = choose(4);
      for (int round = 0; round < rounds; ++round) {
        trace_.push_back({&op, round});
        region(op.regions[0]);
      }
    } else if (op.code == OpCode::If) {
      const auto side = static_cast<size_t>(choose(2));
      if (side < op.regions.size()) region(op.regions[side]);
    } else if (op.code == OpCode::Loop) {
      loop(op.regions[0]);
    } else {
      trace_.push_back({&op});
    }
  }

  // Each round a stretch of the body up to one of its exits, or all of it.
  void loop(RegionId body) {
    std::vector<OpId> exits;
    for (OpId id : kernel_.region(body).ops)
      if (kernel_.op(id).code == OpCode::ExitIf) exits.push_back(id);
    for (int round = 0;; ++round) {
      const auto last = static_cast<size_t>(choose(static_cast<int>(exits.size()) + (round < 2)));
      for (OpId id : kernel_.region(body).ops) {
        if (last < exits.size() && id == exits[last]) return region(kernel_.op(id).regions[0]);
        if (kernel_.op(id).code != OpCode::ExitIf) one(id);
      }
    }
  }

  int choose(int choices) {
    if (at_random_) return static_cast<int>(random_() % static_cast<unsigned>(choices));
    if (next_ == taken_.size()) taken_.push_back({0, choices});
    return taken_[next_++].first;
  }
  // To the next trace in order; false after the last.
  bool advance() {
    while (!taken_.empty() && taken_.back().first + 1 == taken_.back().second) taken_.pop_back();
    if (!taken_.empty()) ++taken_.back().first;
    return !taken_.empty();
  }

  const Kernel& kernel_;
  Trace trace_;
  std::mt19937_64 random_{1};
  bool at_random_ = false;
  std::vector<std::pair<int, int>> taken_;  // choice, of how many
  size_t next_ = 0;
};

}  // namespace kiln::testing
