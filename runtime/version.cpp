#include "runtime/version.h"

#include "build_id.h"

namespace kiln {

std::string_view version() {
  return KILN_VERSION;
}
std::string_view build_id() {
  return KILN_BUILD_ID;
}

}  // namespace kiln
