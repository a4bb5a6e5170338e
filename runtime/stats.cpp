#include "runtime/stats.h"

#include <mutex>

namespace kiln {
namespace {

std::mutex mutex;

// Made when first needed, so that loading the library does nothing; never destroyed, since threads
// may compile while the process ends.
CompileStats& stats() {
  static auto& stats = *new CompileStats;
  return stats;
}

}  // namespace

CompileStats compile_stats() {
  std::lock_guard lock(mutex);
  return stats();
}

void count_compilation(double passes_ms, double codegen_ms, double load_ms) {
  std::lock_guard lock(mutex);
  ++stats().compilations;
  stats().passes_ms = passes_ms;
  stats().codegen_ms = codegen_ms;
  stats().load_ms = load_ms;
}

void count_disk_load(double load_ms) {
  std::lock_guard lock(mutex);
  ++stats().disk_loads;
  stats().passes_ms = stats().codegen_ms = 0;
  stats().load_ms = load_ms;
}

void count_memory_hit() {
  std::lock_guard lock(mutex);
  ++stats().memory_hits;
}

void note_canonical(double milliseconds) {
  std::lock_guard lock(mutex);
  stats().canonical_ms = milliseconds;
}

void note_complaint(const std::string& text) {
  std::lock_guard lock(mutex);
  stats().complaint = text;
}

}  // namespace kiln
