// What a program of roles and asynchronous ops does wrong, said at the line, in every mode. Most
// are also mistakes to the verifier where it can see them; the texts here are not shown to it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>

#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Contains;

namespace {

const char* const kTensors = R"(%x = tensor {name = "x"} : tensor f32[8, 4]
  %y = tensor {name = "y", role = inout} : tensor f32[8, 4])";
const char* const kBefore = R"(
  %c2 = const {value = 2} : i32
  %yes = const {value = true} : bool
  %row = slice %x, %c0, %c0 : view global f32[1, 4]
  %out = slice %y, %c0, %c0 : view global f32[1, 4]
)";

std::string block(const std::string& body) {
  return one_block(kTensors, kBefore + body);
}

// A ring of two slots between a role 'load' and a role 'use'.
std::string roles(const std::string& load, const std::string& use, const std::string& more = "") {
  return block(
      R"(%ring = channel {slots = 2, message = "last:bool at:i32"} : channel f32[1, 4]  // ring)" +
      more + "\nroles {names = \"load use\", warps = [1, 4], registers = [40, 216]} do {\n" + load +
      "\n} do {\n" + use + "\n}");
}

const char* const kPush = R"(%s = push_begin %ring : shared f32[1, 4]
  copy_async %row, %s
  push_end %ring, %s, %yes, %c2  // push
)";
const char* const kPushTwo = R"(for %c0, %c2, %c1 do |%i: i32| {
    %s = push_begin %ring : shared f32[1, 4]
    copy_async %row, %s
    push_end %ring, %s  // push
  }
)";

// The line whose comment is the mark.
std::string line_of(const std::string& text, const std::string& mark) {
  const size_t at = text.find("// " + mark + "\n");
  REQUIRE(at != std::string::npos);
  return std::to_string(1 +
                        std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n'));
}

// Each @mark is the place of a marked line.
std::string with_places(std::string message, const std::string& text) {
  for (size_t at; (at = message.find('@')) != std::string::npos;) {
    size_t end = at + 1;
    while (end < message.size() && std::isalpha(static_cast<unsigned char>(message[end]))) ++end;
    message.replace(at, end - at,
                    "test.tile:" + line_of(text, message.substr(at + 1, end - at - 1)));
  }
  return message;
}

// In all modes the same error, at the line marked `here`, with a message that begins so.
void check_report(const std::string& text, const std::string& message) {
  const std::string expected = line_of(text, "here") + ": " + with_places(message, text);
  using Async = InterpOptions::Async;
  std::vector<InterpOptions> modes = {{.async = Async::Eager}, {.async = Async::Lazy}};
  for (uint64_t seed = 1; seed <= 20; ++seed)
    modes.push_back({.async = Async::Random, .seed = seed});
  for (const InterpOptions& options : modes) {
    Run run(text, false);
    run.tensor("x", F32, {8, 4}).tensor("y", F32, {8, 4});
    INFO(text << "mode " << static_cast<int>(options.async) << ", seed " << options.seed);
    CHECK_THAT(run.error(options), Catch::Matchers::StartsWith(expected));
  }
}

const char* const kGemm = R"(%a = alloc : shared f32[4, 4]
  %b = alloc : shared f32[4, 4]
  %acc = alloc : fragment f32[4, 4]
  %t = alloc : fragment f32[4, 4]
  fill %c1, %a
  fill %c1, %b
  fill %c1, %acc
  %token = gemm_async %a, %b, %acc : token  // gemm
)";

}  // namespace

TEST_CASE("deadlocks name every role, its line and what it waits for", "[interp][reports]") {
  check_report(roles("%s = push_begin %ring : shared f32[1, 4]\npush_end %ring, %s",
                     "%a = pop %ring : shared f32[1, 4]\nrelease %ring, %a\n"
                     "%b = pop %ring : shared f32[1, 4]  // here\nrelease %ring, %b"),
               "deadlock: nobody can go on\n"
               "  role 'load' has ended\n"
               "  role 'use' waits at @here: pop of channel f32[1, 4] of @ring: "
               "nothing was pushed");
  check_report(roles("for %c0, %c2, %c1 do |%k: i32| {\n%s = push_begin %ring : shared f32[1, 4]\n"
                     "push_end %ring, %s\n}\n%z = push_begin %ring : shared f32[1, 4]  // here\n"
                     "push_end %ring, %z",
                     "%a = pop %ring : shared f32[1, 4]\n%b = pop %ring : shared f32[1, 4]\n"
                     "%c = pop %ring : shared f32[1, 4]  // third"),
               "deadlock: nobody can go on\n"
               "  role 'load' waits at @here: push_begin of channel f32[1, 4] of @ring: all 2 "
               "slots are held\n"
               "  role 'use' waits at @third: pop of channel f32[1, 4] of @ring: nothing was "
               "pushed");
}

