// Differential fuzzing from a command line.
#pragma once

namespace kiln::differential {

int run(int argc, char** argv);  // the exit status

}  // namespace kiln::differential
