#include "passes/fragment_registers.h"

#include <algorithm>
#include <map>

#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/dependence.h"
#include "passes/gpu_target.h"
#include "passes/memory_plan_impl.h"

namespace kiln {
namespace {

// What is beside fragments: addresses, operands of the instruction at work, scalars. Of attention
// in several shapes ptxas takes 30 to 80 more than the fragments.
constexpr int64_t kBeside = 56;
// Two gemms side by side have their operands in registers at once. With less, attention of head
// dimension 128 in tiles of 64 x 64 would be let in, of which some forms spill.
constexpr int64_t kSecondGemm = 48;

int64_t registers_of(const Kernel& kernel, Value tile) {
  const auto layout = tile_layout(kernel, tile);
  const auto bytes = static_cast<int64_t>(size_of(kernel.type(tile).dtype));
  return layout ? (layout->registers() * bytes + 3) / 4 : 1;
}

// From when to when a fragment is needed; two moments a step, as what a parallel reads last makes
// room for what it writes.
struct Life {
  int64_t first, last;
};

class Lives {
 public:
  Lives(const Kernel& kernel, OpId launch, OpId loop, const std::vector<RoundStep>& steps,
        const std::vector<Value>& twice)
      : kernel_(kernel),
        in_launch_(kernel, kernel.op(launch)),
        in_loop_(kernel, kernel.op(loop)),
        end_(2 * static_cast<int64_t>(steps.size())) {
    for (size_t at = 0; at < steps.size(); ++at) note(steps[at], 2 * static_cast<int64_t>(at));
    for (auto& [key, life] : lives_) {
      const auto& [tile, ahead] = key;
      const bool two = std::find(twice.begin(), twice.end(), tile) != twice.end();
      if (ahead && two) life.last = end_;
      if (!ahead && two && lives_.contains({tile, true})) life.first = 0;
      if (in_launch_.uses(tile) != in_loop_.uses(tile)) life = {0, end_};
    }
  }

  int64_t most() const {
    int64_t most = 0;
    for (int64_t now = 0; now <= end_; ++now) {
      int64_t sum = 0;
      for (const auto& [key, life] : lives_)
        if (life.first <= now && now <= life.last) sum += registers_of(kernel_, key.first);
      most = std::max(most, sum);
    }
    return most;
  }

 private:
  void note(const RoundStep& step, int64_t now) {
    const Op& op = kernel_.op(step.op);
    for (const Access& access : accesses_deep(kernel_, op)) {
      if (kernel_.type(access.base).space != Space::Fragment) continue;
      const bool reads = access.effect == Effect::Read || op.code != OpCode::Parallel;
      const auto [found, is_new] =
          lives_.try_emplace({access.base, step.ahead}, Life{reads ? now : now + 1, now + 1});
      Life& life = found->second;
      life.first = std::min(life.first, reads ? now : now + 1);
      const bool only_reads = access.effect == Effect::Read && op.code == OpCode::Parallel;
      life.last = is_new && only_reads ? now : std::max(life.last, only_reads ? now : now + 1);
    }
  }

  const Kernel& kernel_;
  const Effects in_launch_, in_loop_;
  const int64_t end_;
  std::map<std::pair<Value, bool>, Life> lives_;
};

}  // namespace

int64_t registers_of_round(const Kernel& kernel, OpId launch, OpId loop,
                           const std::vector<RoundStep>& steps, const std::vector<Value>& twice) {
  const bool ahead = std::ranges::any_of(steps, &RoundStep::ahead);
  return Lives(kernel, launch, loop, steps, twice).most() + kBeside + (ahead ? kSecondGemm : 0);
}

int64_t blocks_at_once(const Kernel& kernel, OpId launch, int64_t registers) {
  const GpuTarget& gpu = gpu_target(kernel.target);
  const int64_t threads = 32 * std::max<int64_t>(kernel.op(launch).integer("warps"), 1);
  const int64_t whole = (registers + 7) / 8 * 8;  // given out by eights
  const int64_t shared = shared_plan(kernel, launch).bytes + GpuTarget::kSharedPerBlockReserved;
  return std::min({GpuTarget::kRegistersPerMultiprocessor / (threads * whole),
                   gpu.shared_per_multiprocessor / shared, gpu.threads_per_multiprocessor / threads,
                   int64_t{gpu.blocks_per_multiprocessor}});
}

}  // namespace kiln
