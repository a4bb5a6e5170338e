#include "passes/passes.h"

namespace kiln {

void insert_barriers(Kernel&) {}

}  // namespace kiln
