// Roles, channels and asynchronous ops: every mode and order of agents gives one result.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "tests/ir/late_modes.h"
#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;

namespace {

Numbers counted(int64_t count, double first = 0, double step = 1) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(first + step * static_cast<double>(i));
  return numbers;
}

// A producer sends the rows of x, a consumer halves each in its slot and stores it from there; the
// slot goes back a round later, when the store has read it.
const char* const kRing = R"(kernel @ring {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f32[?, 4]
  %y = tensor %n {name = "y", role = output} : tensor f32[?, 4]
  %one = const {value = 1} : i32
  launch %one do |%bx: i32| {
    %ring = channel {slots = SLOTS} : channel f32[1, 4]
    %c0 = const {value = 0} : i32
    roles {names = "producer consumer", warps = [1, 4], registers = [40, 216]} do {
      for %c0, %n, %one do |%k: i32| {
        %slot = push_begin %ring : shared f32[1, 4]
        %row = slice %x, %k, %c0 : view global f32[1, 4]
        copy_async %row, %slot
        push_end %ring, %slot
      }
    } do {
      %t = alloc : fragment f32[1, 4]
      %half = const {value = 0.5} : f32
      for %c0, %n, %one do |%k2: i32| {
        %full = pop %ring : shared f32[1, 4]
        %later = compare %k2, %c0 {kind = gt} : bool
        if %later do {
          await_stores {read = true}
          %done = held %ring {which = oldest} : shared f32[1, 4]
          release %ring, %done
        }
        copy %full, %t
        parallel {extents = [1, 4]} do |%i: i32, %j: i32| {
          %e = load %t, %i, %j : f32
          %less = mul %e, %half : f32
          store %less, %t, %i, %j
        }
        copy %t, %full
        %to = slice %y, %k2, %c0 : view global f32[1, 4]
        store_async %full, %to
      }
      %some = compare %n, %c0 {kind = gt} : bool
      if %some do {
        await_stores {read = true}
        %last = held %ring : shared f32[1, 4]
        release %ring, %last
      }
    }
  }
})";

// The rows that a list names, in its order, until a message says that it was the last. The consumer
// counts the rounds of a loop of two exits.
const char* const kStream = R"(kernel @stream {
  %n = dim {name = "n"} : i32
  %list = tensor %n {name = "list"} : tensor i32[?]
  %x = tensor {name = "x"} : tensor f32[8, 4]
  %sums = tensor {name = "sums", role = output} : tensor f32[1, 4]
  %places = tensor {name = "places", role = inout} : tensor i32[?SIZE]
  %one = const {value = 1} : i32
  launch %one do |%bx: i32| {
    %ring = channel {slots = SLOTS, message = "done:bool place:i32"} : channel f32[1, 4]
    %end = channel {slots = 1, message = "total:i32"} : channel f32[]
    %c0 = const {value = 0} : i32
    %yes = const {value = true} : bool
    %no = const {value = false} : bool
    roles {names = "send sum", warps = [1, 4], registers = [40, 216]} do {
      for %c0, %n, %one do |%i: i32| {
        %row = load %list, %i : i32
        %valid = compare %row, %c0 {kind = ge} : bool
        if %valid do {
          %slot = push_begin %ring : shared f32[1, 4]
          %from = slice %x, %row, %c0 : view global f32[1, 4]
          copy_async %from, %slot
          push_end %ring, %slot, %no, %i
        }
      }
      %last = push_begin %ring : shared f32[1, 4]
      push_end %ring, %last, %yes, %c0
      %got = pop %end : shared f32[]
      %total = message %got {field = "total"} : i32
      release %end, %got
      store %total, %places, %n
    } do {
      %t = alloc : fragment f32[1, 4]
      %acc = alloc : fragment f32[1, 4]
      %count = alloc : fragment i32[]
      %zero = const {value = 0.0} : f32
      fill %zero, %acc
      store %c0, %count
      loop do {
        HALF_a
        HALF_b
      }
      copy %acc, %sums
      %all = load %count : i32
      %out = push_begin %end : shared f32[]
      push_end %end, %out, %all
    }
  }
})";
const char* const kHalf = R"(%h = pop %ring : shared f32[1, 4]
        %done_h = message %h {field = "done"} : bool
        exit_if %done_h do {
          release %ring, %h
        }
        %place_h = message %h {field = "place"} : i32
        copy %h, %t
        release %ring, %h
        %count_h = load %count : i32
        store %place_h, %places, %count_h
        %more_h = add %count_h, %one : i32
        store %more_h, %count
        parallel {extents = [1, 4]} do |%i_h: i32, %j_h: i32| {
          %e_h = load %t, %i_h, %j_h : f32
          %s_h = load %acc, %i_h, %j_h : f32
          %r_h = add %s_h, %e_h : f32
          store %r_h, %acc, %i_h, %j_h
        })";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at; (at = text.find(what)) != text.npos;) text.replace(at, what.size(), with);
  return text;
}

