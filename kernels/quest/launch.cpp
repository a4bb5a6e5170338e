// The callables: what their signatures do not say is checked, then they launch.
#include <fmt/format.h>

#include <cmath>

#include "ir/error.h"
#include "kernels/argument_checks.h"
#include "kernels/quest/quest.h"

namespace kiln {

CallScalars<1> QuestScoreInterface::scalars(const Config& config, const Args& args) {
  const double usual = 1 / std::sqrt(static_cast<double>(config.head_dim));
  return {{{Scalar::of_float(F32, args.scale ? double{*args.scale} : usual)}}};
}

void QuestScoreInterface::check(const Config&, const Args& args) {
  require_rank("q", args.q, 3, "batch, heads, dim");
  require_rank("kmin", args.kmin, 4, "batch, blocks, heads_kv, dim");
  const int64_t heads = args.q.shape[1], heads_kv = args.kmin.shape[2];
  if (heads_kv == 0 ? heads != 0 : heads % heads_kv != 0)
    throw UserError(fmt::format("q: expected heads that are a multiple of heads_kv {}, got {}",
                                heads_kv, heads));
}

MinmaxPool minmax_pool(Device& device, const QuestConfig& config) {
  return {device_for(device, config.target), validated(config)};
}

QuestScore quest_score(Device& device, const QuestConfig& config) {
  return {device_for(device, config.target), validated(config)};
}

}  // namespace kiln
