// expect: a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)
#include "dsl/dsl.h"

void program(kiln::Tile& tile) {
  if (tile(0)) clear(tile);
}
