#include "ir/layout/conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "ir/error.h"
#include "ir/layout/access.h"
#include "ir/layout/formula.h"
#include "ir/layout/locality.h"
#include "ir/layout/shared.h"

namespace kiln {
namespace {

// Issue slots: a shuffle, a select or byte permute, and what the two barriers of a staged tile
// take.
constexpr int64_t kShuffleCost = 2, kSelectCost = 1, kBarrierCost = 60;

// For a place of `to`, one in `from` that holds the element: in the same thread if there is one,
// else in the same warp, else anywhere. Nothing for padding.
class Sources {
 public:
  Sources(const Layout& from, const Layout& to)
      : from_(from),
        to_(to),
        element_(owner_formula(row_major(to.shape()), Resource::Offset)),
        holders_(static_cast<size_t>(std::accumulate(to.shape().begin(), to.shape().end(),
                                                     int64_t{1}, std::multiplies<>()))) {}

  std::optional<Owner> of(const Owner& place) {
    const Coordinate c = to_.coordinate(place);
    if (!to_.contains(c)) return std::nullopt;
    std::vector<Owner>& holders = holders_[static_cast<size_t>(element_(c))];
    if (holders.empty()) holders = from_.owners(c);
    const auto distance = [&](const Owner& owner) {
      return owner.warp != place.warp ? 2 : owner.lane != place.lane ? 1 : 0;
    };
    return *std::min_element(holders.begin(), holders.end(), [&](const Owner& a, const Owner& b) {
      return distance(a) < distance(b);
    });
  }

 private:
  const Layout& from_;
  const Layout& to_;
  const Formula element_;
  std::vector<std::vector<Owner>> holders_;  // by element, found when first asked for
};

// Adds to the steps of one register of `to` what one lane of one warp needs. False if another
// warp's lane needs something else, for the instructions are the same in every warp.
bool add_need(std::vector<ShuffleStep>& steps, int reg, size_t lane, const Owner& source) {
  const uint32_t bit = uint32_t{1} << lane;
  const auto from_lane = static_cast<uint8_t>(source.lane);
  for (const ShuffleStep& step : steps)
    if (step.takes & bit) return step.from_reg == source.reg && step.source[lane] == from_lane;
  for (ShuffleStep& step : steps) {
    if (step.from_reg != source.reg) continue;
    step.takes |= bit;
    step.source[lane] = from_lane;
    return true;
  }
  ShuffleStep step{reg, static_cast<int>(source.reg), bit, {}};
  std::iota(step.source.begin(), step.source.end(), uint8_t{0});
  step.source[lane] = from_lane;
  steps.push_back(step);
  return true;
}

std::optional<std::vector<ShuffleStep>> shuffle_steps(const Layout& from, const Layout& to) {
  Sources sources(from, to);
  std::vector<ShuffleStep> all;
  for (int64_t reg = 0; reg < to.registers(); ++reg) {
    std::vector<ShuffleStep> steps;
    for (int64_t warp = 0; warp < to.warps(); ++warp)
      for (int64_t lane = 0; lane < to.extent(Resource::Lane); ++lane) {
        const auto source = sources.of({.reg = reg, .lane = lane, .warp = warp});
        if (!source) continue;
        if (source->warp != warp) return std::nullopt;
        if (!add_need(steps, static_cast<int>(reg), static_cast<size_t>(lane), *source))
          return std::nullopt;
      }
    all.insert(all.end(), steps.begin(), steps.end());
  }
  return all;
}

// Steps that read one 32-bit register from the same lanes share its shuffle.
int64_t cost_of(const std::vector<ShuffleStep>& steps, int bytes) {
  const int packed = std::max(1, 4 / bytes), words = std::max(1, bytes / 4);
  std::set<std::pair<int, std::array<uint8_t, 32>>> shuffles;
  for (const ShuffleStep& step : steps)
    if (!step.is_local()) shuffles.insert({step.from_reg / packed, step.source});
  return static_cast<int64_t>(shuffles.size()) * words * kShuffleCost +
         static_cast<int64_t>(steps.size()) * words * kSelectCost / packed;
}

int64_t staging_cost(const Layout& fragment, const Layout& shared, int bytes) {
  if (fragment.rank() == 0) return 1;
  const int axis = fragment.rank() - 1;
  return access_wavefronts(fragment, shared, axis, access_width(fragment, shared, axis, 16 / bytes),
                           bytes);
}

// Rows with the padding, of none to 16 bytes, at which writing and reading cost least.
void stage(Conversion& conversion, const Layout& from, const Layout& to, int bytes) {
  const Coordinate& shape = to.shape();
  std::vector<Layout> candidates{row_major(shape)};
  for (int64_t pad = std::max(4, bytes); shape.size() > 1 && pad <= 16; pad *= 2)
    candidates.push_back(row_major(shape, shape.back() + pad / bytes));
  for (const Layout& shared : candidates) {
    const int64_t cost =
        kBarrierCost + staging_cost(from, shared, bytes) + staging_cost(to, shared, bytes);
    if (conversion.staging && conversion.cost <= cost) continue;
    conversion.staging = shared;
    conversion.cost = cost;
  }
}

}  // namespace

bool ShuffleStep::is_local() const {
  for (size_t lane = 0; lane < source.size(); ++lane)
    if (source[lane] != lane) return false;
  return true;
}

Conversion plan_conversion(const Layout& from, const Layout& to, int bytes) {
  for (const Resource resource : {Resource::Lane, Resource::Warp, Resource::Offset})
    if (from.extent(resource) != to.extent(resource) || from.shape() != to.shape())
      throw InternalError(fmt::format("no conversion from {} to {}", str(from), str(to)));
  Conversion conversion;
  if (from == to) return conversion;

  std::vector<int> axes(to.shape().size());
  std::iota(axes.begin(), axes.end(), 0);
  if (auto moves = local_registers(to, axes, from)) {
    std::vector<int> same(static_cast<size_t>(from.registers()));
    std::iota(same.begin(), same.end(), 0);
    if (*moves == same) return conversion;
    conversion.kind = Conversion::Kind::Registers;
    conversion.registers = *std::move(moves);
    return conversion;
  }
  stage(conversion, from, to, bytes);
  conversion.kind = Conversion::Kind::Shared;
  const auto steps = shuffle_steps(from, to);
  if (steps && cost_of(*steps, bytes) <= conversion.cost) {
    conversion.kind = Conversion::Kind::Shuffle;
    conversion.steps = *steps;
    conversion.cost = cost_of(*steps, bytes);
    conversion.staging.reset();
  }
  return conversion;
}

}  // namespace kiln
