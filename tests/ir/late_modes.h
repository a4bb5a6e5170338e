// The ways to run a kernel of the late IR that must all give one result.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ir/interp.h"

namespace kiln::test {

// Eager and lazy with blocks and agents in both orders, and `seeds` random orders.
inline std::vector<InterpOptions> all_modes(uint64_t seeds) {
  using Async = InterpOptions::Async;
  std::vector<InterpOptions> modes;
  for (bool reverse : {false, true})
    for (Async async : {Async::Eager, Async::Lazy})
      modes.push_back({.reverse_blocks = reverse, .reverse_agents = reverse, .async = async});
  for (uint64_t seed = 1; seed <= seeds; ++seed)
    modes.push_back({.async = Async::Random, .seed = seed});
  return modes;
}

inline std::string described(const InterpOptions& options) {
  return fmt::format("mode {}, reversed {}, seed {}", static_cast<int>(options.async),
                     options.reverse_agents, options.seed);
}

}  // namespace kiln::test
