#include "tools/npy/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include "ir/error.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open(const std::string& path, const char* mode) {
  return File(std::fopen(path.c_str(), mode), std::fclose);
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw UserError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

// Closes the file; false, with errno, if not all of it is written.
bool write_parts(File file, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts)
    if (std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) return false;
  return std::fclose(file.release()) == 0;
}

}  // namespace

std::string read_file(const std::string& path) {
  File file = open(path, "rb");
  if (!file) fail(path, "open");
  std::string bytes;
  constexpr size_t kStep = 1 << 20;
  for (size_t got = kStep; got == kStep;) {  // not seek and tell: it may be a pipe
    size_t size = bytes.size();
    bytes.resize(size + kStep);
    got = std::fread(bytes.data() + size, 1, kStep, file.get());
    bytes.resize(size + got);
  }
  if (std::ferror(file.get())) fail(path, "read");
  return bytes;
}

void write_file(const std::string& path, std::initializer_list<std::string_view> parts) {
  std::error_code none;
  fs::file_status status = fs::status(path, none);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    File file = open(path, "wb");
    if (!file || !write_parts(std::move(file), parts)) fail(path, "write");
    return;
  }
  require_writable(path);
  // Behind a symbolic link, so that the link stays one.
  std::string target = fs::exists(status) ? fs::canonical(path, none).string() : path;
  std::string temporary = fmt::format("{}.{}.tmp", target, getpid());
  File file = open(temporary, "wbx");
  if (!file) fail(path, "write");
  bool written = write_parts(std::move(file), parts);
  if (written && fs::exists(status)) fs::permissions(temporary, status.permissions(), none);
  if (!written || std::rename(temporary.c_str(), target.c_str()) != 0) {
    int reason = errno;
    unlink(temporary.c_str());
    errno = reason;
    fail(path, "write");
  }
}

void require_writable(const std::string& path) {
  std::error_code none;
  std::string folder = fs::path(path).parent_path().string();
  if (fs::is_directory(path, none)) {
    errno = EISDIR;
    fail(path, "write");
  }
  bool good = fs::exists(path, none) ? access(path.c_str(), W_OK) == 0
                                     : access(folder.empty() ? "." : folder.c_str(), W_OK) == 0;
  if (!good) fail(path, "write");
}

}  // namespace kiln
