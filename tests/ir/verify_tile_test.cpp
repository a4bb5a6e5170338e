// Storage and tile ops: one small program a rule, see verify_test.cpp.
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;

TEST_CASE("tiles, slices, elements", "[verify]") {
  check_all({
      {"alloc: expected positive constant extents, got shared f32[4, 0]",
       "the shape of a tile is known when the kernel is built",
       inside("%t = alloc : shared f32[4, 0]  // here")},
      {"alloc: expected at most 16777216 elements, got shared f32[65536, 65536]",
       "smaller tiles, in a loop over their parts",
       inside("%t = alloc : shared f32[65536, 65536]  // here")},
      {"slice: expected a view of the space, dtype and rank of tensor f16[?, 64], got view global "
       "f32[1, 64]",
       "a slice differs from its base in extents only",
       inside("%v = slice %x, %c0, %c0 : view global f32[1, 64]  // here")},
      {"slice: expected a view of the space, dtype and rank of tensor f16[?, 64], got view global "
       "f16[64]",
       "a slice differs from its base in extents only",
       inside("%v = slice %x, %c0, %c0 : view global f16[64]  // here")},
      {"slice: indices of tensor f16[?, 64]: expected 2, got 1", "one index an axis",
       inside("%v = slice %x, %c0 : view global f16[1, 64]  // here")},
      {"slice: 'index' 1: expected i32, got f32", "cast it to i32",
       inside("%v = slice %x, %c0, %scale : view global f16[1, 64]  // here")},
      {"slice: axis 0: expected a size of 1 or more, got 0", "? for all that is left of the axis",
       inside("%v = slice %x, %c0, %c0 : view global f16[0, 64]  // here")},
      {"slice: 'base': expected a tensor, tile or view, got i32", "",
       inside("%v = slice %n, %c0 : view global i32[1]  // here")},
      {"every: base: expected a tensor, got shared f16[64, 128]",
       "take every n-th of the tensor, then a part of that",
       tiles("%v = every %a, %c0, %c0 {axis = 0, step = 2} : view shared f16[?, 128]  // here")},
      {"every: axis: expected one of tensor f16[?, 64] but the last, got 1",
       "elements of the last axis lie side by side",
       inside("%v = every %x, %c0, %n {axis = 1, step = 2} : view global f16[?, ?]  // here")},
      {"every: axis: expected one of tensor f16[?, 64] but the last, got -1",
       "elements of the last axis lie side by side",
       inside("%v = every %x, %c0, %n {axis = -1, step = 2} : view global f16[?, ?]  // here")},
      {"every: step: expected 1 to 1048576, got 0", "",
       inside("%v = every %x, %c0, %n {axis = 0, step = 0} : view global f16[?, 64]  // here")},
      {"every: 'first': expected i32, got f32", "",
       inside("%v = every %x, %scale, %n {axis = 0, step = 2} : view global f16[?, 64]  // here")},
      {"every: the result: expected view global f16[?, 64], got view global f16[4, 64]", "",
       inside("%v = every %x, %c0, %n {axis = 0, step = 2} : view global f16[4, 64]  // here")},
      {"load: the result: expected f16, got f32", "cast it after loading",
       inside("%v = load %x, %c0, %c0 : f32  // here")},
      {"load: indices of tensor f16[?, 64]: expected 2, got 1", "one index an axis",
       inside("%v = load %x, %c0 : f16  // here")},
      {"store: 'value': expected a scalar, got shared f16[64, 128]", "load an element of it",
       tiles("store %a, %b, %c0, %c0  // here")},
  });
}

TEST_CASE("constant slices lie inside, if a person wrote them", "[verify]") {
  auto slice = [](const std::string& index, const std::string& size, const std::string& mark) {
    return inside("%i = const {value = " + index + "} : i32\n" +
                  "%v = slice %mask, %c0, %i : view global bool[1, " + size + "]" + mark);
  };
  const char* hint = "constant slices lie inside; let a dynamic index reach over the end";
  check_all(
      {
          {"slice: axis 1: slice [2, 5) exceeds extent 4 of tensor bool[4, 4]", hint,
           slice("2", "3", "  // here")},
          {"slice: axis 1: slice [-1, 2) exceeds extent 4 of tensor bool[4, 4]", hint,
           slice("-1", "3", "  // here")},
          {"slice: axis 1: slice [5, 4) exceeds extent 4 of tensor bool[4, 4]", hint,
           slice("5", "?", "  // here")},
          {"slice: axis 1: slice [0, 5) exceeds extent 4 of tensor bool[4, 4]", hint,
           inside("%v = slice %mask, %c0, %bx : view global bool[1, 5]  // here")},
      },
      IrStage::Traced);
  accept(slice("2", "3", ""), IrStage::Lowered);
  accept(slice("1", "3", ""));
  accept(slice("0", "4", ""));
  accept(slice("4", "?", ""));
  accept(inside("%v = slice %mask, %bx, %bx : view global bool[4, 4]"));
}

