// expect: a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)
#include "dsl/dsl.h"

void program() {
  kiln::Var i = 0;
  while (i < 8) i += 1;
}
