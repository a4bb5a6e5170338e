// expect: a tile or tensor is storage and stays what it is; use copy(source, destination)
#include "dsl/dsl.h"

void program(kiln::Tile a, const kiln::Tile& b) {
  a = b;
}