TEST_CASE("a gemm under way owns its operands", "[interp][reports]") {
  check_report(block(std::string(kGemm) + "fill %c1, %a  // here\nawait %token"),
               "fill writes shared f32[4, 4], which gemm_async at @gemm still reads");
  check_report(block(std::string(kGemm) + "store %c1, %b, %c0, %c1  // here\nawait %token"),
               "store writes shared f32[4, 4], which gemm_async at @gemm still reads");
  check_report(block(std::string(kGemm) + "copy %acc, %t  // here\nawait %token"),
               "copy reads fragment f32[4, 4], which gemm_async at @gemm still writes");
  check_report(block(std::string(kGemm) + R"(parallel {extents = [4, 4]} do |%i: i32, %j: i32| {
    %e = load %acc, %i, %j : f32  // here
  }
  await %token)"),
               "load reads fragment f32[4, 4], which gemm_async at @gemm still writes");
  check_report(block(std::string(kGemm) + "%u = gemm_async %acc, %b, %t, %yes : token  // here"),
               "gemm_async reads fragment f32[4, 4], which gemm_async at @gemm still writes");
  // What it does not own.
  const std::string fine = R"(fill %c2, %t
  copy %a, %t
  %u = gemm_async %b, %a, %acc : token
  await %u
  copy %acc, %t)";
  Run run(block(kGemm + fine), false);
  run.tensor("x", F32, {8, 4}).tensor("y", F32, {8, 4});
  CHECK(run.error() == "no error");  // the first token is awaited with the second
}

TEST_CASE("tokens are awaited once, in their region", "[interp][reports]") {
  const std::string gemm = "gemm_async: its region ends and the token was never awaited";
  check_report(block(std::string(kGemm) + "await %token\nawait %token  // here"),
               "await: the token of gemm_async at @gemm was awaited before");
  check_report(block(std::string(kGemm) + "await %token\nif %yes do {\n"
                                          "%u = gemm_async %a, %b, %acc : token  // here\n}"),
               gemm);
  check_report(block(std::string(kGemm) + "await %token\nloop do {\nexit_if %yes do {\n}\n"
                                          "%u = gemm_async %a, %b, %acc : token\n}\n"
                                          "%v = gemm_async %a, %b, %acc : token  // here"),
               gemm);
  check_report(block(std::string(kGemm) + "await %token\nloop do {\n"
                                          "%u = gemm_async %a, %b, %acc : token  // here\n"
                                          "exit_if %yes do {\n}\n}"),
               gemm);
}

TEST_CASE("a store under way owns its source", "[interp][reports]") {
  const std::string store =
      "%t = alloc : shared f32[1, 4]\nfill %c1, %t\nstore_async %t, %out  // store\n";
  check_report(block(store + "fill %c2, %t  // here"),
               "fill writes shared f32[1, 4], which store_async at @store still reads");
  check_report(block(store + "await_stores {pending = 1, read = true}\nfill %c2, %t  // here"),
               "fill writes");
  check_report(block("for %c0, %c2, %c1 do |%k: i32| {\n%t = alloc : shared f32[1, 4]  // here\n"
                     "fill %c1, %t\nstore_async %t, %out  // store\n}"),
               "alloc writes shared f32[1, 4], which store_async at @store still reads");
}

TEST_CASE("who has a slot alone uses it", "[interp][reports]") {
  const std::string take = "%a = pop %ring : shared f32[1, 4]\n%t = alloc : fragment f32[1, 4]\n";
  check_report(roles(kPush, take + "release %ring, %a  // release\ncopy %a, %t  // here"),
               "copy uses a slot of channel f32[1, 4] of @ring, but the slot was released at "
               "@release");
  check_report(roles(kPush, take + "release %ring, %a  // release\nrelease %ring, %a  // here"),
               "release: the slot was released at @release");
  check_report(
      roles(kPush, take + "release %ring, %a  // release\n%h = held %ring : shared f32[1, 4]\n"
                          "%e = load %h, %c0, %c0 : f32  // here"),
      "load uses a slot");
  check_report(roles(kPush, take + "release %ring, %a  // release\n"
                                   "%m = message %a {field = \"at\"} : i32  // here"),
               "message: field 'at': the slot was released at @release");
  check_report(roles(std::string(kPush) + "fill %c1, %s  // here", take + "release %ring, %a"),
               "fill uses a slot of channel f32[1, 4] of @ring, but the slot was handed over "
               "at @push");
  check_report(
      roles(std::string(kPush) + "copy_async %row, %s  // here", take + "release %ring, %a"),
      "copy_async uses a slot");
  check_report(
      roles(std::string(kPush) + "push_end %ring, %s  // here", take + "release %ring, %a"),
      "push_end: the slot was handed over at @push");
  check_report(roles("%s = push_begin %ring : shared f32[1, 4]\ncopy_async %row, %s  // copy\n"
                     "fill %c1, %s  // here\npush_end %ring, %s",
                     take + "release %ring, %a"),
               "fill writes shared f32[1, 4], which copy_async at @copy still writes");
  check_report(block("%t = alloc : shared f32[1, 4]\ncopy_async %row, %t  // here"),
               "copy_async into shared f32[1, 4]: expected a slot between its push_begin and "
               "push_end, but it is none");
  check_report(roles("%s = push_begin %ring : shared f32[1, 4]\npush_end %ring, %s",
                     take + "copy %a, %t  // here\nrelease %ring, %a"),
               "copy reads element [0, 0] of shared f32[1, 4], which was never written");
}

