#include "runtime/external_ptxas.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "ir/error.h"
#include "runtime/environment.h"

extern char** environ;

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A directory of this process alone that goes with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::error_code error;
    fs::path base = fs::temp_directory_path(error);
    std::string pattern = ((error ? fs::path(".") : base) / "kiln-ptxas-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw DeviceError(
          fmt::format("no directory for temporary files: {}: {}", pattern, std::strerror(errno)),
          "set TMPDIR to a directory that can be written");
    path_ = pattern;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  fs::path file(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

struct Outcome {
  bool succeeded;
  std::string output;  // stdout and stderr
};

// Runs a program with its output into a file; no shell, so no quoting.
Outcome run_program(const std::vector<std::string>& command, const fs::path& output) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int error =
      ::posix_spawn(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {false, std::strerror(error)};
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return {false, std::strerror(errno)};
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, read_file(output)};
}

// "V12.4.131" of what `ptxas --version` says; empty if it is no such text.
std::string version_in(const std::string& text) {
  const size_t tools = text.find("Cuda compilation tools"), at = text.find(", V", tools);
  if (tools == text.npos || at == text.npos) return "";
  const size_t begin = at + 2, end = text.find_first_not_of("V.0123456789", begin);
  return text.substr(begin, end == text.npos ? end : end - begin);
}

// Asking takes a process, so the answer is kept; a file that changes is asked again.
std::string version_of(const std::string& path) {
  std::error_code error;
  const auto changed = fs::last_write_time(path, error).time_since_epoch().count();
  if (error || ::access(path.c_str(), X_OK) != 0) return "";
  static std::mutex mutex;
  static auto& known = *new std::map<std::pair<std::string, int64_t>, std::string>;
  std::lock_guard lock(mutex);
  auto [it, fresh] = known.try_emplace({path, changed});
  if (fresh) {
    ScratchDirectory scratch;
    const Outcome outcome = run_program({path, "--version"}, scratch.file("version"));
    if (outcome.succeeded) it->second = version_in(outcome.output);
  }
  return it->second;
}

std::vector<std::string> usual_places() {
  std::vector<std::string> places;
  const std::string directories = environment("PATH").value_or("");
  for (size_t begin = 0; begin < directories.size();) {
    const size_t end = std::min(directories.find(':', begin), directories.size());
    const std::string directory = directories.substr(begin, end - begin);
    if (directory.starts_with('/')) places.push_back(directory + "/ptxas");
    begin = end + 1;
  }
  places.push_back("/usr/local/cuda/bin/ptxas");
  return places;
}

std::optional<ExternalPtxas> usual_ptxas() {
  for (const std::string& path : usual_places())
    if (std::string version = version_of(path); !version.empty())
      return ExternalPtxas{path, version, false};
  return std::nullopt;
}

}  // namespace

std::optional<ExternalPtxas> find_ptxas() {
  auto wanted = external_ptxas();
  return wanted ? wanted : usual_ptxas();
}

std::string disassemble(const ExternalPtxas& ptxas, std::string_view cubin) {
  const fs::path tool = fs::path(ptxas.path).parent_path() / "nvdisasm";
  if (::access(tool.c_str(), X_OK) != 0)
    throw UserError(fmt::format("no nvdisasm beside {}", ptxas.path),
                    "install the CUDA toolkit's nvdisasm");
  ScratchDirectory scratch;
  const fs::path code = scratch.file("kernel.cubin");
  std::ofstream(code, std::ios::binary) << cubin;
  const Outcome outcome = run_program({tool.string(), "-c", code.string()}, scratch.file("sass"));
  if (!outcome.succeeded) throw DeviceError(tool.string() + ": " + outcome.output);
  return outcome.output;
}

std::optional<ExternalPtxas> external_ptxas() {
  const auto wanted = environment("KILN_PTXAS");
  if (!wanted) return std::nullopt;
  if (*wanted == "auto") return usual_ptxas();
  const std::string version = version_of(*wanted);
  if (version.empty())
    throw UserError(fmt::format("KILN_PTXAS: '{}' is no ptxas that can be run", *wanted),
                    "the path of a CUDA toolkit's bin/ptxas, or auto; unset it to let the driver "
                    "compile");
  return ExternalPtxas{*wanted, version, true};
}

Assembled assemble(const ExternalPtxas& ptxas, std::string_view ptx, std::string_view arch,
                   std::string_view name) {
  ScratchDirectory scratch;
  const fs::path source = scratch.file("kernel.ptx"), target = scratch.file("kernel.cubin");
  std::ofstream(source, std::ios::binary) << ptx;
  const Outcome outcome = run_program(
      {ptxas.path, "-v", fmt::format("-arch={}", arch), source.string(), "-o", target.string()},
      scratch.file("log"));
  Assembled result{read_file(target), outcome.output};
  if (!outcome.succeeded || result.cubin.empty())
    throw DeviceError(fmt::format("{} ({}) does not assemble '{}' for {}:\n{}", ptxas.path,
                                  ptxas.version, name, arch, outcome.output),
                      "unset KILN_PTXAS to let the driver compile");
  return result;
}

}  // namespace kiln
