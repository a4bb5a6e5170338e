#include "tests/runtime/support.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "ir/error.h"
#include "ir/parse.h"
#include "runtime/compile.h"

extern char** environ;

namespace kiln::test {

namespace fs = std::filesystem;

Kernel scale_kernel(int bias) {
  return parse(fmt::format(R"(
kernel @scale {{
  %n = dim {{name = "n"}} : i32
  %factor = param {{name = "factor"}} : f32
  %x = tensor %n {{name = "x"}} : tensor f32[?]
  %y = tensor %n {{name = "y", role = output}} : tensor f32[?]
  %c63 = const {{value = 63}} : i32
  %c64 = const {{value = 64}} : i32
  %sum = add %n, %c63 : i32
  %blocks = floordiv %sum, %c64 : i32
  launch %blocks do |%bx: i32| {{
    %first = mul %bx, %c64 : i32
    %bias = const {{value = {}.0}} : f32
    %source = slice %x, %first : view global f32[64]
    %tile = alloc : fragment f32[64]
    copy %source, %tile
    parallel {{extents = [64]}} do |%i: i32| {{
      %old = load %tile, %i : f32
      %scaled = mul %old, %factor : f32
      %new = add %scaled, %bias : f32
      store %new, %tile, %i
    }}
    %target = slice %y, %first : view global f32[64]
    copy %tile, %target
  }}
}})",
                           bias));
}

Kernel watched_kernel() {
  return parse(R"(
kernel @watched {
  %x = tensor {name = "x"} : tensor f32[4]
  %y = tensor {name = "y", role = output} : tensor f32[4]
  %one = const {value = 1} : i32
  %zero = const {value = 0} : i32
  launch %one do |%bx: i32| {
    %tile = alloc : shared f32[4]
    %source = slice %x, %zero : view global f32[4]
    copy %source, %tile
    watch %tile {text = "loaded"}
    %first = load %tile, %zero : f32
    %none = const {value = 0.0} : f32
    %good = compare %first, %none {kind = ge} : bool
    device_assert %good {text = "negative"}
    %target = slice %y, %zero : view global f32[4]
    copy %tile, %target
  }
})");
}

Kernel grid_kernel() {
  return parse(R"(
kernel @grid {
  %nz = dim {name = "nz"} : i32
  %ny = dim {name = "ny"} : i32
  %nx = dim {name = "nx"} : i32
  %out = tensor %nz, %ny, %nx {name = "out", role = output} : tensor i32[?, ?, ?]
  launch %nx, %ny, %nz do |%bx: i32, %by: i32, %bz: i32| {
    %ten = const {value = 10} : i32
    %a = mul %by, %ten : i32
    %hundred = const {value = 100} : i32
    %b = mul %bz, %hundred : i32
    %c = add %a, %b : i32
    %value = add %bx, %c : i32
    store %value, %out, %bz, %by, %bx
  }
})");
}

Kernel two_launch_kernel() {
  return parse(R"(
kernel @two_launches {
  %n = dim {name = "n"} : i32
  %two = const {value = 2} : i32
  %twice = mul %n, %two : i32
  %x = tensor %twice {name = "x"} : tensor f32[?]
  %y = tensor %n {name = "y", role = output} : tensor f32[?]
  %w = tensor %twice {name = "w", role = workspace} : tensor f32[?]
  launch %twice do |%bx: i32| {
    %value = load %x, %bx : f32
    %double = add %value, %value : f32
    store %double, %w, %bx
  }
  launch %n do |%bx: i32| {
    %two_i = const {value = 2} : i32
    %one_i = const {value = 1} : i32
    %first = mul %bx, %two_i : i32
    %second = add %first, %one_i : i32
    %a = load %w, %first : f32
    %b = load %w, %second : f32
    %sum = add %a, %b : f32
    store %sum, %y, %bx
  }
})");
}

Kernel attention_like_kernel() {
  return parse(R"(
kernel @attend {
  %heads = dim {name = "heads"} : i32
  %seq = dim {name = "seq"} : i32
  %limit = dim {name = "limit"} : i32
  %scale = param {name = "scale"} : f32
  %first = param {name = "first"} : i32
  %q = tensor %heads, %seq {name = "q"} : tensor f16[?, ?, 64]
  %k = tensor %heads, %seq {name = "k"} : tensor f16[?, ?, 64]
  %c63 = const {value = 63} : i32
  %c64 = const {value = 64} : i32
  %sum = add %seq, %c63 : i32
  %blocks = floordiv %sum, %c64 : i32
  %mask = tensor %heads, %blocks {name = "mask"} : tensor bool[?, ?]
  %o = tensor %heads, %seq {name = "o", role = output} : tensor f16[?, ?, 64]
  launch %heads do |%bx: i32| {
    %zero = const {value = 0} : i32
    %value = load %q, %bx, %zero, %first : f16
    store %value, %o, %bx, %zero, %limit
  }
})");
}

const std::vector<std::string_view>& cpu_devices() {
  static const std::vector<std::string_view> names = {"host", "interpreter"};
  return names;
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.message() + (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "no error";
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (fs::temp_directory_path() / "kiln-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::permissions(path_, fs::perms::owner_all, ignored);
  fs::remove_all(path_, ignored);
}

static void set_variable(const std::string& name, const std::optional<std::string>& value) {
  if (value && !value->empty())
    ::setenv(name.c_str(), value->c_str(), 1);
  else
    ::unsetenv(name.c_str());
}

EnvironmentGuard::EnvironmentGuard(const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) set(name, value);
}

EnvironmentGuard::EnvironmentGuard(const std::string& name, const std::string& value) {
  set(name, value);
}

void EnvironmentGuard::set(const std::string& name, const std::string& value) {
  const char* old = std::getenv(name.c_str());
  saved_[name] = old ? std::optional<std::string>(old) : std::nullopt;
  set_variable(name, value);
}

EnvironmentGuard::~EnvironmentGuard() {
  for (const auto& [name, value] : saved_) set_variable(name, value);
}

FreshCache::FreshCache()
    : environment_(std::map<std::string, std::string>{{"KILN_CACHE_DIR", directory_.path()},
                                                      {"KILN_CACHE", ""},
                                                      {"KILN_CACHE_PATH", ""},
                                                      {"KILN_CACHE_SIZE", ""},
                                                      {"KILN_DUMP", ""},
                                                      {"KILN_PTXAS", ""},
                                                      {"KILN_STRICT", ""}}) {
  forget_compiled();
}

FreshCache::~FreshCache() {
  forget_compiled();
}

std::vector<int> run_children(int count, const std::string& name,
                              const std::map<std::string, std::string>& environment) {
  EnvironmentGuard guard(environment);
  std::string self = "/proc/self/exe", test = name, quiet = "--reporter=compact";
  char* arguments[] = {self.data(), test.data(), quiet.data(), nullptr};
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    pid_t child = 0;
    if (::posix_spawn(&child, self.c_str(), nullptr, nullptr, arguments, environ) != 0)
      throw std::runtime_error("cannot start a child");
    children.push_back(child);
  }
  std::vector<int> statuses;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    statuses.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  return statuses;
}

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
}

unsigned random_seed() {
  const char* given = std::getenv("KILN_SEED");
  unsigned seed =
      given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
  fmt::print("KILN_SEED={}\n", seed);
  return seed;
}

}  // namespace kiln::test
