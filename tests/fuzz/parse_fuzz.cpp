// Any bytes are refused with a UserError or give a kernel whose text reads back as itself.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "ir/canon.h"
#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

namespace {

void require_equal(const std::string& a, const std::string& b) {
  if (a == b) return;
  std::fprintf(stderr, "the texts differ:\n%s\n----\n%s\n", a.c_str(), b.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;
  Kernel kernel;
  try {
    kernel = parse({reinterpret_cast<const char*>(data), size});
  } catch (const UserError&) {
    return 0;
  }
  const std::string text = print(kernel);
  require_equal(text, print(parse(text)));
  try {
    verify(kernel);
  } catch (const UserError&) {
    return 0;
  }
  const std::string canon = print(canonical(kernel));
  require_equal(canon, print(canonical(parse(canon))));
  verify(parse(canon));
  return 0;
}