// `half` with names of its own.
std::string half(const std::string& name) {
  std::string text = replaced(kHalf, "%h ", "%" + name + " ");
  text = replaced(text, "%h,", "%" + name + ",");
  text = replaced(text, "%h\n", "%" + name + "\n");
  return replaced(text, "_h", "_" + name);
}

// A product of two tiles of k, both chained on one accumulator; in the second round `clear` is off.
const char* const kGemm = R"(kernel @product {
  %n = dim {name = "n"} : i32
  %a = tensor %n {name = "a"} : tensor f32[4, ?]
  %b = tensor %n {name = "b"} : tensor f32[?, 8]
  %c = tensor {name = "c", role = output} : tensor f32[4, 8]
  %one = const {value = 1} : i32
  launch %one do |%bx: i32| {
    %as = channel {slots = 2} : channel f32[4, 4]
    %bs = channel {slots = 3} : channel f32[4, 8]
    %c0 = const {value = 0} : i32
    %c4 = const {value = 4} : i32
    roles {names = "load multiply", warps = [1, 4], registers = [40, 216]} do {
      for %c0, %n, %c4 do |%k: i32| {
        %sa = push_begin %as : shared f32[4, 4]
        %fa = slice %a, %c0, %k : view global f32[4, 4]
        copy_async %fa, %sa
        push_end %as, %sa
        %sb = push_begin %bs : shared f32[4, 8]
        %fb = slice %b, %k, %c0 : view global f32[4, 8]
        copy_async %fb, %sb
        push_end %bs, %sb
      }
    } do {
      %acc = alloc : fragment f32[4, 8]
      %c8 = const {value = 8} : i32
      %junk = const {value = nan} : f32
      fill %junk, %acc
      for %c0, %n, %c8 do |%at: i32| {
        %first = compare %at, %c0 {kind = eq} : bool
        %ta = pop %as : shared f32[4, 4]
        %tb = pop %bs : shared f32[4, 8]
        %one_half = gemm_async %ta, %tb, %acc, %first : token
        %ta2 = pop %as : shared f32[4, 4]
        %tb2 = pop %bs : shared f32[4, 8]
        %other = gemm_async %ta2, %tb2, %acc : token
        await %one_half
        release %as, %ta
        release %bs, %tb
        await %other
        release %as, %ta2
        release %bs, %tb2
      }
      copy %acc, %c
    }
  }
})";

}  // namespace

TEST_CASE("a ring of any trip count gives one result in every mode and order", "[interp][late]") {
  for (int slots : {2, 3}) {
    const std::string text = replaced(kRing, "SLOTS", std::to_string(slots));
    for (int trips = 0; trips <= 2 * slots + 1; ++trips)
      for (const InterpOptions& options : all_modes(50)) {
        Run run(text);
        run.dim("n", trips).tensor("x", F32, {trips, 4}, counted(trips * 4));
        run.tensor("y", F32, {trips, 4});
        INFO(slots << " slots, " << trips << " trips, " << described(options));
        CHECK(run(options).values("y") == counted(trips * 4, 0, 0.5));
      }
  }
}

