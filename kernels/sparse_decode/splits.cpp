#include "kernels/sparse_decode/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ir/error.h"
#include "kernels/access.h"

namespace kiln {

int64_t split_rule(const SplitShape& s) {
  constexpr int64_t kL2 = 50 << 20;  // bytes of cache that a kv head should not exceed
  const int64_t gpu = s.multiprocessors;
  if (5 * s.tiles >= 4 * gpu) {
    const bool streams = s.bytes > kL2 && s.query_tiles >= 2 * gpu && !s.causal_or_local;
    return streams ? std::min((s.bytes + kL2 - 1) / kL2, s.most) : 1;
  }
  if (s.blocks <= 4) return 1;
  const int64_t most = std::min({s.most, gpu, s.blocks});
  const auto efficiency = [&](int64_t splits) {
    const double waves = static_cast<double>(s.tiles * splits) / static_cast<double>(gpu);
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (int64_t splits = 1; splits <= most; ++splits) best = std::max(best, efficiency(splits));
  int64_t splits = 1;
  while (splits < most && efficiency(splits) < 0.85 * best) ++splits;
  return splits;
}

namespace {

void require_parts(const std::vector<LsePart>& parts) {
  if (parts.empty()) throw UserError("lse_merge: expected at least one part");
  const Shape &o = parts[0].o.shape, &lse = parts[0].lse.shape;
  for (size_t n = 0; n < parts.size(); ++n) {
    const Memory &one = parts[n].o, &its = parts[n].lse;
    if (one.shape.size() != 2 || its.shape.size() != 1 || its.shape[0] != one.shape[0])
      throw UserError(
          fmt::format("lse_merge: part {}: expected o [rows, dim_v] and lse [rows], got {} and {}",
                      n, str(one.shape), str(its.shape)));
    if (one.shape != o || its.shape != lse)
      throw UserError(fmt::format("lse_merge: part {}: expected the shape of part 0, {}, got {}", n,
                                  str(o), str(one.shape)));
    if (!is_float(one.dtype) || !is_float(its.dtype))
      throw UserError(fmt::format("lse_merge: part {}: expected floats, got {} and {}", n,
                                  name(one.dtype), name(its.dtype)));
  }
}

template <class Change>
void change(Array& lse, const Change& each) {
  if (lse.dtype() != F32)
    throw UserError(fmt::format("lse: expected dtype f32, got {}", name(lse.dtype())));
  for (float& value : lse.span<float>()) value = each(value);
}

}  // namespace

Merged lse_merge(const std::vector<LsePart>& parts) {
  require_parts(parts);
  const int64_t rows = parts[0].o.shape[0], width = parts[0].o.shape[1];
  Merged merged{Array(F32, {rows, width}), Array(F32, {rows})};
  for (int64_t row = 0; row < rows; ++row) {
    double top = -INFINITY, total = 0;
    for (const LsePart& part : parts) top = std::max(top, load_double(part.lse, {row}));
    std::vector<double> sum(static_cast<size_t>(width), 0);
    for (const LsePart& part : parts) {
      const double lse = load_double(part.lse, {row});
      if (lse == -INFINITY) continue;  // whatever its o holds
      const double weight = std::exp(lse - top);
      total += weight;
      for (int64_t d = 0; d < width; ++d)
        sum[static_cast<size_t>(d)] += weight * load_double(part.o, {row, d});
    }
    for (int64_t d = 0; d < width && total > 0; ++d)
      merged.o.set(row * width + d, sum[static_cast<size_t>(d)] / total);
    merged.lse.set(row, total > 0 ? top + std::log(total) : -INFINITY);
  }
  return merged;
}

void lse_to_base2(Array& lse) {
  change(lse, [](float value) { return value * std::numbers::log2e_v<float>; });
}
void lse_from_base2(Array& lse) {
  change(lse, [](float value) { return value * std::numbers::ln2_v<float>; });
}
void lse_empty_to_plus_infinity(Array& lse) {
  change(lse, [](float value) { return value == -INFINITY ? INFINITY : value; });
}
void lse_empty_from_plus_infinity(Array& lse) {
  change(lse, [](float value) { return value == INFINITY ? -INFINITY : value; });
}

}  // namespace kiln
