// The kernels of tests/files/late, written by hand in the late IR.
#pragma once

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "ir/error.h"
#include "ir/parse.h"

namespace kiln::testing {

// `tests` is KILN_TESTS_DIR; KILN_TEST_FILES names its folder of files where the tests do not run
// from where they were built.
inline std::string late_folder(const std::string& tests) {
  const char* given = std::getenv("KILN_TEST_FILES");
  return (given ? std::string(given) : tests + "/files") + "/late/";
}

inline Kernel late_kernel(const std::string& tests, const std::string& name) {
  const std::string path = late_folder(tests) + name;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) throw UserError("cannot read '" + path + "'");
  return parse(text.str(), path);
}

}  // namespace kiln::testing