TEST_CASE("a slot goes back when nothing uses it, in order", "[interp][reports]") {
  const std::string two = R"(%a = pop %ring : shared f32[1, 4]  // first
  %b = pop %ring : shared f32[1, 4]
)";
  check_report(roles(kPushTwo, two + "release %ring, %b  // here\nrelease %ring, %a"),
               "release of channel f32[1, 4] of @ring: the slot popped before this one, at "
               "@first, is still held");
  check_report(roles(kPushTwo, two + "store_async %a, %out  // store\nrelease %ring, %a  // here"),
               "release of a slot that store_async at @store still reads");
  check_report(roles(kPushTwo, two + "store_async %a, %out\nstore_async %b, %out  // second\n"
                                     "await_stores {pending = 1, read = true}\n"
                                     "release %ring, %a\nrelease %ring, %b  // here"),
               "release of a slot that store_async at @second still reads");
  check_report(roles(kPushTwo, two + R"(%c = alloc : shared f32[4, 4]
  %acc = alloc : fragment f32[1, 4]
  fill %c0, %c
  %g = gemm_async %a, %c, %acc, %yes : token  // gemm
  release %ring, %a  // here
  await %g)"),
               "release of a slot that gemm_async at @gemm still reads");
}

TEST_CASE("messages and held slots must be there", "[interp][reports]") {
  const std::string take = "%a = pop %ring : shared f32[1, 4]\n";
  check_report(roles(kPushTwo, take + "%m = message %a {field = \"at\"} : i32  // here"),
               "message: field 'at' of a slot pushed without fields, at @push");
  check_report(roles(kPush, "%h = held %ring : shared f32[1, 4]  // here"),
               "held: no slot of channel f32[1, 4] of @ring was popped");
}

TEST_CASE("a role ends with nothing in its hands", "[interp][reports]") {
  check_report(roles(kPush, "%a = pop %ring : shared f32[1, 4]  // here"),
               "pop: role 'use' ends and the slot of channel f32[1, 4] of @ring popped is "
               "not released");
  check_report(roles("%s = push_begin %ring : shared f32[1, 4]  // here", ""),
               "push_begin: role 'load' ends with this push of channel f32[1, 4] of @ring "
               "open");
  check_report(roles("%s = push_begin %ring : shared f32[1, 4]\npush_end %ring, %s  // here", ""),
               "push_end: 1 of the 1 slots pushed of channel f32[1, 4] of @ring were never "
               "popped");
  check_report(roles("%s = push_begin %ring : shared f32[1, 4]  // begun\n"
                     "%z = push_begin %ring : shared f32[1, 4]  // here",
                     ""),
               "push_begin: the push begun at @begun is not ended");
}

TEST_CASE("a channel has one role at each end", "[interp][reports]") {
  // The first two slots are enough for both, so either role may come first.
  const std::string text = roles(
      "%s = push_begin %ring : shared f32[1, 4]\npush_end %ring, %s\n"
      "%go = pop %back : shared f32[]\nrelease %back, %go",
      "%a = pop %ring : shared f32[1, 4]\nrelease %ring, %a\n"
      "%z = push_begin %ring : shared f32[1, 4]  // here\npush_end %ring, %z\n"
      "%t = push_begin %back : shared f32[]\npush_end %back, %t",
      "\n%back = channel {slots = 1, message = \"go:bool\"} : channel f32[]");
  check_report(text,
               "push_begin of channel f32[1, 4] of @ring by role 'use': that end of it "
               "is role 'load''s");
}
