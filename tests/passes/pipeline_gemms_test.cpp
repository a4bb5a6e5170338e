// A gemm computed a round ahead changes no bit, whatever the number of rounds, the slots and what
// else a round does; it leaves no race, and where it cannot be done nothing changes.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/walk.h"
#include "passes/pipeline.h"
#include "tests/passes/race_check.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

using testing::RaceCheck;
using testing::RandomBindings;

// Of a loop over n, or a selection of it: a round fetches two tiles, multiplies with the first,
// does something with the rows and multiplies with the second. Lines of `extra` come before the ops
// of these numbers: 0 the first copy … 4 the second gemm, 5 the end.
struct Program {
  int64_t stages = 2;
  int64_t m = 16, n1 = 32, k1 = 16, n2 = 24;  // the gemms' extents
  std::string schedule = "overlap";
  std::string loop = "for %zero, %n, %one {{kind = pipelined, stages = {}, schedule = {}}}";
  std::multimap<int, std::string> extra = {};

  std::string text() const {
    const auto before = [&](int place) {
      std::string lines;
      const auto [begin, end] = extra.equal_range(place);
      for (auto line = begin; line != end; ++line) lines += "      " + line->second + "\n";
      return lines;
    };
    return fmt::format(
        R"(kernel @rounds {{
  %n = dim {{name = "n"}} : i32
  %mask = tensor %n {{name = "mask"}} : tensor bool[?]
  %q = tensor {{name = "q"}} : tensor f16[{m}, {k1}]
  %x = tensor %n {{name = "x"}} : tensor f16[?, {n1}, {k1}]
  %z = tensor %n {{name = "z"}} : tensor f16[?, {n1}, {n2}]
  %y = tensor {{name = "y", role = output}} : tensor f32[{m}, {n2}]
  %g = tensor %n {{name = "g", role = inout}} : tensor f32[?, {m}, {n1}]
  %one = const {{value = 1}} : i32
  launch %one do |%b: i32| {{
    %zero = const {{value = 0}} : i32
    %two = const {{value = 2}} : i32
    %quarter = const {{value = 0.25}} : f32
    %a = alloc : shared f16[{m}, {k1}]
    %k = alloc : shared f16[{n1}, {k1}]
    %v = alloc : shared f16[{n1}, {n2}]
    %s = alloc : fragment f32[{m}, {n1}]
    %t = alloc : fragment f32[{m}, {n1}]
    %p = alloc : fragment f16[{m}, {n1}]
    %top = alloc : fragment f32[{m}]
    %most = alloc : fragment f32[{m}]
    %acc = alloc : fragment f32[{m}, {n2}]
    %count = alloc : fragment i32[]
    %whole = slice %q, %zero, %zero : view global f16[{m}, {k1}]
    copy %whole, %a
    fill %zero, %acc
    fill %zero, %t
    parallel {{extents = [{m}]}} do |%r: i32| {{
      %e = load %a, %r, %zero : f16
      store %e, %most, %r
    }}
    store %zero, %count
    {head} do |%i: i32| {{
{e0}      %in = slice %x, %i, %zero, %zero : view global f16[1, {n1}, {k1}]
      copy %in, %k
{e1}      gemm %a, %k, %s {{transpose_b = true, clear = true}}
{e2}      reduce %s, %top {{kind = max, dim = 1}}
      parallel {{extents = [{m}, {n1}]}} do |%r: i32, %c: i32| {{
        %e = load %s, %r, %c : f32
        %o = load %top, %r : f32
        %d = sub %e, %o : f32
        %f = mul %d, %quarter : f32
        store %f, %p, %r, %c
      }}
{e3}      %next = slice %z, %i, %zero, %zero : view global f16[1, {n1}, {n2}]
      copy %next, %v
{e4}      gemm %p, %v, %acc
      parallel {{extents = [{m}]}} do |%r: i32| {{
        %e = load %top, %r : f32
        %f = load %most, %r : f32
        %d = max %e, %f : f32
        store %d, %most, %r
      }}
{e5}    }}
    parallel {{extents = [{m}, {n2}]}} do |%r: i32, %c: i32| {{
      %e = load %acc, %r, %c : f32
      %f = load %most, %r : f32
      %d = add %e, %f : f32
      store %d, %acc, %r, %c
    }}
    %out = slice %y, %zero, %zero : view global f32[{m}, {n2}]
    copy %acc, %out
  }}
}}
)",
        fmt::arg("m", m), fmt::arg("n1", n1), fmt::arg("k1", k1), fmt::arg("n2", n2),
        fmt::arg("head", fmt::format(fmt::runtime(loop), stages, schedule)),
        fmt::arg("e0", before(0)), fmt::arg("e1", before(1)), fmt::arg("e2", before(2)),
        fmt::arg("e3", before(3)), fmt::arg("e4", before(4)), fmt::arg("e5", before(5)));
  }
};

