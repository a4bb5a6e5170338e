// What compiling, loading and launching cost on a GPU.
#pragma once

namespace kiln {

int measure_launch_cost();  // prints a table; 0 if no bar is missed

}  // namespace kiln
