// Counters of this process: what compiling cost and what the caches saved.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace kiln {

struct CompileStats {
  int64_t compilations = 0;  // passes and code generation were run
  int64_t disk_loads = 0;    // the disk cache had the code
  int64_t memory_hits = 0;   // this process had it, or was about to
  // Of the last compilation or disk load; load: reading and linking
  // (on a GPU that is the driver, which compiles PTX).
  double canonical_ms = 0, passes_ms = 0, codegen_ms = 0, load_ms = 0;
  std::string complaint;  // of the last code made for a GPU: spills and the like; empty if none
};
CompileStats compile_stats();

// For devices and the compile cache.
void count_compilation(double passes_ms, double codegen_ms, double load_ms);
void count_disk_load(double load_ms);
void count_memory_hit();
void note_canonical(double milliseconds);
void note_complaint(const std::string& text);

class Stopwatch {
 public:
  double lap_ms() {  // since the last lap
    auto now = std::chrono::steady_clock::now();
    std::chrono::duration<double, std::milli> lap = now - start_;
    start_ = now;
    return lap.count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kiln