TEST_CASE("copy and fill", "[verify]") {
  check_all({
      {"copy: shapes differ: the source is 64x128 f16, the destination 128x64 f16",
       "a copy does not transpose: copy to a shared tile and read that the other way in a parallel",
       tiles("copy %a, %bt  // here")},
      {"copy: shapes differ: the source is 64x128 f16, the destination 64x64 f32",
       "shapes agree once extents of 1 are dropped", tiles("copy %a, %c  // here")},
      {"copy: 'source': expected constant extents, got tensor f16[?, 64]",
       "slice it to the extents of a tile", tiles("copy %x, %p  // here")},
      {"copy: pad: expected a value of f16, got 100000", "the nearest is inf",
       tiles("%v = slice %x, %bx, %c0 : view global f16[64, 64]\n"
             "copy %v, %p {pad = 100000.0}  // here")},
      {"copy: pad: expected a value of bool, got 0.5",
       "a whole number that the source's dtype holds",
       tiles("%t = alloc : shared bool[4, 4]\ncopy %mask, %t {pad = 0.5}  // here")},
      {"copy: writes shared f16[64, 128] and also uses it as another operand",
       "go through another tile",
       tiles("%v = slice %a, %c0, %c0 : view shared f16[1, 128]\n"
             "%w = slice %a, %c1, %c0 : view shared f16[1, 128]\ncopy %v, %w  // here")},
      {"fill: 'destination': expected constant extents, got tensor f32[?, 64]",
       "slice it to the extents of a tile", inside("fill %scale, %o  // here")},
  });
  accept(
      tiles("%v = slice %x, %bx, %c0 : view global f16[64, 64]\ncopy %v, %p {pad = -inf}\n"
            "%w = slice %x, %bx, %c0 : view global f16[1, 64]\n%t = alloc : shared f64[64, 1]\n"
            "copy %w, %t {pad = nan}"));
}

TEST_CASE("gemm", "[verify]") {
  check_all({
      {"gemm: inner extents differ: a is 64x128 f16, b is 64x128 f16", "did you mean transpose_b?",
       tiles("gemm %a, %b, %c  // here")},
      {"gemm: inner extents differ: a is 64x128 f16, b is 128x64 f16, transpose_b",
       "did you mean no transpose_b?", tiles("gemm %a, %bt, %c {transpose_b = true}  // here")},
      {"gemm: inner extents differ: a is 128x64 f16, b is 128x64 f16", "did you mean transpose_a?",
       tiles("gemm %bt, %bt, %c  // here")},
      {"gemm: c: expected 128x128, got 64x64 f32: a is 128x64 f16, b is 64x128 f16",
       "did you mean both transposes?", tiles("gemm %bt, %a, %c  // here")},
      {"gemm: c: expected 64x64, got 64x32 f32: a is 64x128 f16, b is 128x64 f16",
       "a is MxK (transpose_a: KxM), b KxN (transpose_b: NxK), c MxN",
       tiles("%d = alloc : fragment f32[64, 32]\ngemm %a, %bt, %d  // here")},
      {"gemm: a and b differ in dtype: a is f16, b is i8",
       "copy one of them to a tile of the other's dtype", tiles("gemm %p, %i8, %c  // here")},
      {"gemm: expected c of f32 (a, b of f16, bf16, f32, f64, e4m3 or e5m2), f64 (f64) or i32 (i8 "
       "or u8); a, b are f16, c is "
       "f16",
       "accumulate in f32", tiles("%d = alloc : fragment f16[64, 64]\ngemm %a, %bt, %d  // here")},
      {"gemm: expected c of f32 (a, b of f16, bf16, f32, f64, e4m3 or e5m2), f64 (f64) or i32 (i8 "
       "or u8); a, b are i8, c is f32",
       "accumulate in i32", tiles("%j8 = alloc : shared i8[64, 64]\ngemm %i8, %j8, %c  // here")},
      {"gemm: 'c': expected a fragment, got shared f32[64, 64]",
       "alloc_fragment, and copy to or from it",
       tiles("%d = alloc : shared f32[64, 64]\ngemm %a, %bt, %d  // here")},
      {"gemm: 'a': expected a tile, got view global f16[64, 64]", "copy it to a tile first",
       tiles("%v = slice %x, %c0, %c0 : view global f16[64, 64]\ngemm %v, %p, %c  // here")},
      {"gemm: 'a': expected a matrix, got shared f16[2, 64, 64]",
       "extents in front of the last two must be 1",
       tiles("%d = alloc : shared f16[2, 64, 64]\ngemm %d, %p, %c  // here")},
  });
  accept(
      tiles("%d = alloc : shared f16[2, 64, 64]\n"
            "%v = slice %d, %bx, %c0, %c0 : view shared f16[1, 64, 64]\ngemm %p, %v, %c"));
  accept(
      tiles("%j8 = alloc : shared i8[64, 3]\n%d = alloc : fragment i32[64, 3]\n"
            "gemm %i8, %j8, %d"));
}

