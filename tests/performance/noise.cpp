#include "tests/performance/noise.h"

#include <sys/times.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace kiln::performance {

NoiseMeter::NoiseMeter() : start_(read()) {}

NoiseMeter::Ticks NoiseMeter::read() {
  // proc(5): cpu user nice system idle iowait irq softirq steal …, in clock ticks as times(2)
  // gives.
  std::ifstream stat("/proc/stat");
  std::string label;
  stat >> label;
  Ticks ticks;
  for (int field = 0; field < 8; ++field) {
    int64_t value = 0;
    stat >> value;
    ticks.total += value;
    if (field != 3 && field != 4) ticks.busy += value;
  }
  tms own{};
  times(&own);
  ticks.own = own.tms_utime + own.tms_stime;
  return ticks;
}

double NoiseMeter::others_share() const {
  Ticks now = read();
  double total = static_cast<double>(now.total - start_.total);
  double others = static_cast<double>((now.busy - start_.busy) - (now.own - start_.own));
  return total > 0 ? std::clamp(others / total, 0.0, 1.0) : 0;
}

double load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

}  // namespace kiln::performance
