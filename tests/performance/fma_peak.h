// The ceiling of the CPU: how fast its cores multiply and add.
#pragma once

namespace kiln::performance {

// f32 GFLOP/s of `threads` threads doing nothing but vector FMAs in registers for about `seconds`.
double fma_peak_gflops(int threads, double seconds);

}  // namespace kiln::performance