TEST_CASE("reduce", "[verify]") {
  check_all({
      {"reduce: dim: expected 0 … 1, got 2", "'source' is fragment f32[64, 64]",
       tiles("reduce %c, %m {kind = max, dim = 2}  // here")},
      {"reduce: destination: expected [64] or [64, 1], got [32]: the source is [64, 64], dim 1",
       "the source's shape without that axis; a negative dim counts from the end",
       tiles("%d = alloc : fragment f32[32]\nreduce %c, %d {kind = max, dim = 1}  // here")},
      {"reduce: dtypes differ: the source is 64x64 i8, the destination 64 f32",
       "copy one of them to a tile of the other's dtype",
       tiles("reduce %i8, %m {kind = sum, dim = 1}  // here")},
      {"reduce: and: expected integers or bool, got 64x64 f32",
       "max, min, sum or absmax of floats, or copy them to a tile of integers first",
       tiles("reduce %c, %m {kind = and, dim = 1}  // here")},
      {"reduce: max: expected numbers, got 64 bool", "use and, or, xor for bool",
       tiles("%d = alloc : fragment bool[]\nreduce %flags, %d {kind = max, dim = 0}  // here")},
      {"reduce: 'source': expected a tile, got tensor bool[4, 4]", "copy it to a tile first",
       tiles("%d = alloc : fragment bool[4]\nreduce %mask, %d {kind = or, dim = 0}  // here")},
  });
  accept(
      tiles("reduce %p, %m {kind = sum, dim = 0}\n%k = alloc : fragment f32[1, 64]\n"
            "reduce %c, %k {kind = min, dim = 0, clear = false}"));
}

