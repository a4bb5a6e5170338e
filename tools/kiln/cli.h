// kiln: build, run, measure and look into tile kernels from the command line.
#pragma once

namespace kiln::cli {

int main(int argc, char** argv);  // the exit status; throws nothing

}  // namespace kiln::cli
