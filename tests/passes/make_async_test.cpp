// Fetching ahead changes no result, whatever the number of rounds and slots, and leaves no race;
// each wait and barrier that orders a ring is needed; any pass that may be left out may be.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/dependence.h"
#include "passes/pipeline.h"
#include "tests/passes/race_check.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using testing::RaceCheck;
using testing::RandomBindings;

// The dtypes of the tensors: the tiles' own, f32, comes by cp.async, others through registers.
struct Sources {
  const char* x = "f32";
  const char* z = "f32";

  bool async() const { return std::string_view(x) == "f32" || std::string_view(z) == "f32"; }
};
constexpr Sources kSources[] = {{}, {"f16", "f32"}, {"f32", "f16"}, {"f64", "i8"}};

// Two tiles a round, one of them in a branch if `guarded`; a loop around runs all of it twice.
std::string stream(int64_t stages, bool guarded, int64_t step, const Sources& sources = {}) {
  const char* open = guarded ? "%set = load %mask, %i : bool\nif %set do {" : "";
  const char* close = guarded ? "}" : "";
  return fmt::format(R"(kernel @stream {{target = "sm_80"}} {{
  %n = dim {{name = "n"}} : i32
  %mask = tensor %n {{name = "mask"}} : tensor bool[?]
  %x = tensor %n {{name = "x"}} : tensor {4}[?, 16]
  %z = tensor %n {{name = "z"}} : tensor {5}[?, 16]
  %y = tensor {{name = "y", role = output}} : tensor f32[2, 16]
  %one = const {{value = 1}} : i32
  launch %one do |%b: i32| {{
    %zero = const {{value = 0}} : i32
    %two = const {{value = 2}} : i32
    %step = const {{value = {0}}} : i32
    %s = alloc : shared f32[1, 16]
    %t = alloc : shared f32[1, 16]
    %f = alloc : fragment f32[1, 16]
    fill %zero, %f
    for %zero, %two, %one do |%r: i32| {{
      for %zero, %n, %step {{kind = pipelined, stages = {1}}} do |%i: i32| {{
        %from_x = slice %x, %i, %zero : view global {4}[1, 16]
        copy %from_x, %s
        {2}
          %from_z = slice %z, %i, %zero : view global {5}[1, 16]
          copy %from_z, %t
          parallel {{extents = [1, 16]}} do |%j: i32, %k: i32| {{
            %a = load %t, %j, %k : f32
            %old = load %f, %j, %k : f32
            %sum = add %old, %a : f32
            store %sum, %f, %j, %k
          }}
        {3}
        parallel {{extents = [1, 16]}} do |%j: i32, %k: i32| {{
          %a = load %s, %j, %k : f32
          %old = load %f, %j, %k : f32
          %half = sub %a, %old : f32
          store %half, %f, %j, %k
        }}
      }}
      %to = slice %y, %r, %zero : view global f32[1, 16]
      copy %f, %to
    }}
  }}
}}
)",
                     step, stages, open, close, sources.x, sources.z);
}

Kernel lowered(Kernel kernel) {
  run_passes(kernel, passes_for(kernel, Tier::Sm80), {.verify_each = true, .after_each = {}});
  return kernel;
}

std::string difference(const Kernel& before, const Kernel& after,
                       const std::map<std::string, int64_t>& dims) {
  testing::RandomOptions options;
  options.integers = true;
  const RandomBindings inputs(before, dims, {}, options);
  RandomBindings expected = inputs, got = inputs;
  interpret(before, expected.bindings());
  interpret(after, got.bindings());
  if (!got.damage().empty()) return got.damage();
  return got.difference(expected, 0.0);
}

int64_t count_of(const Kernel& kernel, OpCode code) {
  int64_t count = 0;
  walk(kernel, kernel.body, [&](OpId id) { count += kernel.op(id).code == code; });
  return count;
}

TEST_CASE("any number of rounds with any number of slots") {
  for (const Sources& sources : kSources)
    for (int64_t stages : {1, 2, 3, 4, 5})
      for (bool guarded : {false, true})
        for (int64_t step : {1, 3}) {
          const Kernel kernel = parse(stream(stages, guarded, step, sources));
          const Kernel after = lowered(kernel);
          CHECK((count_of(after, OpCode::CommitCopies) > 0) == (stages >= 2 && sources.async()));
          for (int64_t rounds = 0; rounds <= stages + 2; ++rounds) {
            INFO("stages " << stages << ", guarded " << guarded << ", step " << step << ", rounds "
                           << rounds << ", of " << sources.x << " and " << sources.z);
            CHECK(difference(kernel, after, {{"n", rounds * step}}) == "");
          }
        }
}

