#include "examples/examples.h"

int main(int argc, char** argv) {
  return examples::run(argc, argv);
}
