// Any bytes are an array or a UserError; an array that was read is written and read as itself.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "ir/error.h"
#include "tools/npy/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    kiln::Array array = kiln::parse_npy(bytes, "input");
    kiln::Array again = kiln::parse_npy(kiln::npy_bytes(array), "written");
    if (again.dtype() != array.dtype() || again.shape() != array.shape() ||
        std::memcmp(again.data(), array.data(), array.bytes()) != 0)
      std::abort();
  } catch (const kiln::UserError&) {
  }
  return 0;
}
