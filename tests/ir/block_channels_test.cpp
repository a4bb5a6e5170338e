// Channels of a launch without roles, from the block to itself: what the law allows, what the
// interpreter reports; and slices that are one place of a tile's first axis.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/ir/late_modes.h"
#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

// y[i] = x[i], each row fetched a round ahead.
constexpr const char* kStream = R"(kernel @stream {
  %n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f32[?, 4]
  %y = tensor %n {name = "y", role = output} : tensor f32[?, 4]
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %c0 = const {value = 0} : i32
    %ring = channel {slots = 2} : channel f32[1, 4]
    %first = push_begin %ring : shared f32[1, 4]
    %x0 = slice %x, %c0, %c0 : view global f32[1, 4]
    copy_async %x0, %first
    push_end %ring, %first
    commit_copies
    for %c0, %n, %one do |%i: i32| {
      %next = add %i, %one : i32
      %more = compare %next, %n {kind = lt} : bool
      if %more do {
        %slot = push_begin %ring : shared f32[1, 4]
        %from = slice %x, %next, %c0 : view global f32[1, 4]
        copy_async %from, %slot
        push_end %ring, %slot
      }
      commit_copies // of the round
      %full = pop %ring {pending = 1} : shared f32[1, 4]
      %to = slice %y, %i, %c0 : view global f32[1, 4]
      copy %full, %to
      release %ring, %full
    }
  }
}
)";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kStream;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

Run run_of(const std::string& text, bool verified = true) {
  Run run(text, verified);
  return std::move(run.dim("n", 3)
                       .tensor("x", F32, {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
                       .tensor("y", F32, {3, 4}));
}

std::string refusal(const std::string& text) {
  try {
    verify(parse(text, "test.tile"));
    return "";
  } catch (const UserError& error) {
    return error.what();
  }
}

std::string reported(const std::string& text) {
  std::string first;
  for (const InterpOptions& options : all_modes(3)) {
    Run run = run_of(text, false);
    const std::string error = run.error(options);
    if (first.empty()) first = error;
    CHECK(error == first);
  }
  return first;
}

}  // namespace

TEST_CASE("a block sends to itself", "[late]") {
  for (const InterpOptions& options : all_modes(4)) {
    INFO(described(options));
    Run run = run_of(kStream);
    run(options);
    CHECK(run.values("y") == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  }
}

TEST_CASE("a block's channel: the law", "[verify][late]") {
  CHECK_THAT(refusal(changed("slots = 2", "slots = 2, message = \"i:i32\"")),
             Contains("the launch has no roles that could send it"));
  CHECK_THAT(
      refusal(changed("    %ring = channel",
                      "    %other = channel {slots = 1} : channel f32[4]\n    %ring = channel")),
      Contains("nothing pushes it"));
  CHECK_THAT(refusal(changed("{pending = 1}", "{pending = -1}")),
             Contains("pending: expected 0 or more, got -1"));
  CHECK_THAT(refusal(changed("copy %full, %to", "copy %full, %to {group = next}")),
             Contains("group: expected a shared destination, got view global"));
}

TEST_CASE("a block's channel: faults are reported in every mode", "[late]") {
  CHECK_THAT(reported(changed("      commit_copies // of the round\n", "")),
             Contains("pop: pending = 1, but 0 groups of copies were closed after that"));
  CHECK_THAT(reported(changed("    commit_copies\n", "")),
             Contains("pop: pending = 1, but 0 groups of copies were closed after that"));
  CHECK_THAT(reported(changed("pending = 1", "pending = 2")),
             Contains("pop: pending = 2, but 1 groups of copies"));
  CHECK_THAT(reported(changed("if %more do", "if %never do")
                          .insert(std::string(kStream).find("      if %more"),
                                  "      %never = compare %i, %i {kind = ne} : bool\n")),
             Contains("nothing was pushed"));
  CHECK_THAT(reported(changed("compare %next, %n {kind = lt}", "compare %next, %n {kind = le}")),
             Contains("1 of the 4 slots pushed"));
  CHECK_THAT(reported(changed("slots = 2", "slots = 1")), Contains("all 1 slots are held"));
  CHECK_THAT(reported(changed("      release %ring, %full\n", "")),
             Contains("all 2 slots are held"));
}

TEST_CASE("a slice may be one place of the first axes of a shared tile", "[slice]") {
  const std::string text = R"(kernel @k {
  %y = tensor {name = "y", role = output} : tensor f32[2]
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %c0 = const {value = 0} : i32
    %place = const {value = 2} : i32
    %ring = alloc : shared f32[3, 2, 4]
    %row = slice %ring, %place, %c0, %c0 : view shared f32[2, 4]
    parallel {extents = [2, 4]} do |%i: i32, %j: i32| {
      %e = mul %i, %j : i32
      store %e, %row, %i, %j
    }
    %column = slice %row, %c0, %place : view shared f32[2, 1]
    copy %column, %y
  }
})";
  Run run(text);
  run.tensor("y", F32, {2});
  run();
  CHECK(run.values("y") == Numbers{0, 2});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    return other.replace(other.find(from), from.size(), to);
  };
  Run outside(with("value = 2", "value = 3"), false);
  outside.tensor("y", F32, {2});
  CHECK_THAT(outside.error(), Contains("slice: place 3 on axis 0 of shared f32[3, 2, 4]"));
  CHECK_THAT(refusal(with("slice %ring, %place, %c0, %c0 : view shared f32[2, 4]",
                          "slice %ring, %place, %c0, %c0 : view shared f32[1, 3, 2, 4]")),
             Contains("expected a view of the space, dtype and rank of"));
  CHECK_THAT(refusal(with("alloc : shared f32[3, 2, 4]", "alloc : fragment f32[3, 2, 4]")),
             Contains("slice"));
}
