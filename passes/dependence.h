// The one analysis of what depends on what: every pass that moves ops asks it. Effects are those of
// the op table, seen through views and regions; atomics and scalar variables are storage like any.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// Why a later op may not go before an earlier one.
struct Dependence {
  enum class Kind { Value, ReadAfterWrite, WriteAfterRead, WriteAfterWrite };
  Kind kind;
  Value on;  // a result, or the storage
};
// The first that is found, regions included; none if their order does not matter. Asynchronous
// copies under way, barriers and exits are not seen here. `but` for what is done to some storage.
std::optional<Dependence> dependence(const Kernel& kernel, const Op& earlier, const Op& later,
                                     const std::set<Value>& but = {});

// For reasons: "gemm on line 7"; "tensor 'x'".
std::string op_in_words(const Op& op);
std::string storage_in_words(const Kernel& kernel, Value storage);

// All that an op and its regions do to storage, by base.
class Effects {
 public:
  Effects(const Kernel& kernel, const Op& op);

  const Op* writer(Value base) const;  // one that writes or updates it; null if none does
  bool touches(Value base) const { return uses_.contains(base.id); }
  int uses(Value base) const;  // by how many operands it is named

 private:
  struct Use {
    int count = 0;
    const Op* writer = nullptr;
  };
  std::unordered_map<uint32_t, Use> uses_;
};

// The ops inside a loop from which values follow, so that they can be computed for another round:
// pure ops of the loop's index and of what is known outside, and loads of what no round writes.
class RoundSlice {
 public:
  RoundSlice(const Kernel& kernel, const Op& loop, const Effects& effects);

  // Adds what `value` needs. Why it cannot be known before its round, in words; empty if it can.
  std::string add(Value value);
  bool contains(OpId op) const { return op.id < needed_.size() && needed_[op.id]; }

 private:
  std::string why_not(const Op& op) const;

  const Kernel& kernel_;
  const Effects& effects_;
  std::vector<bool> inside_, needed_;  // by op
  std::vector<bool> arguments_;        // by value: of regions in the loop, but for its index
};

}  // namespace kiln
