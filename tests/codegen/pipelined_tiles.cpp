// Bodies that use the tile that a copy fills in other ways as well, or copy under conditions.
#include "tests/codegen/pipelined_programs.h"

namespace kiln::testing {
namespace {

// ---- the tile that a copy fills is used in other ways as well

void copy_and_add(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    add(s, sum);
  });
  finish(t, sum);
}

void copy_to_fragment(const Scene& t) {
  Tile s = alloc_fragment({kRows, kColumns}, F16), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    add(s, sum);
  });
  finish(t, sum);
}

void converting_copy(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.wide(tile_of(t, k), all, all), s);
    add(s, sum);
  });
  finish(t, sum);
}

void gemm_of_two_copies(const Scene& t) {
  Tile a = shared_tile(), b = alloc_shared({kColumns, kRows}, F16);
  Tile sum = alloc_fragment({kRows, kRows}, F32);
  clear(sum);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), a);
    copy(t.b(k, all, all), b);
    gemm(a, b, sum);
  });
  copy(sum, t.y(t.variant, t.block, all, span(0, kRows)));
}

void dependent_gemms(const Scene& t) {
  Tile q = shared_tile(), a = shared_tile(), b = alloc_shared({kColumns, kRows}, F16);
  Tile s = alloc_fragment({kRows, kRows}, F32), p = alloc_fragment({kRows, kRows}, F16);
  Tile sum = zeros();
  copy(t.a(t.block, all, all), q);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.b(tile_of(t, k), all, all), b);
    gemm(q, b, s, {.clear = true});
    for (auto [i, j] : parallel(kRows, kRows)) p(i, j) = max(min(s(i, j), 8.f), 0.f);
    copy(t.a(tile_of(t, k), all, all), a);
    gemm(p, a, sum);
  });
  finish(t, sum);
}

// The tile is read before it is filled: what round k adds is what round k - 1 copied.
void add_then_copy(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  fill(s, 100);
  t.loop(0, t.trips, [&](const Expr& k) {
    add(s, sum);
    copy(t.a(tile_of(t, k), all, all), s);
  });
  finish(t, sum);
}

void fragment_read_before_it_is_filled(const Scene& t) {
  Tile s = alloc_fragment({kRows, kColumns}, F16), sum = zeros();
  copy(t.a(t.block, all, all), s);
  t.loop(0, t.trips, [&](const Expr& k) {
    add(s, sum, 2);
    when(t.mask(t.block, k), [&] { copy(t.a(tile_of(t, k), all, all), s); });
  });
  add(s, sum);
  finish(t, sum);
}

void two_copies_into_one_tile(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    add(s, sum);
    copy(t.a(k, all, all), s);
    add(s, sum, 3);
  });
  finish(t, sum);
}

void copied_again_in_place(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s);
    for (auto [i, j] : parallel(kRows, kColumns)) s(i, j) = s(i, j) * 2;
    add(s, sum);
    copy(t.a(k, span(0, 8), all), s(span(8, 8), all));
    add(s, sum);
  });
  finish(t, sum);
}

void read_after_the_loop(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var last = -1;
  fill(s, 7);
  t.loop(0, t.trips, [&](const Expr& k) {
    add(s, sum);
    copy(t.a(tile_of(t, k), all, all), s);
    last = k;
  });
  add(s, sum, 5);
  finish(t, sum);
  t.z(t.variant, t.block, 0) = last;
}

// A tile that keeps what the round before left: the reader's own double buffer, in two spellings.
void rotated_by_hand(const Scene& t) {
  Tile now = shared_tile(), next = shared_tile(), sum = zeros();
  copy(t.a(t.block, all, all), next);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(next, now);
    copy(t.a(tile_of(t, k + 1), all, all), next);
    add(now, sum);
  });
  add(next, sum, 3);
  finish(t, sum);
}

void two_halves_in_turn(const Scene& t) {
  Tile s = alloc_shared({2, kRows, kColumns}, F16), sum = zeros();
  fill(s, 3);
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.a(tile_of(t, k), all, all), s(k % 2, all, all));
    for (auto [i, j] : parallel(kRows, kColumns)) sum(i, j) += cast(s((k + 1) % 2, i, j), F32);
  });
  finish(t, sum);
}

// ---- guards

void guarded_body(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    when(t.flags(t.block, k) > 2, [&] {
      copy(t.a(tile_of(t, k), all, all), s);
      add(s, sum);
    });
  });
  finish(t, sum);
}

void guarded_copy(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  fill(s, 2);
  t.loop(0, t.trips, [&](const Expr& k) {
    when(t.mask(t.block, k), [&] { copy(t.a(tile_of(t, k), all, all), s); });
    add(s, sum);
  });
  finish(t, sum);
}

void two_branches(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  fill(s, 4);
  t.loop(0, t.trips, [&](const Expr& k) {
    when(
        t.mask(t.block, k), [&] { copy(t.a(tile_of(t, k), all, all), s); },
        [&] {
          add(s, sum, 2);
          copy(t.wide(k, all, all), s);
        });
    add(s, sum);
  });
  finish(t, sum);
}

void guard_that_the_body_changes(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  Var taken = 0;
  t.loop(0, t.trips, [&](const Expr& k) {
    when(t.flags(t.block, k) > 0 && taken < 3, [&] {
      copy(t.a(tile_of(t, k), all, all), s);
      add(s, sum);
      taken += Expr(t.flags(t.block, k)) % 2 + 1;
    });
  });
  finish(t, sum);
  t.z(t.variant, t.block, 0) = taken;
}

void guard_from_a_copied_tile(const Scene& t) {
  Tile flags = alloc_shared({kTiles}, I32), s = shared_tile(), sum = zeros();
  t.loop(0, t.trips, [&](const Expr& k) {
    copy(t.flags(tile_of(t, k) % static_cast<int>(kBlocks), all), flags);
    copy(t.a(k, all, all), s);
    when(flags(k) > 3, [&] { add(s, sum); });
  });
  finish(t, sum);
}

void loop_under_a_guard(const Scene& t) {
  Tile s = shared_tile(), sum = zeros();
  when(t.flags(t.block, 0) > 1, [&] {
    t.loop(0, t.trips, [&](const Expr& k) {
      copy(t.a(tile_of(t, k), all, all), s);
      add(s, sum);
    });
  });
  finish(t, sum);
}

}  // namespace

std::vector<PipelinedBody> bodies_of_tiles() {
  return {
      {"copy_and_add", copy_and_add},
      {"copy_to_fragment", copy_to_fragment},
      {"converting_copy", converting_copy},
      {"gemm_of_two_copies", gemm_of_two_copies},
      {"dependent_gemms", dependent_gemms},
      {"add_then_copy", add_then_copy},
      {"fragment_read_before_it_is_filled", fragment_read_before_it_is_filled},
      {"two_copies_into_one_tile", two_copies_into_one_tile},
      {"copied_again_in_place", copied_again_in_place},
      {"read_after_the_loop", read_after_the_loop},
      {"rotated_by_hand", rotated_by_hand},
      {"two_halves_in_turn", two_halves_in_turn},
      {"guarded_body", guarded_body},
      {"guarded_copy", guarded_copy},
      {"two_branches", two_branches},
      {"guard_that_the_body_changes", guard_that_the_body_changes},
      {"guard_from_a_copied_tile", guard_from_a_copied_tile},
      {"loop_under_a_guard", loop_under_a_guard},
  };
}

}  // namespace kiln::testing
