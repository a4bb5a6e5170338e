// expect: declare it as Var to assign to it, or assign to the element
#include "dsl/dsl.h"

void program(kiln::Tile& tile) {
  auto first = tile(0);
  first = tile(1);
}
