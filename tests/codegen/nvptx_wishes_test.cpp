// annotate_layout and rasterize on a GPU: whatever is wished for, results stay what they are.
#include <catch2/catch.hpp>

#include <functional>

#include "dsl/dsl.h"
#include "ir/layout/reshape.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

struct Shapes {
  int m, n, k;
  DType dtype;
};

using Wish = std::function<void(const Tile&)>;

// Tiles of every kind: filled by cp.async or by vectors, multiplied, reduced, indexed by elements.
Kernel everything(const Shapes& s, const Wish& wish, int rasterize) {
  return trace("everything", [&] {
    Dim rows = dim("rows"), columns = dim("columns");
    Tensor x = input("x", s.dtype, {rows, 2 * s.k}), w = input("w", s.dtype, {columns, 2 * s.k});
    Tensor y = output("y", F32, {rows, columns}), sums = output("sums", F32, {rows, columns});
    auto [bx, by, bz] =
        launch({ceildiv(columns, s.n), ceildiv(rows, s.m)}, {.rasterize = rasterize});
    auto row = by * s.m, column = bx * s.n;
    Tile a = alloc_shared({s.m, s.k}, s.dtype), b = alloc_shared({s.n, s.k}, s.dtype);
    Tile flipped = alloc_shared({s.k, s.m}, s.dtype), back = alloc_fragment({s.m, s.k}, s.dtype);
    Tile c = alloc_fragment({s.m, s.n}, F32), total = alloc_fragment({s.m}, F32);
    Tile part = alloc_fragment({s.m, s.n}, F32), out = alloc_shared({s.m, s.n}, F32);
    for (const Tile* tile : {&a, &b, &flipped, &back, &c, &total, &part, &out}) wish(*tile);
    clear(c);
    for (auto i : pipelined(2)) {
      copy(x(span(row, s.m), span(i * s.k, s.k)), a);
      copy(w(span(column, s.n), span(i * s.k, s.k)), b);
      for (auto [p, q] : parallel(s.m, s.k)) flipped(q, p) = a(p, q);
      for (auto [p, q] : parallel(s.m, s.k)) back(p, q) = flipped(q, p);
      gemm(back, b, c, {.transpose_b = true});
      gemm(flipped, b, part, {.transpose_a = true, .transpose_b = true, .clear = true});
    }
    reduce_max(part, total);
    for (auto [p, q] : parallel(s.m, s.n)) part(p, q) = c(p, q) + total(p);
    copy(part, out);
    copy(out(all, span(0, s.n)), sums(span(row, s.m), span(column, s.n)));
    copy(c, y(span(row, s.m), span(column, s.n)));
  });
}

Layout any_shared(Random& random, const Shape& shape, int bytes) {
  if (shape.size() < 2 || random.chance(20)) return row_major(shape);
  const int panel = random.of({32, 64, 128});
  const Shape flipped = {shape[1], shape[0]};
  switch (random.below(4)) {
    case 0: return row_major(shape, shape[1] + random.below(9));
    case 1: return permute_axes(row_major(flipped), {1, 0});
    case 2: return permute_axes(swizzled(flipped, bytes, panel), {1, 0});
    default: return swizzled(shape, bytes, panel);
  }
}

// Also what no pass would choose: copies in registers and lanes, and axes the wrong way round.
Layout any_fragment(Random& random, const Shape& shape, int64_t warps) {
  const bool matrix = shape.size() == 2;
  switch (random.below(7)) {
    case 0:
      if (count(shape) <= 128) return replicated(shape, warps);
      break;
    case 1:
      if (matrix) return mma_accumulator(shape[0], shape[1], {warps, 1, 1}).crop(shape);
      break;
    case 2:
      if (matrix) return permute_axes(blocked({shape[1], shape[0]}, warps, 4), {1, 0});
      break;
    case 3: return blocked(shape, warps, 4).repeat(Resource::Reg, 2, kNoAxis).crop(shape);
    case 4: {
      Shape wider = shape;
      wider.insert(wider.begin(), random(2, 8));
      return reduce_axis(blocked(wider, warps, 4), 0);
    }
    default: break;
  }
  return blocked(shape, warps, random.of({1, 2, 4, 8}));
}

int64_t warps_of(const Kernel& kernel, const std::string& target) {
  int64_t warps = 0;
  const Kernel made = lowered(kernel, target);
  walk(made, made.body, [&](OpId id) {
    if (made.op(id).code == OpCode::Launch) warps = made.op(id).integer("warps");
  });
  return warps;
}

}  // namespace

TEST_CASE("wishes: any layout of any tile", "[nvptx][long]") {
  Random random;
  int kept = 0, declined = 0;
  for (int round = 0; round < 60; ++round) {
    const Shapes shapes{random.of({16, 32, 48}), random.of({8, 24, 64}), random.of({8, 16, 40, 64}),
                        random.of({F16, BF16, F32})};
    const std::string target = random.target();
    const Kernel plain = everything(
        shapes, [](const Tile&) {}, 0);
    const int64_t warps = random.chance(90) ? warps_of(plain, target) : random(1, 8);
    const Wish wish = [&](const Tile& tile) {
      if (random.chance(25)) return;
      const Shape& shape = tile.shape();
      const auto bytes = static_cast<int>(size_of(tile.dtype()));
      annotate_layout(tile, tile.type().space == Space::Shared
                                ? any_shared(random, shape, bytes)
                                : any_fragment(random, shape, warps));
    };
    const Kernel wished = everything(shapes, wish, static_cast<int>(random.below(5)));
    const Kernel made = lowered(wished, target);
    walk(made, made.body, [&](OpId id) {
      const Op& op = made.op(id);
      if (op.code == OpCode::Alloc && !op.word("reason").empty()) ++declined;
    });
    walk(wished, wished.body, [&](OpId id) {
      if (wished.op(id).attrs.find("layout")) ++kept;
    });
    Check check = random.check();
    check.dims = {{"rows", random(0, 70)}, {"columns", random(1, 70)}};

    INFO(shapes.m << "x" << shapes.n << "x" << shapes.k << " " << name(shapes.dtype) << " for "
                  << target << ", " << warps << " warps, " << check.dims["rows"] << " rows, "
                  << check.dims["columns"] << " columns");
    CHECK(emulation_fault(wished, target, check) == "");
  }
  kept -= declined;
  INFO(kept << " kept, " << declined << " declined");
  CHECK(kept > declined);
  CHECK(declined > 0);
}

TEST_CASE("rasterize: on the host and on a GPU, each block once", "[nvptx]") {
  Random random;
  for (int round = 0; round < 12; ++round) {
    const int panel = static_cast<int>(random.below(6));
    const Kernel kernel = trace("count", [&] {
      Dim x = dim("x"), y = dim("y"), z = dim("z");
      Tensor hits = inout("hits", I32, {z, y, x}), where = output("where", I32, {z, y, x});
      auto [bx, by, bz] = launch({x, y, z}, {.rasterize = panel});
      atomic_add(hits(bz, by, bx), 1);
      where(bz, by, bx) = bx + 100 * by + 10000 * bz;
    });
    Check check = random.check();
    check.dims = {{"x", random(0, 9)}, {"y", random(0, 9)}, {"z", random(1, 2)}};
    INFO("panels of " << panel << ", " << check.dims["x"] << " x " << check.dims["y"]);
    CHECK(emulation_fault(kernel, random.target(), check) == "");
    CHECK(check_lowered(kernel, {check}) == "");
  }
}
