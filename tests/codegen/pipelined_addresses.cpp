// Bodies that write what later copies read, compute their addresses as they go, and loops in loops.
#include "tests/codegen/pipelined_programs.h"

namespace kiln::testing {
namespace {

// ---- memory that others' copies read

void atomics(const Scene& t) {
  Tile s = shared_tile(), sum = zeros(), bins = alloc_shared({8}, I32);
  fill(bins, 0);
  Var tickets = 0;
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    for (auto [i, j] : parallel(kRows, kColumns)) atomic_add(bins(cast(s(i, j), I32) & 7), 1);
    auto before = atomic_add(t.counts(t.variant, t.block, k % 2), k + 1);
    tickets = tickets * 3 + before;
    add(s, sum);
  });
  for (auto i : parallel(8)) atomic_max(t.counts(t.variant, t.block, i), bins(i));
  finish(t, sum);
  t.z(t.variant, t.block, 0) = tickets;
}

void guarded_atomics(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var tickets = 0;
  t.loop(0, t.trips, [&](const Expr& k) {
    auto before = atomic_add(t.counts(t.variant, t.block, 3), t.flags(t.block, k));
    when((before + k) % 3 != 0, [&] {
      copy(t.a(tile_of(t, before), all, all), s);
      add(s, sum);
      tickets = tickets * 3 + atomic_exchange(t.counts(t.variant, t.block, k % 2), k);
    });
  });
  finish(t, sum);
  t.z(t.variant, t.block, 0) = tickets;
}

void copies_of_what_atomics_wrote(const Scene& t) {
  Tile s = alloc_shared({kColumns}, I32), sum = alloc_fragment({kColumns}, I32);
  clear(sum);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.state(t.variant, t.block, k, all), s);
    for (auto i : parallel(kColumns)) sum(i) += s(i);
    for (auto i : parallel(kColumns))
      atomic_add(t.state(t.variant, t.block, k + 1, i % 8), s(i) + 1);
  });
  copy(sum, t.state(t.variant, t.block, static_cast<int>(kTiles) - 1, all));
}

void copies_of_what_stores_wrote(const Scene& t) {
  Tile s = alloc_shared({kColumns}, I32);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.state(t.variant, t.block, k, all), s);
    for (auto i : parallel(kColumns))
      t.state(t.variant, t.block, k + 1, i) = s((i + 1) % static_cast<int>(kColumns)) + 1;
  });
}

void copies_of_what_copies_wrote(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.halves(t.variant, t.block, k, all, all), s);
    add(s, sum);
    for (auto [i, j] : parallel(kRows, kColumns)) s(i, j) = s(i, j) + 1;
    copy(s, t.halves(t.variant, t.block, k + 1, all, all));
  });
  finish(t, sum);
}

// ---- addresses

void linked_list(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var at = t.block;
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(at, all, all), s);
    add(s, sum);
    at = t.links(at) + k % 2;
  });
  finish(t, sum);
  t.z(t.variant, t.block, 0) = at;
}

void address_from_the_tile_before(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var at = t.block, next = 0;
  t.loop(0, t.trips, [&](const Expr&) {
    copy(t.a(at, all, all), s);
    next = cast(s(1, 3), I32);
    at = next + 1;
    add(s, sum);
  });
  finish(t, sum);
}

void page_table(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    Var page = Expr(t.pages(t.block, k));
    copy(t.a(page, all, all), s, {.pad = 5});
    add(s, sum);
  });
  finish(t, sum);
}

void page_table_in_shared_memory(const Scene& t) {
  Tile pages = alloc_shared({kTiles}, I32), s = shared_tile(), sum = zeros();
  copy(t.pages(t.block, all), pages);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(max(pages(k), 0), all, all), s);
    add(s, sum);
    pages(k + 1) = pages(k + 1) ^ 1;
  });
  finish(t, sum);
}

void page_table_in_a_fragment(const Scene& t) {
  Tile pages = alloc_fragment({kTiles}, I32), chosen = alloc_fragment({kTiles}, I32);
  Tile page = alloc_shared({1}, I32), s = shared_tile(), sum = zeros();
  copy(t.pages(t.block, all), pages);
  t.loop(0, t.trips, [&](const Expr& k) {
    for (auto i : parallel(kTiles)) chosen(i) = select(i == k, pages(i), 0);
    reduce_sum(chosen, page, 0);
    copy(t.a(page(0), all, all), s);
    add(s, sum);
  });
  finish(t, sum);
}

