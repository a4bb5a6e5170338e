// What a function writes to standard error, which nobody else sees.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace kiln::testing {

// Standard error as a file in memory, until the object dies.
class CapturedErrors {
 public:
  CapturedErrors() : before_(dup(STDERR_FILENO)), file_(memfd_create("stderr", 0)) {
    if (before_ < 0 || file_ < 0 || dup2(file_, STDERR_FILENO) < 0)
      throw std::runtime_error("standard error cannot be captured");
  }
  ~CapturedErrors() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(file_);
  }
  CapturedErrors(const CapturedErrors&) = delete;

  std::string text() const {
    std::string all;
    char buffer[4096];
    for (ssize_t n; (n = pread(file_, buffer, sizeof buffer, static_cast<off_t>(all.size()))) > 0;)
      all.append(buffer, static_cast<size_t>(n));
    return all;
  }

 private:
  int before_, file_;
};

// Exceptions of `run` pass.
inline std::string written_by(const std::function<void()>& run) {
  CapturedErrors captured;
  run();
  return captured.text();
}

}  // namespace kiln::testing
