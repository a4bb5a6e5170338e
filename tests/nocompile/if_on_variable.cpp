// expect: a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)
#include "dsl/dsl.h"

void program(const kiln::Var& flag, kiln::Tile& tile) {
  if (flag) clear(tile);
}
