#include <exception>
#include <iostream>

#include "tests/differential/differential.h"

int main(int argc, char** argv) {
  setenv("KILN_CACHE", "off", 0);  // no program comes twice
  try {
    return kiln::differential::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
