#include "ir/layout/banks.h"

#include <algorithm>
#include <array>
#include <vector>

namespace kiln {
namespace {

constexpr int64_t kBanks = 32;
constexpr int64_t kWord = 4;

// Calls `part` with the addresses of the lanes that are served together.
template <typename Part>
void for_each_part(std::span<const int64_t> addresses, int64_t bytes, Part part) {
  const auto lanes = static_cast<size_t>(32 / std::max<int64_t>(1, bytes / kWord));
  for (size_t first = 0; first < addresses.size(); first += lanes)
    part(addresses.subspan(first, std::min(lanes, addresses.size() - first)));
}

}  // namespace

int64_t wavefronts(std::span<const int64_t> addresses, int64_t bytes) {
  int64_t sum = 0;
  std::vector<int64_t> words;
  for_each_part(addresses, bytes, [&](std::span<const int64_t> part) {
    words.clear();
    for (const int64_t address : part)
      for (int64_t byte = 0; address != kInactive && byte < bytes; byte += kWord)
        words.push_back((address + byte) / kWord);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    std::array<int64_t, kBanks> load{};
    for (const int64_t word : words) ++load[static_cast<size_t>(word % kBanks)];
    sum += *std::max_element(load.begin(), load.end());
  });
  return sum;
}

int64_t least_wavefronts(std::span<const int64_t> addresses, int64_t bytes) {
  int64_t sum = 0;
  for_each_part(addresses, bytes, [&](std::span<const int64_t> part) {
    sum += std::any_of(part.begin(), part.end(), [](int64_t a) { return a != kInactive; });
  });
  return sum;
}

}  // namespace kiln
