// The late IR on the host: roles take turns, and compute what the interpreter does.
#include <catch2/catch.hpp>

#include "ir/error.h"
#include "ir/parse.h"
#include "runtime/runtime.h"
#include "runtime/thread_pool.h"
#include "tests/codegen/harness.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::testing;
using Catch::Matchers::Contains;

namespace {

Check check_of(std::map<std::string, int64_t> dims, uint64_t seed) {
  Check check;
  check.dims = std::move(dims);
  check.options.seed = seed;
  return check;
}

// Every block and every tile that it takes adds 1 to the tile's place.
std::string tiles_text(bool dynamic) {
  const std::string counter = dynamic ? ", %counter" : "";
  return R"ir(kernel @tiles {
  %n = dim {name = "n"} : i32
  %ctas = dim {name = "ctas"} : i32
  %y = tensor %n {name = "y", role = inout} : tensor i32[?]
  %counter = tensor {name = "counter", role = workspace} : tensor i32[1]
  %blocks = const {value = 1} : i32
  launch %blocks do |%only: i32| {
    %start = const {value = 0} : i32
    store %start, %counter, %start
  }
  launch %ctas do |%cta: i32| {
    %ring = channel {slots = 2, message = "tile:i32"} : channel i32[]
    %one = const {value = 1} : i32
    %minus = const {value = -1} : i32
    %second = next_tile %cta)ir" +
         counter + R"ir( : i32
    roles {names = "producer consumer", warps = [1, 1], registers = [40, 216]} do {
      %tile = alloc : fragment i32[]
      %next = alloc : fragment i32[]
      store %cta, %tile
      store %second, %next
      loop do {
        %t = load %tile : i32
        %over = compare %t, %n {kind = ge} : bool
        exit_if %over do {
          %end = push_begin %ring : shared i32[]
          push_end %ring, %end, %minus
        }
        %slot = push_begin %ring : shared i32[]
        push_end %ring, %slot, %t
        %t1 = load %next : i32
        store %t1, %tile
        %t2 = next_tile %t1)ir" +
         counter + R"ir( : i32
        store %t2, %next
      }
    } do {
      loop do {
        %slot = pop %ring : shared i32[]
        %t = message %slot {field = "tile"} : i32
        release %ring, %slot
        %zero = const {value = 0} : i32
        %end = compare %t, %zero {kind = lt} : bool
        exit_if %end do {
        }
        %before = load %y, %t : i32
        %after = add %before, %one : i32
        store %after, %y, %t
      }
    }
  }
}
)ir";
}

// `pushes` slots into a ring of two, `pops` out of it; the consumer releases if it is told to.
std::string stream_text(int pushes, int pops, bool releases) {
  const std::string release = releases ? "        release %ring, %b\n" : "";
  return fmt::format(R"ir(kernel @stream {{
  %y = tensor {{name = "y", role = output}} : tensor f32[4]
  %blocks = const {{value = 1}} : i32
  launch %blocks do |%only: i32| {{
    %ring = channel {{slots = 2}} : channel f32[4]
    %zero = const {{value = 0}} : i32
    %one = const {{value = 1}} : i32
    %pushes = const {{value = {}}} : i32
    %pops = const {{value = {}}} : i32
    %value = const {{value = 3.0}} : f32
    roles {{names = "feeder eater", warps = [4, 4], registers = [216, 216]}} do {{
      for %zero, %pushes, %one do |%i: i32| {{
        %a = push_begin %ring : shared f32[4]
        fill %value, %a
        push_end %ring, %a
      }}
    }} do {{
      for %zero, %pops, %one do |%j: i32| {{
        %b = pop %ring : shared f32[4]
        copy %b, %y
{}      }}
    }}
  }}
}}
)ir",
                     pushes, pops, release);
}

