// KILN_DUMP=dir: the stages of a compilation as files under dir/<kernel>-<8 digits of its key>/.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kiln {

// False if KILN_DUMP is not set. A file that cannot be written is a warning in the log, no error.
class Dump {
 public:
  Dump(std::string_view kernel, std::string_view key);
  explicit operator bool() const { return !directory_.empty(); }
  void write(const std::string& file, std::string_view text);

 private:
  std::filesystem::path directory_;
  bool complained_ = false;
};

}  // namespace kiln
