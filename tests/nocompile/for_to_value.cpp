// expect: a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)
#include "dsl/dsl.h"

void program(const kiln::Expr& n, kiln::Tile& tile) {
  for (int i = 0; i < n; ++i) tile(i) = 0;
}
