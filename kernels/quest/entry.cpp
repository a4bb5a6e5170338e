#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/quest/quest.h"

namespace kiln {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void require(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError(fmt::format("{}: expected {} to {}, got {}", field, low, high, value));
}

QuestConfig config_of(const Options& options) {
  QuestConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16, F32});
  config.head_dim = options.integer("head_dim");
  config.block = options.integer("block");
  return validated(config);
}
QuestConfig score_config(const Options& options) {
  QuestConfig config = config_of(options);
  config.local = options.integer("local");
  return validated(config);
}

std::vector<OptionInfo> options() {
  return {{"dtype", "f16", "f16, bf16 or f32", "element type of keys and queries"},
          {"head_dim", "128", "1 to 512", "head dimension"},
          {"block", "16", "1 to 256", "keys of a block"}};
}

// Keys of a sequence that are there.
int64_t length_of(const Bindings& bindings, int64_t b, int64_t room) {
  const auto length = static_cast<int64_t>(load_double(bindings.tensors.at("lengths"), {b}));
  return std::min(std::max<int64_t>(length, 0), room);
}

ReferenceResults pool_reference(const QuestConfig& c, const Bindings& bindings) {
  const Memory& k = bindings.tensors.at("k");
  const int64_t batch = k.shape[0], room = k.shape[1], heads = k.shape[2];
  const int64_t blocks = (room + c.block - 1) / c.block;
  std::vector<double> least, most;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t block = 0; block < blocks; ++block)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < c.head_dim; ++d) {
          const int64_t end = std::min(length_of(bindings, b, room), (block + 1) * c.block);
          double low = kInfinity, high = -kInfinity;
          for (int64_t key = block * c.block; key < end; ++key) {
            low = std::fmin(low, load_double(k, {b, key, h, d}));
            high = std::fmax(high, load_double(k, {b, key, h, d}));
          }
          const bool is_empty = block * c.block >= end;
          least.push_back(is_empty ? 0 : low);
          most.push_back(is_empty ? 0 : high);
        }
  return {{"kmin", std::move(least)}, {"kmax", std::move(most)}};
}

ReferenceResults score_reference(const QuestConfig& c, const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  const Memory &q = tensors.at("q"), &kmin = tensors.at("kmin"), &kmax = tensors.at("kmax");
  const int64_t batch = kmin.shape[0], blocks = kmin.shape[1], heads = kmin.shape[2];
  const double scale = bindings.params.at("scale").f;
  std::vector<double> scores;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t group = q.shape[1] / heads;
      const int64_t filled = (length_of(bindings, b, blocks * c.block) + c.block - 1) / c.block;
      for (int64_t block = 0; block < blocks; ++block) {
        double score = 0;
        for (int64_t d = 0; d < c.head_dim && block + c.local < filled; ++d) {
          double mean = 0;
          for (int64_t g = 0; g < group; ++g) mean += load_double(q, {b, h * group + g, d});
          mean *= scale / static_cast<double>(group);
          score += std::max(mean * load_double(kmin, {b, block, h, d}),
                            mean * load_double(kmax, {b, block, h, d}));
        }
        scores.push_back(block >= filled             ? -kInfinity
                         : block + c.local >= filled ? kInfinity
                                                     : score);
      }
    }
  return {{"scores", std::move(scores)}};
}

double bytes_of(const Bindings& bindings, const char* tensor) {
  const Memory& memory = bindings.tensors.at(tensor);
  return static_cast<double>(count(memory.shape)) * static_cast<double>(size_of(memory.dtype));
}

}  // namespace

QuestConfig validated(const QuestConfig& config) {
  if (config.dtype != F16 && config.dtype != BF16 && config.dtype != F32)
    throw UserError(fmt::format("dtype: expected f16, bf16 or f32, got {}", name(config.dtype)));
  require("head_dim", config.head_dim, 1, 512);
  require("block", config.block, 1, 256);
  require("local", config.local, 0, std::numeric_limits<int32_t>::max());
  return config;
}

KernelEntry minmax_pool_entry() {
  KernelEntry entry;
  entry.name = "minmax_pool";
  entry.summary = "kmin, kmax: the elementwise extremes of each block of a cache's keys";
  entry.options = options();
  entry.build = [](const Options& options, std::string_view) {
    return minmax_pool_kernel(config_of(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options&, const Bindings&) {};
  entry.reference = [](const Options& options, const Bindings& bindings) {
    return pool_reference(config_of(options), bindings);
  };
  entry.work = [](const Options&, const Bindings& bindings) {
    const double bytes = bytes_of(bindings, "k");
    return Work{2 * static_cast<double>(count(bindings.tensors.at("k").shape)),
                bytes + bytes_of(bindings, "kmin") + bytes_of(bindings, "kmax")};
  };
  return entry;
}

KernelEntry quest_score_entry() {
  KernelEntry entry;
  entry.name = "quest_score";
  entry.summary = "how much any key of a block can score at most, by the block's extremes";
  entry.options = options();
  entry.options.push_back({"local", "1", "0 or more", "blocks at a sequence's end that get +inf"});
  entry.build = [](const Options& options, std::string_view) {
    return quest_score_kernel(score_config(options));
  };
  entry.default_params = [](const Options& options) {
    const double scale = 1 / std::sqrt(static_cast<double>(config_of(options).head_dim));
    return std::map<std::string, Scalar>{{"scale", Scalar::of_float(F32, scale)}};
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const auto& tensors = bindings.tensors;
    QuestScoreInterface::check(score_config(options),
                               {tensors.at("q"), tensors.at("kmin"), tensors.at("kmax"),
                                tensors.at("lengths"), tensors.at("scores")});
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    return score_reference(score_config(options), bindings);
  };
  entry.work = [](const Options&, const Bindings& bindings) {
    const auto elements = static_cast<double>(count(bindings.tensors.at("kmin").shape));
    return Work{4 * elements, bytes_of(bindings, "kmin") + bytes_of(bindings, "kmax") +
                                  bytes_of(bindings, "q") + bytes_of(bindings, "scores")};
  };
  return entry;
}

}  // namespace kiln
