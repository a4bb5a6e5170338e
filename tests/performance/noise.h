// How quiet the machine was while something was measured.
#pragma once

#include <cstdint>

namespace kiln::performance {

// Watches the CPU time that this process did not use, from construction on.
class NoiseMeter {
 public:
  NoiseMeter();
  // Share of all cores that others (and the hypervisor) took since then, 0 to 1.
  double others_share() const;

 private:
  struct Ticks {
    int64_t busy = 0, total = 0, own = 0;
  };
  static Ticks read();
  Ticks start_;
};

double load_average();  // over the last minute

}  // namespace kiln::performance