Kernel lowered(const std::string& text, const std::string& without = "") {
  Kernel kernel = parse(text);
  kernel.target = "sm_90";
  kernel.without = without;
  run_passes(kernel, passes_for(kernel, Tier::Sm80), {.verify_each = true, .after_each = {}});
  return kernel;
}

std::string loop_reason(const Kernel& kernel) {
  std::string reason;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::For && op.word("schedule") != "auto") reason = op.word("reason");
  });
  return reason;
}
bool is_ahead(const Kernel& kernel) {
  return loop_reason(kernel).find("computed a round ahead") != std::string::npos;
}

// All that the kernels write is the same, bit for bit.
std::string difference(const Kernel& one, const Kernel& other, int64_t rounds, uint64_t seed) {
  testing::RandomOptions options;
  options.seed = seed;
  options.integers = false;
  const RandomBindings inputs(one, {{"n", rounds}}, {}, options);
  RandomBindings expected = inputs, got = inputs;
  interpret(one, expected.bindings());
  interpret(other, got.bindings());
  if (!got.damage().empty()) return got.damage();
  return got.difference(expected, 0.0);
}

TEST_CASE("gemms a round ahead: any number of rounds and slots, and shapes") {
  for (int64_t stages : {1, 2, 3, 4, 5})
    for (bool selected : {false, true})
      for (int64_t wide : {16, 32}) {
        Program program{.stages = stages, .n1 = 48 - wide, .k1 = wide};
        if (selected)
          program.loop = "selected %mask {{stages = {}, schedule = {}, ordered = true}}";
        const std::string text = program.text();
        const Kernel before = parse(text), after = lowered(text);
        const Kernel serial = lowered(text, "pipeline_gemms");
        CHECK(is_ahead(after));
        CHECK(!is_ahead(serial));
        for (int64_t rounds = 0; rounds <= 6; ++rounds) {
          INFO("stages " << stages << ", selected " << selected << ", rounds " << rounds);
          CHECK(difference(serial, after, rounds, 1) == "");
          CHECK(difference(before, after, rounds, 2) == "");
        }
      }
}

TEST_CASE("gemms a round ahead have no races, and no wait or barrier for nothing") {
  for (int64_t stages : {2, 3}) {
    INFO("stages " << stages);
    const Kernel kernel = lowered(Program{.stages = stages}.text());
    REQUIRE(is_ahead(kernel));
    CHECK(RaceCheck(kernel, 300).find() == "");
    int mutants = 0;
    testing::for_each_mutant(kernel, [&](const Kernel& mutant, const std::string& what) {
      INFO(what << "\n" << print(mutant));
      ++mutants;
      CHECK(RaceCheck(mutant, 300).find() != "");
    });
    CHECK(mutants >= 4);
  }
}

TEST_CASE("one wait a round, as without") {
  const auto waits_in_loop = [](const Kernel& kernel) {
    int waits = 0;
    walk(kernel, kernel.body, [&](OpId id) {
      const Op& op = kernel.op(id);
      if (op.code != OpCode::For || op.word("schedule") == "auto") return;
      for (OpId inner : kernel.region(op.regions[0]).ops)
        waits += kernel.op(inner).code == OpCode::WaitCopies;
    });
    return waits;
  };
  const std::string text = Program{.stages = 3}.text();
  CHECK(waits_in_loop(lowered(text, "pipeline_gemms")) == 1);
  CHECK(waits_in_loop(lowered(text)) == 2);  // of two rounds
}

