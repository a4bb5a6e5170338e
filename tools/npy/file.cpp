#include "tools/npy/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ir/error.h"

namespace kiln {
namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw UserError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

}  // namespace

std::string read_file(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"), std::fclose);
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
  File file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (!file) fail(path, "write");
  for (std::string_view part : parts)
    if (std::fwrite(part.data(), 1, part.size(), file.get()) != part.size()) fail(path, "write");
  if (std::fclose(file.release()) != 0) fail(path, "write");
}

}  // namespace kiln
