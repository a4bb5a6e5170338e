// Faults that others' users met around control flow, launches and reports (tests/OTHERS_BUGS.md).
#include "dsl/dsl.h"
#include "ir/canon.h"
#include "ir/print.h"
#include "tests/codegen/exact.h"
#include "tests/support/written_by.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded() {
  Check check;
  check.options.seed = random_seed();
  return check;
}

// Each block's own condition decides who writes shared memory, reduces, and goes round again.
Kernel barriers(bool watched) {
  return trace("barriers", [&] {
    Dim n = dim("n");
    Tensor x = input("x", F32, {n, 64}), limit = input("limit", I32, {n});
    Tensor y = output("y", F32, {n, 64});
    const Expr block = launch({n})[0];
    Tile s = alloc_shared({64}, F32), t = alloc_shared({64}, F32), most = alloc_shared({1}, F32);
    Tile f = alloc_fragment({64}, F32);
    copy(x(block, all), s);
    for (auto round : serial(limit(block) + 2)) {
      if (watched) watch(s, "s");
      when((round + limit(block)) % 2 == 0,
           [&] {
             for (auto i : parallel(64)) t(i) = s(63 - i);
             reduce_max(t, most, 0);
             when(most(0) > 3.f, [&] {
               for (auto i : parallel(64)) t((i + 1) % 64) = s(i) - most(0);
             });
           },
           [&] {
             for (auto i : parallel(64)) f(i) = s(i ^ 5);
             if (watched) watch(f, "f");
             copy(f, t);
           });
      for (auto i : parallel(64)) s(i) = t((i + 7) % 64) + 1.f;
    }
    copy(s, y(block, all));
  });
}

}  // namespace

TEST_CASE("shared memory between branches, reductions and rounds", "[control][others]") {
  for (int64_t n : {0, 1, 9}) {
    Check check = seeded();
    check.dims["n"] = n;
    CHECK(check_lowered(barriers(false), {check}) == "");
  }
}

TEST_CASE("what only one branch touched, and rounds that overlap", "[control][others]") {
  const Kernel kernel = trace("overlap", [&] {
    Tensor x = input("x", F32, {5, 256}), which = input("which", I32, {5});
    Tensor y = inout("y", F32, {5, 256}), z = output("z", F32, {5, 128});
    const Expr block = launch({5})[0];
    Tile s = alloc_shared({128}, F32), t = alloc_shared({128}, F32), u = alloc_shared({128}, F32);
    Tile f = alloc_fragment({128}, F32);
    copy(x(block, span(0, 128)), s);
    fill(t, 1);
    fill(u, 2);
    when(
        which(block) > 0,
        [&] {
          for (auto i : parallel(128)) f(i) = s(127 - i);
        },
        [&] {
          for (auto i : parallel(128)) t(127 - i) = s(i);
          for (auto i : parallel(128)) f(i) = u(i ^ 3);
        });
    for (auto i : parallel(128)) u(i) = t(i ^ 64) + f(i);
    copy(u, z(block, all));
    copy(x(block, all), y(block, all));
    for (auto round : serial(5)) {  // each writes half of what the one before wrote
      for (auto i : parallel(128)) u((i + 31) % 128) = s(i) + cast(round, F32);
      copy(u, y(block, span(round * 32, 128)));
      for (auto i : parallel(128)) y(block, round * 16 + (127 - i)) = u(i);
      copy(y(block, span(round * 24, 128)), s);
    }
    for (auto round : serial(5))  // with nothing else in between that would need a barrier
      for (auto i : parallel(128)) y(block, round * 16 + (127 - i)) = f(i) + cast(round, F32);
  });
  Check check = seeded();
  check.options.padded = false;
  CHECK(check_lowered(kernel, {seeded(), check}) == "");
}

// What is watched is as it was.
TEST_CASE("watching changes nothing", "[control][others]") {
  const Kernel with = barriers(true), without = barriers(false);
  const std::map<std::string, int64_t> dims = {{"n", 2}};
  RandomOptions options;
  options.low = 0, options.high = 2;
  RandomBindings expected(without, dims, {}, options);
  RandomBindings watched = expected;
  interpret(without, expected.bindings());
  Kernel lowered = with;
  if (on_host()) run_passes(lowered, pipeline_for(Tier::Host));
  for (const Level& level : levels()) {
    RandomBindings actual = watched;
    written_by([&] { level.compile(lowered)(actual.bindings()); });
    CHECK(actual.difference(expected) == "");
  }
}

TEST_CASE("one compilation serves every size, none and one included", "[control][others]") {
  const Kernel kernel = trace("sizes", [&] {
    Dim n = dim("n"), m = dim("m");
    Tensor x = input("x", F16, {n, m}), y = output("y", F32, {m, n}), z = output("z", F32, {n});
    auto [column, row, unused] = launch({ceildiv(m, 16), ceildiv(n, 16)});
    Tile s = alloc_shared({16, 16}, F16);
    copy(x(span(row * 16, 16), span(column * 16, 16)), s);
    for (auto [i, j] : parallel(16, 16)) y(column * 16 + j, row * 16 + i) = cast(s(i, j), F32);
    const Expr block = launch({ceildiv(n, 16)})[0];
    Tile part = alloc_shared({16, 16}, F16), sum = alloc_fragment({16}, F32);
    clear(sum);
    for (auto at : pipelined(ceildiv(m, 16), {.stages = 3})) {
      copy(x(span(block * 16, 16), span(at * 16, 16)), part);
      reduce_sum(part, sum, 1, false);
    }
    copy(sum, z(span(block * 16, 16)));
  });
  std::vector<Check> checks;
  for (auto [n, m] : {std::pair(0, 5), {5, 0}, {0, 0}, {1, 1}, {16, 16}, {17, 15}, {40, 33}}) {
    checks.push_back(seeded());
    checks.back().dims = {{"n", n}, {"m", m}};
  }
  CHECK(check_lowered(kernel, checks) == "");
}

// What was compiled before leaves no trace: the passes' text is the same, in any order.
TEST_CASE("lowering depends on the kernel alone", "[control][others]") {
  const auto text = [](Kernel kernel, Tier tier) {
    kernel.target = tier == Tier::Host ? "" : "sm_80";
    run_passes(kernel, pipeline_for(tier));
    return print(kernel);
  };
  const auto other = [] {
    return trace("other", [&] {
      Tensor a = input("a", F16, {64, 64}), c = output("c", F32, {64, 64});
      launch({1});
      Tile s = alloc_shared({64, 64}, F16), sum = alloc_fragment({64, 64}, F32);
      copy(a, s);
      gemm(s, s, sum, {.clear = true});
      copy(sum, c);
    });
  };
  for (Tier tier : {Tier::Host, Tier::Sm80}) {
    const std::string first = text(canonical(barriers(false)), tier);
    const std::string second = text(canonical(other()), tier);
    CHECK(text(canonical(barriers(false)), tier) == first);
    CHECK(text(canonical(other()), tier) == second);
  }
}
