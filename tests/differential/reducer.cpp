#include "tests/differential/reducer.h"

#include <optional>

#include "ir/builder.h"
#include "ir/error.h"
#include "ir/verify.h"
#include "ir/walk.h"

namespace kiln::differential {
namespace {

// Where an op stands.
struct Place {
  RegionId region;
  size_t position;
};

std::vector<Place> places(const Kernel& kernel) {
  std::vector<Place> found;
  walk_regions(kernel, kernel.body, [&](RegionId region) {
    for (size_t i = 0; i < kernel.region(region).ops.size(); ++i) found.push_back({region, i});
  });
  return found;
}

// The op removed; a scalar result becomes the constant 1.
std::optional<Kernel> without(const Kernel& kernel, Place place) {
  Kernel smaller = kernel;
  auto& ops = smaller.region(place.region).ops;
  OpId id = ops[place.position];
  Value result = smaller.op(id).result;
  if (result && smaller.op(id).code == OpCode::Const) {
    if (use_counts(smaller)[result.id] > 0) return std::nullopt;
  } else if (result && use_counts(smaller)[result.id] > 0) {
    if (!smaller.type(result).is_scalar()) return std::nullopt;
    RegionId scratch = smaller.new_region();
    Builder builder(smaller, scratch);
    builder.loc = smaller.op(id).loc;
    Value one = builder.constant(smaller.type(result).dtype, 1);
    smaller.region(place.region).ops[place.position] = smaller.region(scratch).ops[0];
    replace_uses(smaller, {{result.id, one}});
    return smaller;
  }
  ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(place.position));
  return smaller;
}

// A loop or branch replaced by the ops of one of its regions, its index by 0.
std::optional<Kernel> inlined(const Kernel& kernel, Place place, size_t which) {
  Kernel smaller = kernel;
  OpId id = smaller.region(place.region).ops[place.position];
  OpCode code = smaller.op(id).code;
  if (code != OpCode::For && code != OpCode::Selected && code != OpCode::If) return std::nullopt;
  if (which >= smaller.op(id).regions.size()) return std::nullopt;
  RegionId body = smaller.op(id).regions[which];
  RegionId straight = smaller.new_region();
  Builder builder(smaller, straight);
  ValueMap map;
  for (Value arg : std::vector<Value>(smaller.region(body).args))
    map[arg.id] = builder.constant(I32, 0);
  clone_body(smaller, body, straight, map);
  auto& ops = smaller.region(place.region).ops;
  const auto& inner = smaller.region(straight).ops;
  auto at = ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(place.position));
  ops.insert(at, inner.begin(), inner.end());
  return smaller;
}

bool legal(const Kernel& kernel) {
  try {
    verify(kernel);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// One way to make `best` smaller at a place.
std::optional<Kernel> smaller_at(const Kernel& best, Place place, int way) {
  return way == 0 ? without(best, place) : inlined(best, place, static_cast<size_t>(way - 1));
}

}  // namespace

Kernel reduce(const Kernel& kernel, const std::function<bool(const Kernel&)>& fails) {
  Kernel best = kernel;
  for (bool progress = true; progress;) {
    progress = false;
    std::vector<Place> all = places(best);
    for (size_t i = all.size(); i > 0;) {  // the last ops first: nothing depends on them
      --i;
      for (int way = 0; way < 3; ++way) {
        auto smaller = smaller_at(best, all[i], way);
        if (!smaller || !legal(*smaller) || !fails(*smaller)) continue;
        best = std::move(*smaller);
        all = places(best);
        i = std::min(i, all.size());
        progress = true;
        break;
      }
    }
  }
  return best;
}

}  // namespace kiln::differential
