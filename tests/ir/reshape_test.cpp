// Shared tiles under other names: the law, and what the interpreter makes of them.
#include <catch2/catch.hpp>

#include "ir/print.h"
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Contains;

namespace {

const char* const kTensors = R"(%x = tensor {name = "x"} : tensor f32[6]
  %y = tensor {name = "y", role = output} : tensor u32[3, 2]
  %z = tensor {name = "z", role = output} : tensor f32[2, 3])";

// With x in %t, under the names %b (its bits), %r (rows) and %h (halves).
Run run(const std::string& body, const Numbers& x = {0, 1, -1, 2, -2, 0.5}) {
  Run made(one_block(kTensors, R"(%t = alloc : shared f32[6]
  %b = reshape %t : shared u32[3, 2]
  %r = reshape %b : shared f32[2, 3]
  %h = reshape %t : shared u16[2, 6]
  )" + body));
  made.tensor("x", F32, {6}, x).tensor("y", U32, {3, 2}).tensor("z", F32, {2, 3});
  return made;
}

}  // namespace

TEST_CASE("reshape: whole shared tiles of as many bytes", "[verify]") {
  const std::string part = "%q = slice %a, %c0, %c0 : view shared f16[64, 64]\n";
  check_all({
      {"reshape: expected a shared tile, all of it, got fragment f32[64, 64]",
       "threads have its elements in registers: copy it to a shared tile, and reshape that",
       tiles("%q = reshape %c : shared f32[4096]  // here")},
      {"reshape: expected a shared tile, all of it, got tensor bool[4, 4]",
       "declare the tensor with that shape and dtype",
       tiles("%q = reshape %mask : shared u8[16]  // here")},
      {"reshape: expected a shared tile, all of it, got view shared f16[64, 64]",
       "reshape the whole tile, then take the part",
       tiles(part + "%v = reshape %q : shared f16[4096]  // here")},
      {"reshape: sizes differ: shared f16[64, 128] has 16384 bytes, shared f32[64, 128] has 32768",
       "take a part of the larger one instead",
       tiles("%q = reshape %a : shared f32[64, 128]  // here")},
      {"reshape: from shared i8[64, 64] to shared bool[64, 64]: bools have no bits to share",
       "keep them as u8 that are 0 or 1, and compare with 0",
       tiles("%q = reshape %i8 : shared bool[64, 64]  // here")},
      {"reshape: the result: expected a shared tile, got fragment i8[4096]",
       "the bytes stay where they are", tiles("%q = reshape %i8 : fragment i8[4096]  // here")},
      {"reshape: the result: expected a tile, got view shared i8[4096]", "the type after the colon",
       tiles("%q = reshape %i8 : view shared i8[4096]  // here")},
      {"reshape: expected positive constant extents, got shared f16[8192, 0]",
       "the shape of a tile is known when the kernel is built",
       tiles("%q = reshape %a : shared f16[8192, 0]  // here")},
      {"reshape: 'base': expected a tensor, tile or view, got i32", "",
       tiles("%q = reshape %c0 : shared f16[8192]  // here")},
      {"reshape: stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
       "move it out of the parallel", in_parallel("%q = reshape %s : shared f32[32]  // here")},
      {"gemm_async: 'b': expected a tile as it was made, got shared f16[64, 128] by reshape",
       "what is asynchronous reads swizzled tiles",
       tiles("%q = reshape %bt : shared f16[64, 128]\n"
             "%v = gemm_async %a, %q, %c {transpose_b = true} : token  // here")},
      {"copy: writes shared f16[64, 128] and also uses it as another operand",
       "go through another tile",
       tiles("%q = reshape %a : shared f16[128, 64]\n"
             "%v = reshape %a : shared f16[128, 64]\ncopy %q, %v  // here")},
  });
}

TEST_CASE("reshape: text and back", "[parse]") {
  const std::string text = R"(kernel @k {
  %const.0 = const {value = 1} : i32
  launch %const.0 do |%bx: i32| {
    %alloc.0 = alloc : shared f32[6]
    %const.1 = const {value = 7} : i32
    %reshape.0 = reshape %alloc.0 : shared u16[2, 6]
    fill %const.1, %reshape.0
  }
}
)";
  CHECK(print(parse(text)) == text);
}

TEST_CASE("reshape: bits stay what they are", "[interp]") {
  CHECK(run("copy %x, %t\ncopy %b, %y")().values("y") ==
        Numbers{0, 0x3f800000, 0xbf800000, 0x40000000, 0xc0000000, 0x3f000000});
  // Of a NaN too, and of what is written through another name.
  CHECK(
      run("%n = const {value = 4286644096} : u32\ncopy %x, %t\nstore %n, %b, %c1, %c0\n"
          "%two = const {value = 2} : i32\n%f = load %r, %c0, %two : f32\nstore %f, %r, %c0, %c1\n"
          "copy %b, %y")()
          .values("y")[2] == 4286644096.0);
  CHECK(run("copy %x, %t\n%k = const {value = 16256} : i32\n%five = const {value = 5} : i32\n"
            "store %k, %h, %c1, %five\ncopy %r, %z")()
            .values("z") == Numbers{0, 1, -1, 2, -2, 1});
}

TEST_CASE("reshape: elements of which a byte was never written", "[interp]") {
  const std::string half = "%k = const {value = 16256} : i32\nstore %k, %h, %c0, %c1\n";
  CHECK_THAT(run(half + "copy %r, %z").error(),
             Contains("copy reads element [0, 0] of shared f32[2, 3], which was never written"));
  CHECK(run(half + "store %k, %h, %c0, %c0\n%f = load %t, %c0 : f32\n").error() == "no error");
  CHECK_THAT(run(half + "%f = load %t, %c0 : f32\n").error(),
             Contains("load reads element [0] of shared f32[6]"));
  // What an alloc gives in another round was never written.
  CHECK_THAT(run("%two = const {value = 2} : i32\nfor %c0, %two, %c1 do |%i: i32| {\n"
                 "%u = alloc : shared i32[2]\n%v = reshape %u : shared u8[8]\n"
                 "%q = compare %i, %c1 {kind = eq} : bool\nif %q do {\n%o = load %v, %c1 : u8\n}\n"
                 "fill %c1, %u\n}")
                 .error(),
             Contains("load reads element [1] of shared u8[8]"));
}

TEST_CASE("reshape: iterations that meet under different names", "[interp]") {
  const std::string loop = "copy %x, %t\nparallel {extents = [2]} do |%i: i32| {\n";
  CHECK(run(loop + "%l = load %t, %i : f32\nstore %i, %h, %i, %c1\n}").error() == "no error");
  CHECK_THAT(
      run(loop + "%l = load %t, %c0 : f32\nstore %i, %h, %c0, %i\n}").error(),
      Contains("iteration [1] reads element [0] of shared f32[6], which iteration [0] writes"));
  CHECK_THAT(
      run(loop + "store %i, %h, %c0, %i\nstore %i, %t, %i\n}").error(),
      Contains("iteration [1] writes element [0, 1] of shared u16[2, 6], which iteration [0] "
               "writes"));
}
