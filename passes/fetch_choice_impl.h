// How many slots a tile a pipelined loop gets, and which tiles: make_async's choice.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "ir/kernel.h"
#include "passes/fetch_candidates_impl.h"
#include "passes/resources.h"

namespace kiln {

class FetchChoice {
 public:
  // Makes the kernel that fetches the candidates into so many slots; 1: fetches nothing ahead.
  using Rewrite = std::function<Kernel(const FetchCandidates&, int64_t slots)>;
  FetchChoice(const Kernel& kernel, OpId launch, OpId loop, const Rewrite& rewrite);

  const Kernel& kernel() const { return kernel_; }
  const std::string& reason() const { return reason_; }  // in words, for the loop

 private:
  // Slots for some of the tiles, and what they make of the launch.
  struct Attempt {
    int64_t slots = 0;
    size_t tiles = 0;
    Kernel kernel;
    Resources resources;
  };
  void attempt_all(const FetchCandidates& candidates, const Rewrite& rewrite);
  std::vector<OpId> behind_work(const FetchCandidates& candidates) const;
  void explain(size_t tiles);

  const Kernel& before_;
  const OpId launch_, loop_;
  const int64_t wanted_;
  Resources without_;
  std::optional<Attempt> best_;
  std::string refused_, best_refused_;  // why not more, of the last attempt and of the best
  Kernel kernel_;
  std::string reason_;
};

}  // namespace kiln
