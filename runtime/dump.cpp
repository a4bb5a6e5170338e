#include "runtime/dump.h"

#include <fmt/format.h>

#include <cctype>
#include <fstream>

#include "ir/log.h"
#include "runtime/environment.h"

namespace kiln {

static std::string file_name(std::string_view kernel) {
  std::string name(kernel);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') c = '_';
  return name;
}

Dump::Dump(std::string_view kernel, std::string_view key) {
  if (auto directory = environment("KILN_DUMP"))
    directory_ = std::filesystem::path(*directory) /
                 fmt::format("{}-{}", file_name(kernel), key.substr(0, 8));
}

void Dump::write(const std::string& file, std::string_view text) {
  if (!*this) return;
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  std::ofstream out(directory_ / file, std::ios::binary);
  out << text;
  out.close();
  if (!out && !complained_) {
    complained_ = true;
    log_message(LogLevel::Warning,
                fmt::format("KILN_DUMP: cannot write {}", (directory_ / file).string()));
  }
}

}  // namespace kiln
