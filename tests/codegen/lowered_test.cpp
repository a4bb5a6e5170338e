// A kernel that a GPU tier lowered runs on other devices too: what is for threads means nothing
// there.
#include <catch2/catch.hpp>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

TEST_CASE("convert, barrier, wait_copies, scratch and layouts on the host", "[lowered]") {
  if (!on_host()) return;  // devices of a GPU have tests of their own
  const std::string text = R"ir(kernel @k {target = "sm_90"} {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f16[?, 16]
  %y = tensor %n {name = "y", role = output} : tensor f32[?]
  %z = tensor %n {name = "z", role = output} : tensor f16[?, 16]
  %rows = const {value = 8} : i32
  %up = const {value = 7} : i32
  %more = add %n, %up : i32
  %blocks = floordiv %more, %rows : i32
  launch %blocks {warps = 2, shared = 320} do |%b: i32| {
    %zero = const {value = 0} : i32
    %s = alloc {layout = "[8, 16] offset (0, 1) (0, 2) (0, 4) (0, 8) (1, 0) (2, 0) (4, 0)", offset = 0} : shared f16[8, 16]
    %parts = alloc {layout = "[2, 8] offset (0, 1) (0, 2) (0, 4) (1, 0)", offset = 256} : shared f32[2, 8]
    %f = alloc {layout = "[8, 16] reg (0, 1) lane (0, 2) (0, 4) (0, 8) (1, 0) (2, 0) warp (4, 0)"} : fragment f16[8, 16]
    %g = alloc {layout = "[8, 16] reg (0, 1) lane (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) warp (0, 8)"} : fragment f16[8, 16]
    %sum = alloc {layout = "[8] lane (0) (0) (1) (2) (4) warp (0)"} : fragment f32[8]
    %first = mul %b, %rows : i32
    %in = slice %x, %first, %zero : view global f16[8, 16]
    copy %in, %s {instruction = cp_async, pad = 1.0}
    wait_copies
    barrier
    copy %s, %f {instruction = vector}
    convert %f, %g
    reduce %g, %sum, %parts {kind = sum, dim = 1}
    parallel {extents = [8], layout = "[8] lane (0) (0) (1) (2) (4) warp (0)"} do |%i: i32| {
      %e = load %sum, %i : f32
      %d = add %e, %e : f32
      store %d, %sum, %i
    }
    barrier
    %out = slice %y, %first : view global f32[8]
    copy %sum, %out
    %back = slice %z, %first, %zero : view global f16[8, 16]
    wait_copies {pending = 1}
    copy %g, %back
  }
}
)ir";
  for (int64_t n : {1, 8, 21}) {
    Check check;
    check.options.seed = random_seed();
    check.dims = {{"n", n}};
    CHECK(check_program(text, check) == "");
  }
}
