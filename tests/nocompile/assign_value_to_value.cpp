// expect: this name is a value and never changes; declare it as Var to assign to it
#include "dsl/dsl.h"

void program(kiln::Expr a, const kiln::Expr& b) {
  a = b;
}
