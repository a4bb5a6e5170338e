// A small seeded random source with the draws that program generation needs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace kiln::differential {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, static_cast<int64_t>(from.size()) - 1))];
  }
  template <class T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[between(0, static_cast<int64_t>(from.size()) - 1)];
  }
  // The place of one of the weights, drawn with their probabilities.
  size_t weighted(const std::vector<int>& weights) {
    int64_t all = 0;
    for (int weight : weights) all += weight;
    int64_t left = between(1, all);
    size_t at = 0;
    while ((left -= weights[at]) > 0) ++at;
    return at;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace kiln::differential