TEST_CASE("rings have no races, and no wait or barrier for nothing") {
  for (const Sources& sources : kSources)
    for (int64_t stages : {2, 3, 4})
      for (bool guarded : {false, true}) {
        INFO("stages " << stages << ", guarded " << guarded << ", of " << sources.x << " and "
                       << sources.z);
        const Kernel kernel = lowered(parse(stream(stages, guarded, 1, sources)));
        CHECK(RaceCheck(kernel).find() == "");
        int mutants = 0, idle = 0;
        std::string nothing;
        testing::for_each_mutant(kernel, [&](const Kernel& mutant, const std::string& what) {
          ++mutants;
          if (RaceCheck(mutant).find() != "") return;
          ++idle;
          nothing += what + "\n" + print(mutant);
        });
        INFO(nothing);
        CHECK(idle == 0);
        CHECK(mutants >= (sources.async() ? 3 : 1));
      }
}

// A thread waits once a round for what comes through registers: what fills a slot at the end of the
// round comes after the barrier of its pop, and all of the slot's readers before that.
TEST_CASE("registers cost no barrier more than cp.async") {
  const auto barriers = [&](const Sources& sources) {
    return count_of(lowered(parse(stream(3, false, 1, sources))), OpCode::Barrier);
  };
  for (const Sources& sources : kSources) CHECK(barriers(sources) == barriers({}));
}

std::vector<Kernel> kernels_of_files() {
  std::vector<Kernel> kernels;
  for (const char* folder : {"make_async", "compact_selected", "issue_copies_early"})
    for (const auto& entry : fs::directory_iterator(fs::path(KILN_TESTS_DIR) / "files" / folder)) {
      std::ifstream in(entry.path());
      std::stringstream text;
      text << in.rdbuf();
      Kernel kernel = parse(text.str(), entry.path().filename().string());
      kernel.name = entry.path().stem().string();
      kernel.target = "sm_90";
      kernels.push_back(std::move(kernel));
    }
  return kernels;
}

TEST_CASE("the files of what is fetched ahead have no races after the whole pipeline") {
  for (const Kernel& kernel : kernels_of_files()) {
    if (kernel.name == "fits") continue;  // too large for the rest of the pipeline
    INFO(kernel.name);
    CHECK(RaceCheck(lowered(kernel), 500).find() == "");
  }
}

TEST_CASE("each pass that may be left out may be") {
  const std::map<std::string, int64_t> dims = {{"n", 5}};
  for (const Pass& pass : all_passes()) {
    if (!pass.optional) {
      CHECK_THROWS_AS(passes_left_out({std::string(pass.name)}), UserError);
      continue;
    }
    for (bool guarded : {false, true}) {
      INFO(pass.name << ", guarded " << guarded);
      Kernel kernel = parse(stream(3, guarded, 1));
      kernel.without = pass.name;
      const Kernel after = lowered(kernel);
      CHECK(difference(kernel, after, dims) == "");
      CHECK(RaceCheck(after, 300).find() == "");
      CHECK((count_of(after, OpCode::CommitCopies) == 0) == (pass.name == "make_async"));
    }
  }
  CHECK(passes_left_out({"make-async", "simplify"}) == "make_async simplify");
  CHECK_THROWS_WITH(passes_left_out({"make_it_fast"}), Catch::Matchers::Contains("make_it_fast") &&
                                                           Catch::Matchers::Contains("make_async"));
}

TEST_CASE("what depends on what") {
  const Kernel kernel = parse(R"(kernel @k {
  %x = tensor {name = "x", role = inout} : tensor i32[4]
  %yes = const {value = true} : bool
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %v = alloc : fragment i32[]
    store %one, %v
    %a = load %v : i32
    %c = load %v : i32
    store %c, %v
    %old = atomic %one, %x, %one {kind = add} : i32
    %d = load %x, %a : i32
    if %yes do {
      store %d, %x, %one
    }
  }
})");
  std::vector<const Op*> ops;
  for (OpId id : kernel.region(kernel.op(kernel.region(kernel.body).ops.back()).regions[0]).ops)
    ops.push_back(&kernel.op(id));
  enum : size_t { Alloc, Store, LoadA, LoadC, Again, Atomic, LoadX, Branch };
  using Kind = Dependence::Kind;
  const auto kind = [&](size_t earlier, size_t later) -> std::optional<Kind> {
    auto found = dependence(kernel, *ops.at(earlier), *ops.at(later));
    return found ? std::optional(found->kind) : std::nullopt;
  };
  CHECK(kind(Alloc, Store) == Kind::Value);
  CHECK(kind(Store, LoadA) == Kind::ReadAfterWrite);
  CHECK(kind(LoadA, LoadC) == std::nullopt);
  CHECK(kind(LoadA, Again) == Kind::WriteAfterRead);
  CHECK(kind(LoadC, Again) == Kind::Value);
  CHECK(kind(Store, Again).has_value());
  CHECK(kind(Again, Atomic) == std::nullopt);
  CHECK(kind(Atomic, LoadX) == Kind::ReadAfterWrite);
  CHECK(kind(LoadA, LoadX) == Kind::Value);
  CHECK(kind(Atomic, Branch).has_value());
  CHECK(kind(LoadX, Branch) == Kind::Value);
  CHECK(kind(Again, Branch) == std::nullopt);
}

}  // namespace
}  // namespace kiln