std::string device_error(const std::string& text) {
  const Kernel kernel = parse(text, "stream.tile");
  RandomBindings bindings(kernel);
  try {
    run_host(kernel, bindings.bindings(), compile_host(kernel));
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("late files on the host: a ring, for 0 to 2·slots + 1 tiles and ragged ends", "[late]") {
  if (!on_host()) return;
  std::vector<Check> checks;
  for (int64_t tiles = 0; tiles <= 7; ++tiles)
    for (int64_t ragged : {0, 1, 33}) checks.push_back(check_of({{"n", 64 * tiles + ragged}}, 7));
  CHECK(check_program(late_kernel(KILN_TESTS_DIR, "copy_ring.tile"), checks) == "");
  CHECK(check_program(late_kernel(KILN_TESTS_DIR, "dead_slot.tile"), checks) == "");
}

TEST_CASE("late files on the host: a stream with messages", "[late]") {
  if (!on_host()) return;
  const uint64_t seed = random_seed();
  std::vector<Check> checks;
  for (int64_t n = 0; n <= 9; ++n)
    checks.push_back(check_of({{"n", n}, {"rows", 3}}, seed + static_cast<uint64_t>(n)));
  CHECK(check_program(late_kernel(KILN_TESTS_DIR, "messages.tile"), checks) == "");
}

TEST_CASE("late files on the host: gemms with a producer", "[late]") {
  if (!on_host()) return;
  std::vector<Check> checks;
  for (auto [m, n, k] : {std::tuple{1, 1, 1}, {64, 64, 64}, {65, 130, 200}, {100, 40, 0}})
    checks.push_back(check_of({{"m", m}, {"n", n}, {"k", k}}, 3));
  CHECK(check_program(late_kernel(KILN_TESTS_DIR, "gemm_producer.tile"), checks) == "");
  checks.clear();
  for (auto [m, n, k, ctas] : {std::tuple{130, 257, 40, 1}, {40, 300, 0, 3}})
    checks.push_back(check_of({{"m", m}, {"n", n}, {"k", k}, {"ctas", ctas}}, 4));
  CHECK(check_program(late_kernel(KILN_TESTS_DIR, "gemm.tile"), checks) == "");
}

TEST_CASE("late IR on the host: an asynchronous gemm that clears by a condition", "[late]") {
  if (!on_host()) return;
  const std::string text = R"ir(kernel @clears {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f16[?, 320]
  %w = tensor {name = "w"} : tensor f16[320, 16]
  %fresh = tensor %n {name = "fresh"} : tensor bool[?]
  %y = tensor %n {name = "y", role = output} : tensor f32[?, 16]
  %one = const {value = 1} : i32
  launch %one do |%only: i32| {
    %zero = const {value = 0} : i32
    %step = const {value = 64} : i32
    %none = const {value = 0.0} : f32
    %a = alloc : shared f16[64, 320]
    %b = alloc : shared f16[320, 16]
    %c = alloc : fragment f32[64, 16]
    copy %w, %b
    fill %none, %c
    for %zero, %n, %step do |%row: i32| {
      %from = slice %x, %row, %zero : view global f16[64, 320]
      copy %from, %a
      %clear = load %fresh, %row : bool
      %t = gemm_async %a, %b, %c, %clear : token
      await %t
      %to = slice %y, %row, %zero : view global f32[64, 16]
      copy %c, %to
    }
  }
}
)ir";
  for (uint64_t seed : {1, 2, 3}) CHECK(check_program(text, check_of({{"n", 300}}, seed)) == "");
}

TEST_CASE("late IR on the host: messages alone, of many bools and words", "[late]") {
  if (!on_host()) return;
  const std::string text = R"ir(kernel @fields {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor i32[?]
  %y = tensor %n {name = "y", role = output} : tensor i32[?]
  %one = const {value = 1} : i32
  launch %one do |%only: i32| {
    %ring = channel {slots = 3, message = "low:bool number:i32 high:bool twice:i32"} : channel i32[]
    %zero = const {value = 0} : i32
    %two = const {value = 2} : i32
    // Read before the roles, which know it by value.
    %shift = load %x, %zero : i32
    %all = slice %x, %zero : view global i32[?]
    roles {names = "a b", warps = [1, 1], registers = [40, 216]} do {
      for %zero, %n, %one do |%i: i32| {
        %v = load %all, %i : i32
        %is_low = compare %v, %zero {kind = lt} : bool
        %is_high = compare %v, %two {kind = gt} : bool
        %w = add %v, %v : i32
        %s = push_begin %ring : shared i32[]
        push_end %ring, %s, %is_low, %v, %is_high, %w
      }
    } do {
      for %zero, %n, %one do |%j: i32| {
        %r = pop %ring : shared i32[]
        %low = message %r {field = "low"} : bool
        %high = message %r {field = "high"} : bool
        %number = message %r {field = "number"} : i32
        %twice = message %r {field = "twice"} : i32
        release %ring, %r
        %first = select %low, %number, %twice : i32
        %then = select %high, %zero, %first : i32
        %out = add %then, %shift : i32
        store %out, %y, %j
      }
    }
  }
}
)ir";
  for (uint64_t seed : {1, 2}) CHECK(check_program(text, check_of({{"n", 40}}, seed)) == "");
}

TEST_CASE("late IR on the host: each tile goes to one block, whoever runs the blocks", "[late]") {
  if (!on_host()) return;
  set_host_threads(4);
  for (bool dynamic : {false, true})
    for (auto [n, ctas] : {std::pair{100, 7}, {3, 5}, {64, 1}, {1, 1}}) {
      INFO((dynamic ? "dynamic " : "static ") << n << " tiles, " << ctas << " blocks");
      Array y(I32, {n});
      run(device("host"), parse(tiles_text(dynamic)), Arguments().tensor("y", y).dim("ctas", ctas));
      bool once = true;
      for (int64_t i = 0; i < n; ++i) once = once && y.get(i) == 1;
      CHECK(once);
    }
  set_host_threads(0);
}

TEST_CASE("late IR on the host: roles that wait for ever are an error that names them", "[late]") {
  if (!on_host()) return;
  CHECK(device_error(stream_text(5, 5, true)) == "no error");
  CHECK(device_error(stream_text(0, 0, true)) == "no error");
  CHECK_THAT(device_error(stream_text(2, 3, true)),
             Contains("feeder has ended") &&
                 Contains("eater waits at stream.tile:19: pop of channel f32[4] of stream.tile:5: "
                          "nothing was pushed"));
  CHECK_THAT(device_error(stream_text(4, 4, false)),
             Contains("feeder waits at stream.tile:13: push_begin of channel f32[4]") &&
                 Contains("all its slots are held") && Contains("eater waits at stream.tile:19"));
}