TEST_CASE("gemms a round ahead only if no block has to go") {
  const std::string large =
      Program{.m = 128, .n1 = 128, .k1 = 64, .n2 = 256, .schedule = "auto"}.text();
  const std::string small =
      Program{.stages = 4, .m = 64, .n1 = 32, .k1 = 256, .n2 = 128, .schedule = "auto"}.text();
  const auto reason = [](const std::string& text) {
    const Kernel kernel = lowered(text);
    std::string found;
    walk(kernel, kernel.body, [&](OpId id) {
      if (kernel.op(id).code == OpCode::For && kernel.op(id).word("kind") == "pipelined")
        found = kernel.op(id).word("reason");
    });
    return found;
  };
  CHECK_THAT(reason(large), Catch::Contains("gemms of two rounds do not overlap: it would take") &&
                                Catch::Contains("registers a thread instead of"));
  CHECK_THAT(reason(small), Catch::Contains("is computed a round ahead: about"));
}

// What may be added to a round, at places where all that is read has been written. Some are in the
// way.
Program random_program(std::mt19937_64& random) {
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  const auto elements = [](const std::string& from, const std::string& to, const char* type) {
    const std::string cast =
        std::string(type) == "f16" ? "%w = cast %e : f32" : "%w = add %e, %e : f32";
    return fmt::format(
        "parallel {{extents = [16, 32]}} do |%r: i32, %c: i32| {{\n%e = load {0}, %r, %c : "
        "{2}\n{3}\n"
        "%h = mul %w, %quarter : f32\nstore %h, {1}, %r, %c\n}}",
        from, to, type, cast);
  };
  int names = 0;
  const auto guarded = [&](const std::string& op) {
    return fmt::format("%few{0} = compare %i, %two {{kind = lt}} : bool\nif %few{0} do {{\n{1}\n}}",
                       ++names, op);
  };
  const auto view = [&](const char* use) {
    return fmt::format("%g{0} = slice %g, %i, %zero, %zero : view global f32[1, 16, 32]\n",
                       ++names) +
           fmt::format(fmt::runtime(use), names);
  };
  Program program{.stages = 1 + below(4)};
  for (int more = below(5); more-- > 0;) {
    const int place = below(6);
    switch (below(11)) {
      case 0:
        if (place >= 2) program.extra.emplace(place, guarded(elements("%s", "%s", "f32")));
        break;
      case 1:
        if (place >= 2) program.extra.emplace(place, elements("%s", "%t", "f32"));
        break;
      case 2: program.extra.emplace(place, elements("%t", "%t", "f32")); break;
      case 3:  // read by the head, if it stands there
        program.extra.emplace(place, fmt::format("%co{0} = load %count : i32\n"
                                                 "%cn{0} = add %co{0}, %one : i32\n"
                                                 "store %cn{0}, %count",
                                                 ++names));
        break;
      case 4:
        if (place >= 4) program.extra.emplace(place, "gemm %p, %v, %acc");
        break;
      case 5:
        if (place >= 2) program.extra.emplace(place, "gemm %a, %k, %s {transpose_b = true}");
        break;
      case 6:
        if (place >= 1) program.extra.emplace(place, "gemm %a, %k, %t {transpose_b = true}");
        break;
      case 7: program.extra.emplace(place, view("copy %t, %g{0}")); break;
      case 8: program.extra.emplace(place, view("copy %g{0}, %t")); break;
      case 9: program.extra.emplace(place, guarded("fill %quarter, %t")); break;
      default: program.extra.emplace(place, guarded("fill %quarter, %a")); break;
    }
  }
  return program;
}

TEST_CASE("random rounds with two gemms give the same bits") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int ahead = 0, declined = 0, invalid = 0;
  // More until there are enough of each.
  for (int i = 0; i < 60 || (i < 600 && (ahead < 15 || declined < 5)); ++i) {
    const std::string text = random_program(random).text();
    INFO(text);
    Kernel before("");
    try {
      before = parse(text);
      interpret(before, RandomBindings(before, {{"n", 3}}).bindings());
    } catch (const UserError&) {
      ++invalid;  // reads what was never written
      continue;
    }
    const Kernel after = lowered(text), serial = lowered(text, "pipeline_gemms");
    (is_ahead(after) ? ahead : declined) += 1;
    INFO(loop_reason(after));
    for (int64_t rounds : {0, 1, 2, 3, 4, 5})
      CHECK(difference(serial, after, rounds, random()) == "");
    if (is_ahead(after)) CHECK(RaceCheck(after, 60).find() == "");
  }
  INFO("ahead " << ahead << ", declined " << declined << ", invalid " << invalid);
  CHECK(ahead >= 15);
  CHECK(declined >= 5);
}

}  // namespace
}  // namespace kiln