TEST_CASE("a stream ends on a message", "[interp][late]") {
  const int slots = 2;
  std::string text = replaced(kStream, "HALF_a", half("a"));
  text = replaced(replaced(text, "HALF_b", half("b")), "SLOTS", std::to_string(slots));
  for (int length = 0; length <= 2 * slots + 1; ++length)
    for (const InterpOptions& options : all_modes(50)) {
      Numbers list, places(static_cast<size_t>(length) + 1, -1), sums(4, 0);
      int sent = 0;
      for (int i = 0; i < length; ++i) {
        list.push_back(i % 3 == 1 ? -1 : (i * 5) % 8);
        if (list.back() < 0) continue;
        places[static_cast<size_t>(sent++)] = i;
        for (int j = 0; j < 4; ++j) sums[static_cast<size_t>(j)] += list.back() * 4 + j;
      }
      places.back() = sent;
      Run run(replaced(text, "?SIZE", std::to_string(length + 1)));
      run.dim("n", length).tensor("list", I32, {length}, list);
      run.tensor("x", F32, {8, 4}, counted(32)).tensor("sums", F32, {1, 4});
      run.tensor("places", I32, {length + 1}, Numbers(places.size(), -1));
      INFO(length << " entries, " << described(options));
      run(options);
      CHECK(run.values("sums") == sums);
      CHECK(run.values("places") == places);
    }
}

TEST_CASE("products that a producer role feeds", "[interp][late]") {
  for (int n : {8, 16, 24})
    for (const InterpOptions& options : all_modes(50)) {
      Run run(kGemm);
      run.dim("n", n).tensor("a", F32, {4, n}, counted(4 * n, -5));
      run.tensor("b", F32, {n, 8}, counted(8 * n, 3, -1)).tensor("c", F32, {4, 8});
      Numbers expected;
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 8; ++j) {
          double sum = 0;
          for (int k = 0; k < n; ++k) sum += (i * n + k - 5) * (3 - (k * 8 + j));
          expected.push_back(sum);
        }
      INFO(n << ", " << described(options));
      CHECK(run(options).values("c") == expected);
    }
}

// A store's source may be overwritten once it was read; what was in it then is what arrives.
TEST_CASE("a store takes what is in its source until it was awaited", "[interp][late]") {
  for (const InterpOptions& options : all_modes(50)) {
    Run run(one_block(R"(%o = tensor {name = "o", role = output} : tensor f32[3, 2])",
                      R"(%t = alloc : shared f32[2, 2]
      %c2 = const {value = 2} : i32
      %c3 = const {value = 3} : i32
      %top = slice %t, %c0, %c0 : view shared f32[1, 2]
      %low = slice %t, %c1, %c0 : view shared f32[1, 2]
      %o0 = slice %o, %c0, %c0 : view global f32[1, 2]
      %o1 = slice %o, %c1, %c0 : view global f32[1, 2]
      %o2 = slice %o, %c2, %c0 : view global f32[1, 2]
      fill %c1, %top
      store_async %top, %o0
      fill %c2, %low
      store_async %low, %o1
      await_stores {pending = 1, read = true}
      fill %c3, %top
      store_async %top, %o2
      await_stores {pending = 1}
      fill %c0, %low)"));
    INFO(described(options));
    CHECK(run.tensor("o", F32, {3, 2})(options).values("o") == Numbers{1, 1, 2, 2, 3, 3});
  }
}

TEST_CASE("lazy effects come at the await, eager ones at the issue", "[interp][late]") {
  // The store takes effect in the tensor before or after the same agent reads it, unsynchronised.
  auto seen = [](InterpOptions::Async async) {
    Run run(one_block(R"(%x = tensor {name = "x", role = inout} : tensor f32[2])",
                      R"(%t = alloc : shared f32[1]
      %at = slice %x, %c0 : view global f32[1]
      fill %c1, %t
      store_async %t, %at
      %early = load %x, %c0 : f32
      await_stores
      store %early, %x, %c1)"));
    return run.tensor("x", F32, {2})({.async = async}).values("x");
  };
  CHECK(seen(InterpOptions::Async::Eager) == Numbers{1, 1});
  CHECK(seen(InterpOptions::Async::Lazy) == Numbers{1, 0});
}

TEST_CASE("next_tile deals out every tile once", "[interp][late]") {
  for (std::string counter : {"", ", %next"})
    for (int blocks : {1, 3, 9}) {
      Run run(R"(kernel @tiles {
  %blocks = dim {name = "blocks"} : i32
  %tiles = tensor {name = "tiles", role = inout} : tensor i32[7]
  %next = tensor {name = "next", role = workspace} : tensor i32[1]
  %one = const {value = 1} : i32
  launch %one do |%only: i32| {
    %start = const {value = 0} : i32
    store %start, %next, %start
  }
  launch %blocks do |%b: i32| {
    %c7 = const {value = 7} : i32
    %at = alloc : fragment i32[]
    store %b, %at
    loop do {
      %tile = load %at : i32
      %over = compare %tile, %c7 {kind = ge} : bool
      exit_if %over do {
      }
      %count = load %tiles, %tile : i32
      %more = add %count, %one : i32
      store %more, %tiles, %tile
      %then = next_tile %tile)" +
              counter + R"( : i32
      store %then, %at
    }
  }
})");
      run.dim("blocks", blocks).tensor("tiles", I32, {7});
      CHECK(run().values("tiles") == Numbers(7, 1));
    }
}

