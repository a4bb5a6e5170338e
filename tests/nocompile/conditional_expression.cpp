// expect: a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)
#include "dsl/dsl.h"

kiln::Expr program(const kiln::Expr& a, const kiln::Expr& b) {
  return a < b && b < 8 ? a : b;
}