TEST_CASE("arg_reduce, cumsum, sort", "[verify]") {
  const std::string rows =
      "%s = alloc : shared f32[8, 16]\n%w = alloc : shared i32[8, 16]\n"
      "%f = alloc : shared f32[8, 4]\n%g = alloc : shared i32[8, 4]\n%r = alloc : fragment "
      "i32[8]\n";
  auto on_rows = [&](const std::string& op) { return tiles(rows + op + "  // here"); };
  check_all({
      {"arg_reduce: dim: expected 0 … 1, got 2", "'source' is shared f32[8, 16]",
       on_rows("arg_reduce %s, %r {kind = max, dim = 2}")},
      {"arg_reduce: index: expected [16] or [1, 16], got [8]: the source is [8, 16], dim 0",
       "the source's shape without that axis; a negative dim counts from the end",
       on_rows("arg_reduce %s, %r {kind = max, dim = 0}")},
      {"arg_reduce: 'index': expected i32, got 64 f32", "it holds positions",
       on_rows("arg_reduce %c, %m {kind = min, dim = 1}")},
      {"arg_reduce: 'source': expected numbers, got 64 bool", "copy it to a tile of i32 first",
       on_rows("%d = alloc : fragment i32[]\narg_reduce %flags, %d {kind = max, dim = 0}")},
      {"cumsum: 'destination': expected [8, 16], got [8, 4]: the source is [8, 16]",
       "a tile of that shape", on_rows("cumsum %s, %f {dim = 1}")},
      {"cumsum: 'destination': expected f32, got 8x16 i32",
       "copy the source to a tile of the other dtype first", on_rows("cumsum %s, %w {dim = 1}")},
      {"cumsum: writes shared f32[8, 16] and also uses it as another operand",
       "go through another tile", on_rows("cumsum %s, %s {dim = 1}")},
      {"cumsum: 'source': expected a tile, got view global f16[1, 64]", "copy it to a tile first",
       on_rows("%v = slice %x, %c0, %c0 : view global f16[1, 64]\n%d = alloc : shared f16[1, 64]\n"
               "cumsum %v, %d {dim = 1}")},
      {"sort: dim: expected 0 … 1, got -1", "'keys' is shared f32[8, 16]",
       on_rows("sort %s, %w {dim = -1}")},
      {"sort: 'order': expected [8, 16], or fewer on axis 0, got [8, 4]: the keys are [8, 16], dim "
       "0",
       "results have the keys' shape, or fewer on that axis: the first ones",
       on_rows("sort %s, %g {dim = 0}")},
      {"sort: 'order': expected i32, got 8x4 f32", "without values it holds positions",
       on_rows("sort %s, %f {dim = 1}")},
      {"sort: 'order': expected i32, got 8x4 f32", "it holds elements of the values",
       on_rows("sort %s, %f, _, %w {dim = 1}")},
      {"sort: 'values': expected [8, 16], got [8, 4]: the keys are [8, 16], dim 1",
       "a tile of that shape",
       on_rows("%d = alloc : shared i32[8, 4]\nsort %s, %d, _, %g {dim = 1}")},
      {"sort: 'sorted': expected [8, 4], got [8, 16]: 'order' is [8, 4]", "a tile of that shape",
       on_rows("%d = alloc : shared f32[8, 16]\nsort %s, %g, %d {dim = 1}")},
      {"sort: 'sorted': expected f32, got 8x4 f16", "it holds keys",
       on_rows("%d = alloc : shared f16[8, 4]\nsort %s, %g, %d {dim = 1}")},
      {"sort: 'keys': expected numbers, got 4 bool", "copy it to a tile of i32 first",
       on_rows("%d = alloc : shared bool[4]\n%e = alloc : shared i32[4]\nsort %d, %e {dim = 0}")},
  });
  accept(tiles(rows + "%p2 = alloc : shared f32[8, 2]\n%v = alloc : fragment f32[8, 16]\n"
                      "sort %s, %g, %f {dim = 1}\nsort %w, %p2, _, %v {dim = 1}\n"
                      "arg_reduce %s, %r {kind = min, dim = 1}\ncumsum %s, %v {dim = 0}"));
}

TEST_CASE("softmax ops", "[verify]") {
  check_all({
      {"softmax_step: 's': expected a fragment of f32 with two axes, got fragment f16[64, 64]",
       "copy converts and moves to such a fragment",
       tiles("softmax_step %p, %m, %l, %c, %alpha, %scale  // here")},
      {"softmax_step: 'm': expected fragment f32[64], got fragment bool[64]",
       "an f32 for each row of 's', or of what is scaled",
       tiles("softmax_step %c, %flags, %l, %p, %alpha, %scale  // here")},
      {"softmax_step: writes fragment f32[64] and also uses it as another operand",
       "go through another tile", tiles("softmax_step %c, %m, %m, %p, %alpha, %scale  // here")},
      {"softmax_step: 'p': expected a tile of floats of shape [64, 64], got shared i8[64, 64]",
       "it takes the exponentials of 's', element by element",
       tiles("softmax_step %c, %m, %l, %i8, %alpha, %scale  // here")},
      {"softmax_step: 'scale': expected f32, got i32", "cast it to f32",
       tiles("softmax_step %c, %m, %l, %p, %alpha, %n  // here")},
      {"softmax_step: 'scale': expected finite and above 0, got -1",
       "multiply s by the factor first and pass the scale 1",
       tiles("%k = const {value = -1.0} : f32\n"
             "softmax_step %c, %m, %l, %p, %alpha, %k  // here")},
      {"scale_rows: 'alpha': expected fragment f32[64], got fragment f32[32]",
       "an f32 for each row of 's', or of what is scaled",
       tiles("%d = alloc : fragment f32[32]\nscale_rows %c, %d  // here")},
      {"softmax_finish: 'lse': expected fragment f32[64], got fragment f32[32]",
       "an f32 for each row of 's', or of what is scaled",
       tiles("%d = alloc : fragment f32[32]\nsoftmax_finish %c, %m, %l, %d, %scale  // here")},
  });
  accept(
      tiles("softmax_step %c, %m, %l, %p, %alpha, %scale\nscale_rows %c, %alpha\n"
            "softmax_finish %c, %m, %l, _, %scale"));
}
