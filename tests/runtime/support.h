// What the runtime's tests share: small kernels, a directory and an environment of their own.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

namespace kiln::test {

// y[i] = x[i] · factor + bias, for any n, in blocks of 64. Different biases are different kernels.
Kernel scale_kernel(int bias = 0);
// y = x of 4 elements, watched as "loaded" on the way; asserts that the first is not negative.
Kernel watched_kernel();
// One element a block over a 3-D grid: y[z, y, x] = x + 10·y + 100·z + the number of blocks before.
Kernel grid_kernel();
// A workspace of n doubled values is written by one launch and summed by pairs in the next.
Kernel two_launch_kernel();
// Two inputs, an index whose extent is computed, an output, a dim that no tensor has.
Kernel attention_like_kernel();

// The devices whose memory is the host's.
const std::vector<std::string_view>& cpu_devices();

// Runs `action`; the text of its UserError with the hint, or "no error".
std::string error_of(const std::function<void()>& action);

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Sets environment variables and restores them. An empty value unsets.
class EnvironmentGuard {
 public:
  explicit EnvironmentGuard(const std::map<std::string, std::string>& values);
  EnvironmentGuard(const std::string& name, const std::string& value);
  ~EnvironmentGuard();
  EnvironmentGuard(const EnvironmentGuard&) = delete;

 private:
  void set(const std::string& name, const std::string& value);
  std::map<std::string, std::optional<std::string>> saved_;
};

// An empty disk cache of this test alone, and nothing compiled in this process.
class FreshCache {
 public:
  FreshCache();
  ~FreshCache();
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  EnvironmentGuard environment_;
};

// Starts this program again, running only the hidden test case `name`; the exit status of each.
std::vector<int> run_children(int count, const std::string& name,
                              const std::map<std::string, std::string>& environment);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

unsigned random_seed();  // printed; KILN_SEED repeats a run

}  // namespace kiln::test
