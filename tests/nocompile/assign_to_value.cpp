// expect: this name is a value and never changes; declare it as Var to assign to it
#include "dsl/dsl.h"

void program(const kiln::Expr& x) {
  auto sum = x + 1;
  sum = sum * 2;
}
