// Which Kiln this is: KILN_VERSION_MAJOR, _MINOR, _PATCH of the headers, kiln::version() of the
// library.
#pragma once

#include "runtime/version.h"
