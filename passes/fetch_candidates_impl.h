// Which copies of a pipelined loop can be fetched ahead, and why not the others: make_async decides
// by it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "passes/dependence.h"
#include "passes/register_staging_impl.h"

namespace kiln {

// A copy that can be fetched ahead.
struct Fetch {
  OpId copy;
  Value tile;
  RegionId region;  // of the copy: the loop's, or that of a guard in it
  // Of the fragment that it waits in; none if it is by cp.async.
  std::optional<Layout> staging;
};

// What one loop fetches ahead, and why not the rest.
class FetchCandidates {
 public:
  // `left_out`: copies that are not to be, and why not.
  FetchCandidates(const Kernel& kernel, OpId launch, OpId loop,
                  std::map<OpId, std::string> left_out = {});

  const std::vector<Fetch>& fetches() const { return fetches_; }
  const std::map<OpId, std::string>& declined() const { return declined_; }
  // Is it needed to know where, or whether, a fetch reads?
  bool needs(OpId op) const { return slice_.contains(op); }
  bool guards(OpId op) const { return guards_.contains(op); }

 private:
  void survey(RegionId region, const std::string& why_not);
  void consider(OpId id, RegionId region, std::string why);
  std::string why_not_tile(OpId id, RegionId region) const;
  std::string why_not_source(const Op& copy);

  const Kernel& kernel_;
  const Op& launch_;
  const Op& loop_;
  const Effects in_loop_, in_launch_;
  StagingRoom room_;
  RoundSlice slice_;
  const std::map<OpId, std::string> left_out_;
  std::set<Value> reshaped_;
  std::vector<OpId> ifs_;  // around what is looked at
  std::vector<Fetch> fetches_;
  std::map<OpId, std::string> declined_;
  std::set<OpId> guards_;
};

}  // namespace kiln
