// Slots take shared memory, and blocks that find none on a multiprocessor are warps that hide no
// latency. So the choice is, in this order:
//
//   1. As many slots as wanted, or fewer, that leave all warps; those beyond 12, three for each
//      scheduler, are not missed.
//   2. The most warps that are left by two slots or more, with all tiles; or, if it leaves more,
//      without those whose copy stands behind a gemm in its round: it travels while that works.
//   3. None, unless that is at least 8 warps, or all there are: a fetch hides what a second block
//      of 8 would, but a lone block of 4 waits at each barrier with nothing else to run.
#include "passes/fetch_choice_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kPlentyOfWarps = 12;
constexpr int64_t kEnoughWarps = 8;

int64_t warps(const Resources& resources) {
  return std::min(resources.resident_warps(), kPlentyOfWarps);
}

}  // namespace

FetchChoice::FetchChoice(const Kernel& kernel, OpId launch, OpId loop, const Rewrite& rewrite)
    : before_(kernel),
      launch_(launch),
      loop_(loop),
      wanted_(kernel.op(loop).integer("stages")),
      without_(predict_resources(kernel, launch)) {
  const FetchCandidates all(kernel, launch, loop);
  const size_t tiles = all.fetches().size();
  if (tiles > 0) attempt_all(all, rewrite);
  std::map<OpId, std::string> left_out;
  std::vector<OpId> late = behind_work(all);
  while (!late.empty() && left_out.size() + 1 < tiles &&
         (!best_ || warps(best_->resources) < warps(without_))) {
    left_out[late.back()] = refused_ + "; it travels behind the gemm before it";
    late.pop_back();
    attempt_all(FetchCandidates(kernel, launch, loop, left_out), rewrite);
  }
  if (best_ && warps(best_->resources) < std::min(warps(without_), kEnoughWarps)) best_.reset();
  kernel_ = best_ ? std::move(best_->kernel) : rewrite(all, 1);
  explain(tiles);
}

// From many slots to few, until one leaves all warps; the better one is kept.
void FetchChoice::attempt_all(const FetchCandidates& candidates, const Rewrite& rewrite) {
  const GpuTarget& target = gpu_target(before_.target);
  for (int64_t slots = wanted_; slots >= 2; --slots) {
    Kernel kernel = rewrite(candidates, slots);
    const Resources resources = predict_resources(kernel, launch_);
    const bool fits = resources.shared <= target.shared_per_block;
    if (fits && (!best_ || warps(resources) > warps(best_->resources))) {
      best_ = {slots, candidates.fetches().size(), std::move(kernel), resources};
      best_refused_ = refused_;
    }
    if (fits && warps(resources) >= warps(without_)) return;
    refused_ = fits ? fmt::format("{} slots a tile would leave {}, instead of {}", slots,
                                  resources.text(), without_.text())
                    : fmt::format("{} slots a tile would need {} bytes of shared memory, {} has {}",
                                  slots, resources.shared, target.name, target.shared_per_block);
  }
}

// The copies that issue_copies_early lets travel behind a gemm of their region, in its order.
std::vector<OpId> FetchChoice::behind_work(const FetchCandidates& candidates) const {
  std::vector<OpId> late;
  for (const Fetch& fetch : candidates.fetches()) {
    if (before_.op(fetch.copy).word("instruction") != "cp_async") continue;
    for (OpId id : before_.region(fetch.region).ops) {
      if (id == fetch.copy) break;
      if (before_.op(id).code != OpCode::Gemm) continue;
      late.push_back(fetch.copy);
      break;
    }
  }
  return late;
}

void FetchChoice::explain(size_t tiles) {
  if (tiles == 0) {
    reason_ = "not fetched ahead: no copy can be fetched ahead";
  } else if (!best_) {
    reason_ = "not fetched ahead: " + refused_;
  } else {
    reason_ = fmt::format("fetches {} round{} ahead, into {} slots", best_->slots - 1,
                          best_->slots == 2 ? "" : "s", best_->slots);
    if (best_->tiles < tiles) reason_ += fmt::format(", {} of {} tiles", best_->tiles, tiles);
    if (!best_refused_.empty()) reason_ += ": " + best_refused_;
    if (best_->resources.resident_warps() < without_.resident_warps())
      reason_ +=
          fmt::format("; leaves {}, instead of {}", best_->resources.text(), without_.text());
  }
}

}  // namespace kiln
