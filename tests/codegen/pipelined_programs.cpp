#include "tests/codegen/pipelined_programs.h"

namespace kiln::testing {
namespace {

// ---- over masks and lists

void selected_copy_and_add(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop.over_mask(t.mask(span(t.block, 1), all), kTiles, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    add(s, sum);
  });
  finish(t, sum);
}

void selected_add_then_copy(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  fill(s, 100);
  t.loop.over_mask(t.mask(span(t.block, 1), all), kTiles, t.trips, [&](const Expr& k) {
    add(s, sum);
    copy(t.a(tile_of(t, k), all, all), s);
  });
  add(s, sum, 2);
  finish(t, sum);
}

void selected_gemms(const Scene& t) {
  Tile a = shared_tile(), b = alloc_shared({kColumns, kRows}, F16);
  Tile sum = alloc_fragment({kRows, kRows}, F32);
  clear(sum);
  t.loop.over_list(t.list(span(t.block, 1), all), t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), a);
    copy(t.b(k, all, all), b);
    gemm(a, b, sum);
  });
  copy(sum, t.y(t.variant, t.block, all, span(0, kRows)));
}

void selected_guard_and_atomics(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var tickets = 0;
  t.loop.over_list(t.list(span(t.block, 1), all), t.trips, [&](const Expr& k) {
    when(t.flags(t.block, k) > 1, [&] {
      copy(t.a(tile_of(t, k), all, all), s);
      add(s, sum);
    });
    tickets = tickets * 3 + atomic_add(t.counts(t.variant, t.block, k % 2), k);
  });
  finish(t, sum);
  t.z(t.variant, t.block, 0) = tickets;
}

void selected_chain(const Scene& t) {
  Tile s = alloc_shared({kColumns}, I32);
  Var before = t.block;
  t.loop.over_mask(t.mask(span(t.block, 1), all), kTiles, t.trips, [&](const Expr& k) {
    copy(t.state(t.variant, t.block, before, all), s);
    for (auto i : parallel(kColumns)) t.state(t.variant, t.block, k, i) += s(i) + 1;
    before = k;
  });
}

void selected_then_pipelined(const Scene& t) {
  Tile a = shared_tile(), b = shared_tile(), sum = zeros();
  fill(a, 3);
  t.loop.over_list(t.list(span(t.block, 1), all), t.trips, [&](const Expr& k) {
    copy(t.a(k, all, all), a);
    t.loop(0, k % 3, [&](const Expr& inner) {
      copy(t.a(tile_of(t, inner), all, all), b);
      for (auto [i, j] : parallel(kRows, kColumns))
        sum(i, j) += cast(a(i, j), F32) * cast(b(i, j), F32);
    });
  });
  t.loop.over_mask(t.mask(span(t.block, 1), all), kTiles, t.trips, [&](const Expr& k) {
    add(a, sum);
    copy(t.a(k, all, all), a);
  });
  finish(t, sum);
}

}  // namespace

const std::vector<PipelinedBody>& pipelined_bodies() {
  static const std::vector<PipelinedBody> bodies = [] {
    std::vector<PipelinedBody> all = bodies_of_tiles();
    for (PipelinedBody& body : bodies_of_addresses()) all.push_back(std::move(body));
    return all;
  }();
  return bodies;
}

const std::vector<PipelinedBody>& selected_bodies() {
  static const std::vector<PipelinedBody> bodies = {
      {"selected_copy_and_add", selected_copy_and_add},
      {"selected_add_then_copy", selected_add_then_copy},
      {"selected_gemms", selected_gemms},
      {"selected_guard_and_atomics", selected_guard_and_atomics},
      {"selected_chain", selected_chain},
      {"selected_then_pipelined", selected_then_pipelined},
  };
  return bodies;
}

Kernel pipelined_program(const PipelinedBody& body, const std::vector<Variant>& variants,
                         bool all_serial) {
  return trace(body.name, [&] {
    Dim n = dim("n");
    const auto count = static_cast<int64_t>(variants.size());
    const Tensors tensors{input("a", F16, {kTiles, kRows, kColumns}),
                          input("b", F16, {kTiles, kColumns, kRows}),
                          input("wide", F32, {kTiles, kRows, kColumns}),
                          input("flags", I32, {kBlocks, kTiles}),
                          input("pages", I32, {kBlocks, kTiles}),
                          input("links", I32, {kTiles}),
                          input("mask", Bool, {kBlocks, kTiles}),
                          input("list", I32, {kBlocks, kTiles}),
                          inout("state", I32, {count, kBlocks, kTiles, kColumns}),
                          inout("counts", I32, {count, kBlocks, 8}),
                          inout("halves", F16, {count, kBlocks, kTiles, kRows, kColumns}),
                          output("y", F32, {count, kBlocks, kRows, kColumns}),
                          output("z", I32, {count, kBlocks, 4})};
    for (int v = 0; v < count; ++v) {
      const Variant& variant = variants[static_cast<size_t>(v)];
      const Expr block = launch({kBlocks})[0];
      body.write(Scene{tensors, v, Looper{all_serial ? -1 : variant.stages},
                       variant.trips < 0 ? Arg(n) : Arg(variant.trips), block});
    }
  });
}

}  // namespace kiln::testing
