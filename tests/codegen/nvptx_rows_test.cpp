// sort, cumsum and arg_reduce on a GPU: in the emulator with copies as late as they may be, and
// that ptxas keeps everything in registers.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// Blocks of rows, several chunks of a row one after the other in the same tiles.
Kernel best_of_chunks(DType dtype, int rows, int width, int chunks, int kept) {
  return trace("best_of_chunks", [&] {
    Dim n = dim("n");
    Tensor x = input("x", dtype, {n, chunks * width});
    Tensor best = output("best", dtype, {n, chunks, kept}),
           at = output("at", I32, {n, chunks, kept});
    Tensor sums = output("sums", F32, {n, chunks * width}),
           first = output("first", I32, {n, chunks});
    auto [block, y, z] = launch({ceildiv(n, rows)});
    auto row = block * rows;
    Tile keys = alloc_shared({rows, width}, dtype), values = alloc_shared({rows, width}, I32);
    Tile top = alloc_fragment({rows, kept}, dtype), order = alloc_fragment({rows, kept}, I32);
    Tile added = alloc_fragment({rows, width}, F32), index = alloc_fragment({rows}, I32);
    for (auto chunk : pipelined(chunks, {.stages = 2})) {
      auto begin = chunk * width;
      copy(x(span(row, rows), span(begin, width)), keys);
      for (auto [i, j] : parallel(rows, width)) values(i, j) = begin + j;
      topk(keys, values, top, order);
      copy(top, best(span(row, rows), chunk, all));
      copy(order, at(span(row, rows), chunk, all));
      cumsum(keys, added, 1, true);
      copy(added, sums(span(row, rows), span(begin, width)));
      reduce_argmin(keys, index);
      copy(index, first(span(row, rows), chunk));
    }
  });
}

}  // namespace

TEST_CASE("rows: chunk after chunk in the same shared memory", "[nvptx]") {
  Random random;
  for (int round = 0; round < 8; ++round) {
    const DType dtype = random.of({F32, F16, BF16});
    const int rows = static_cast<int>(random(1, 5)), width = static_cast<int>(random(1, 80));
    const int kept = static_cast<int>(random(1, width)), chunks = static_cast<int>(random(1, 4));
    Check check = random.check();
    check.dims["n"] = random(1, 12);
    check.tolerance = 0;
    const std::string target = random.target();
    INFO(name(dtype) << " " << rows << "x" << width << " of " << chunks << ", " << kept << ", "
                     << target);
    CHECK(emulation_fault(best_of_chunks(dtype, rows, width, chunks, kept), target, check) == "");
  }
}

TEST_CASE("rows: no stack, no spills", "[nvptx]") {
  for (const char* target : {"sm_80", "sm_90"}) {
    const Kernel wide = best_of_chunks(F32, 1, 2048, 2, 64),
                 many = best_of_chunks(F16, 64, 64, 4, 64);
    for (const Kernel* kernel : {&wide, &many}) {
      INFO(target);
      CHECK(assembly_fault(compile_for(*kernel, target).ptx, target) == "");
    }
  }
}
