// expect: a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)
#include "dsl/dsl.h"

void program(const kiln::Expr& x, kiln::Tile& tile) {
  if (x < 3) clear(tile);
}