void gathered_rows(const Scene& t) {
  Tile rows = alloc_shared({kTiles}, I32), s = alloc_shared({kTiles, kColumns}, F16);
  Tile sum = alloc_fragment({kTiles, kColumns}, F32);
  clear(sum);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.pages((t.block + k) % static_cast<int>(kBlocks), all), rows);
    gather(t.a(k, all, all), rows, s, {.pad = 2});
    for (auto [i, j] : parallel(kTiles, kColumns)) sum(i, j) += cast(s(i, j), F32);
  });
  copy(sum, t.y(t.variant, t.block, span(0, kTiles), all));
}

// ---- bounds and other loops

void bounds_of_the_block(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  const auto step = [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    add(s, sum);
  };
  t.loop(t.block, t.block * 2 + t.trips, step);
  t.loop(t.block, t.trips - t.block, step);
  t.loop(min(t.trips, t.block), min(t.trips, t.flags(t.block, 3)), step);
  finish(t, sum);
}

void siblings(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    add(s, sum);
  });
  t.loop.deeper()(0, t.trips, [&](const Expr& k) {
    add(s, sum, 2);
    copy(t.wide(tile_of(t, k), all, all), s);
  });
  t.loop(1, t.trips, [&](const Expr& k) {
    copy(t.a(k, all, all), s);
    add(s, sum, 3);
  });
  finish(t, sum);
}

void nested(const Scene& t) {
  Tile a = shared_tile(), b = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), a);
    t.loop.deeper()(0, Expr(t.flags(t.block, k)) % 3, [&](const Expr& inner) {
      copy(t.a(inner + k % 4, all, all), b);
      for (auto [i, j] : parallel(kRows, kColumns))
        sum(i, j) += cast(a(i, j), F32) * cast(b(i, j), F32);
    });
    copy(t.a(k, all, all), b);
    add(b, sum);
  });
  finish(t, sum);
}

void inside_a_while_loop(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var round = 0;
  while_([&] { return round < t.flags(t.block, 1) % 3 + 1; },
         [&] {
           t.loop(0, t.trips, [&](const Expr& k) {
             copy(t.a((k + round) % static_cast<int>(kTiles), all, all), s);
             add(s, sum);
           });
           round += 1;
         });
  finish(t, sum);
}

void reductions(const Scene& t) {
  Tile s = shared_tile(), most = alloc_fragment({kRows}, F16), sum = alloc_fragment({kRows}, F32);
  fill(most, -1);
  fill(s, 2);
  clear(sum);
  t.loop(0, t.trips, [&](const Expr& k) {
    reduce_max(s, most, 1, false);
    copy(t.a(tile_of(t, k), all, all), s);
    reduce_sum(s, sum, 1, false);
    for (auto i : parallel(kRows)) sum(i) = sum(i) - cast(most(i), F32);
  });
  copy(sum, t.y(t.variant, t.block, all, 0));
}

}  // namespace

std::vector<PipelinedBody> bodies_of_addresses() {
  return {
      {"atomics", atomics},
      {"guarded_atomics", guarded_atomics},
      {"copies_of_what_atomics_wrote", copies_of_what_atomics_wrote},
      {"copies_of_what_stores_wrote", copies_of_what_stores_wrote},
      {"copies_of_what_copies_wrote", copies_of_what_copies_wrote},
      {"linked_list", linked_list},
      {"address_from_the_tile_before", address_from_the_tile_before},
      {"page_table", page_table},
      {"page_table_in_shared_memory", page_table_in_shared_memory},
      {"page_table_in_a_fragment", page_table_in_a_fragment},
      {"gathered_rows", gathered_rows},
      {"bounds_of_the_block", bounds_of_the_block},
      {"siblings", siblings},
      {"nested", nested},
      {"inside_a_while_loop", inside_a_while_loop},
      {"reductions", reductions},
  };
}

}  // namespace kiln::testing