// Steps of scores that grow: the guess keeps the first maximum until a sum is too large.
TEST_CASE("softmax_step may guess and may spread its sums", "[interp][late]") {
  const Numbers s = {1, 2, 3, -1, 3, 5, 4, 4, 30, 31, 2, 2};  // three steps of [1, 4]
  const Numbers l_parts = {0, 0};
  auto run_with = [&](InterpOptions::Async async, bool exact, uint64_t seed) {
    Run run(one_block(R"(%s = tensor {name = "s"} : tensor f32[3, 4]
      %exact = param {name = "exact"} : bool
      %results = tensor {name = "results", role = output} : tensor f32[4])",
                      R"(%c2 = const {value = 2} : i32
      %c3 = const {value = 3} : i32
      %scores = alloc : fragment f32[1, 4]
      %m = alloc : fragment f32[1]
      %l = alloc : fragment f32[1, 2]
      %sum = alloc : fragment f32[1]
      %p = alloc : fragment f32[1, 4]
      %alpha = alloc : fragment f32[1]
      %unit = const {value = 1.0} : f32
      %inf = const {value = -inf} : f32
      fill %inf, %m
      fill %c0, %l
      for %c0, %c3, %c1 do |%k: i32| {
        %row = slice %s, %k, %c0 : view global f32[1, 4]
        copy %row, %scores
        softmax_step %scores, %m, %l, %p, %alpha, %unit, %exact
      }
      reduce %l, %sum {kind = sum, dim = 1}
      parallel {extents = [1]} do |%i: i32| {
        %vm = load %m, %i : f32
        %vs = load %sum, %i : f32
        %va = load %alpha, %i : f32
        store %vm, %results, %c0
        store %vs, %results, %c1
        store %va, %results, %c2
        store %va, %results, %c3
      })"));
    run.tensor("s", F32, {3, 4}, s).param("exact", Scalar::of_int(Bool, exact));
    return run.tensor("results", F32, {4})({.async = async, .seed = seed}).values("results");
  };
  double sum = 0;
  for (double x : s) sum += std::exp(x - 31);
  const double eager = std::exp(5.0 - 31), guessed = std::exp(3.0 - 31);
  using Async = InterpOptions::Async;
  auto check = [&](const Numbers& results, double alpha) {
    CHECK(results[0] == 31);
    CHECK(results[1] == Approx(sum).epsilon(1e-5));
    CHECK(results[2] == Approx(alpha).epsilon(1e-5));
  };
  check(run_with(Async::Eager, false, 1), eager);
  check(run_with(Async::Lazy, true, 1), eager);
  check(run_with(Async::Lazy, false, 1), guessed);  // the second step kept 3, the third cannot
  std::set<double> alphas;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Numbers results = run_with(Async::Random, false, seed);
    CHECK(results[1] == Approx(sum).epsilon(1e-5));
    alphas.insert(results[2]);
  }
  CHECK(alphas.size() == 2);
}
