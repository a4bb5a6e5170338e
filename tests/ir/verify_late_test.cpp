// The late IR: one small program a rule, as in verify_test.cpp; then the faults of protocol that
// only the interpreter sees.
#include <fmt/format.h>

#include "tests/ir/late_text.h"
#include "tests/ir/mistakes.h"

using namespace kiln;
using namespace kiln::test;

namespace {

// In the text "  // here" marks the op to blame, "  // there" the one whose line the message names
// as THERE.
struct Fault {
  std::string message, hint;
  LateText text;
};

std::string without_mark(std::string text, const std::string& mark, int* line) {
  const size_t at = text.find("  // " + mark);
  if (at == std::string::npos) return text;
  *line =
      static_cast<int>(std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n')) +
      1;
  return text.erase(at, mark.size() + 5);
}

std::string with_line(std::string message, int line) {
  for (size_t at; (at = message.find("THERE")) != std::string::npos;)
    message.replace(at, 5, std::to_string(line));
  return message;
}

void refused(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    int there = 0;
    const std::string text = without_mark(fault.text.str(), "there", &there);
    const std::string message = with_line(fault.message, there);
    check({message.c_str(), fault.hint.c_str(), text}, IrStage::Lowered);
  }
}

void accepted(const LateText& text) {
  accept(text.str(), IrStage::Traced);
}

std::string roles(const std::string& names, const std::string& warps,
                  const std::string& registers) {
  return fmt::format(R"({{names = "{}", warps = [{}], registers = [{}]}})", names, warps,
                     registers);
}

// What the mark needs: `roles` stands on a line that ends in "do {".
LateText with_roles(const std::string& attributes) {
  LateText text;
  text.roles = attributes;
  if (attributes.find("  // here") == attributes.npos) text.roles += "  // here\n";
  return text;
}

constexpr const char* kPush = "%slot = push_begin %ring : shared f16[64, 64]";
constexpr const char* kEnd = "push_end %ring, %slot, %no, %c0";
constexpr const char* kGemm = "%g = gemm_async %full, %full, %s : token";

std::string lines(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += part + "\n";
  return text;
}

LateText producing(std::initializer_list<std::string> parts) {
  LateText text;
  text.producer = lines(parts);
  return text;
}
LateText consuming(std::initializer_list<std::string> parts) {
  LateText text;
  text.consumer = takes_one(lines(parts));
  return text;
}

}  // namespace

TEST_CASE("late: what keeps the rules", "[verify][late]") {
  accepted({});
  accepted({.launch = "{warps = 8} "});
  accepted(consuming({kGemm, "%h = gemm_async %full, %full, %u, %yes {transpose_b = true} : token",
                      "await %g", "fill %zero, %s", "await %h", "release %ring, %full"}));
  accepted(consuming(
      {kGemm, "%h = gemm_async %full, %full, %s : token", "await %h", "release %ring, %full"}));
  accepted(consuming({"copy %full, %p", "release %ring, %full",
                      "%again = held %ring {which = oldest} : shared f16[64, 64]"}));
  accepted(producing({"loop do {", kPush, kEnd, "exit_if %yes do {", "}", "}"}));
  accepted(consuming({"copy %p, %full", "%to = slice %y, %c0, %c0 : view global f16[64, 64]",
                      "store_async %full, %to {split = warps}", "await_stores {read = true}",
                      "release %ring, %full"}));
  accepted(
      producing({"%t = next_tile %bx, %counter : i32", "%u = next_tile %t : i32", kPush, kEnd}));
  LateText plain;  // an agent that is the block
  plain.before = "loop do {\nexit_if %yes do {\n}\n}";
  accepted(plain);
}

TEST_CASE("late: roles", "[verify][late]") {
  LateText not_last;
  not_last.roles += "  // here\n";
  not_last.after = "store %c0, %counter, %c0\n";
  LateText inside;
  inside.before =
      "if %yes do {\n"
      R"(roles {names = "a", warps = [1], registers = [24]}  // here)"
      "\ndo {\n}\n}";
  refused({
      {"roles: expected it to be the last op of a launch's region",
       "what comes after belongs into a role, or into another launch", not_last},
      {"roles: expected it to be the last op of a launch's region",
       "what comes after belongs into a role, or into another launch", inside},
      {"roles: names: expected 2, one a region, got 1",
       "an entry a role, in the order of the regions", with_roles(roles("one", "1, 4", "40, 216"))},
      {"roles: names: 'one' is there twice", "another word for one of them",
       with_roles(roles("one one", "1, 4", "40, 216"))},
      {"roles: warps: expected 2, one a region, got 3",
       "an entry a role, in the order of the regions",
       with_roles(roles("a b", "1, 4, 4", "40, 216"))},
      {"roles: registers: expected 2, one a region, got 1",
       "an entry a role, in the order of the regions", with_roles(roles("a b", "1, 4", "40"))},
      {"roles: warps of 'b': expected 1 or a multiple of 4 up to 32, got 6",
       "one warp for a role that only moves data, whole groups for others",
       with_roles(roles("a b", "1, 6", "40, 216"))},
      {"roles: registers of 'a': expected a multiple of 8 from 24 to 256, got 42",
       "the sum over all threads is what the launch starts with",
       with_roles(roles("a b", "1, 4", "42, 216"))},
      {"roles: registers of 'a': expected a multiple of 8 from 24 to 256, got 16",
       "the sum over all threads is what the launch starts with",
       with_roles(roles("a b", "1, 4", "16, 216"))},
      {"roles: registers of 'b': expected a multiple of 8 from 24 to 256, got 264",
       "the sum over all threads is what the launch starts with",
       with_roles(roles("a b", "1, 4", "24, 264"))},
      {"roles: warps: expected at most 32 in whole warpgroups, got 36", "",
       with_roles(roles("a b", "1, 32", "24, 24"))},
  });
}

TEST_CASE("late: a block's registers are what the roles share", "[verify][late]") {
  // h200-schedule: 40 + 2·232 = 504 = 3·168, what 384 threads get; 8 more would wait for ever.
  accepted({.roles = roles("producer consumer", "1, 8", "40, 232")});
  refused(
      {{"roles: registers: the roles need 65536 = 128·48 + 256·232, a block of 384 threads gets "
        "64512 = 384·168",
        "the roles would wait for registers for ever",
        with_roles(roles("producer consumer", "1, 8", "48, 232"))}});
  LateText wrong_warps;
  wrong_warps.launch = "{warps = 5}  // here\n";
  refused({{"launch: warps: expected 8, those of its roles in whole warpgroups, got 5", "",
            wrong_warps}});
}

TEST_CASE("late: what a role is made of", "[verify][late]") {
  LateText tile_from_outside = consuming({"copy %full, %outside  // here"});
  tile_from_outside.before = "%outside = alloc : fragment f16[64, 64]";
  const std::string layout = R"ir(layout = "[64] lane (1) (2) (4) (8) (16) warp (32) (0) (0)")ir";
  LateText split = consuming({"%part = slice %full, %c0, %c0 : view shared f16[62, 64]",
                              "%to = slice %y, %c0, %c0 : view global f16[62, 64]",
                              "store_async %part, %to {split = warps}  // here"});
  refused({
      {"copy: uses fragment f16[64, 64] from outside of the role",
       "roles share scalars, tensors and channels; send tiles through a channel",
       tile_from_outside},
      {"alloc: works on a tile, but role 'producer' is one thread",
       "give the role 4 warps or a multiple", producing({"%t = alloc : fragment f32[4]  // here"})},
      {"barrier: works on a tile, but role 'producer' is one thread",
       "give the role 4 warps or a multiple", producing({"barrier  // here"})},
      {"alloc: layout: expected one of the 4 warps of role 'consumer', got one of 8",
       "a layout repeated for the role's warps",
       consuming({"%f = alloc {" + layout + "} : fragment f32[64]  // here"})},
      {"parallel: layout: expected one of the 4 warps of role 'consumer', got one of 8",
       "a layout repeated for the role's warps",
       consuming({"parallel {extents = [64], " + layout + "}  // here", "do |%i: i32| {", "}"})},
      {"store_async: split: expected rows that 4 warps share evenly, got 62 of view shared f16[62, "
       "64]",
       "rows that are a multiple of the agent's warps", split},
      {"roles: region arguments: expected 0, got 1", "roles share channels only",
       with_roles(roles("a b c", "1, 1, 4", "40, 40, 216") + "  // here\ndo |%i: i32| {\n}")},
  });
}

TEST_CASE("late: loops", "[verify][late]") {
  refused({
      {"loop: has no exit_if directly in its region: it would never end",
       "exit_if %condition do { } directly in its region",
       producing({"loop  // here", "do {", "if %yes do {", "loop do {", "exit_if %no do {", "}",
                  "}", "}", "}"})},
      {"exit_if: expected it directly in the region of a loop",
       "store the condition in a scalar variable and exit in the loop's region",
       producing({"loop do {", "exit_if %yes do {", "}", "if %yes do {", "exit_if %yes  // here",
                  "do {", "}", "}", "}"})},
      {"exit_if: expected it directly in the region of a loop",
       "store the condition in a scalar variable and exit in the loop's region",
       producing({"exit_if %yes  // here", "do {", "}"})},
      {"exit_if: condition: expected bool, got i32", "compare it with something",
       producing({"loop do {", "exit_if %c0  // here", "do {", "}", "}"})},
      {"loop: region arguments: expected 0, got 1", "one index an axis, an axis a loop",
       producing({"loop  // here", "do |%i: i32| {", "exit_if %yes do {", "}", "}"})},
      {"next_tile: 'previous': expected i32, got bool", "cast it to i32",
       producing({"%t = next_tile %yes : i32  // here"})},
      {"next_tile: 'counter': expected tensor i32[1], got tensor f16[?, 64]",
       "a workspace of one element", producing({"%t = next_tile %c0, %y : i32  // here"})},
  });
}

TEST_CASE("late: channels", "[verify][late]") {
  const auto ring = [](const std::string& attributes) {
    LateText text;
    text.before = "%other = channel " + attributes + " : channel f16[64, 64]  // here";
    return text;
  };
  LateText inner;
  inner.before = "if %yes do {\n%other = channel {slots = 1} : channel f16[64, 64]  // here\n}";
  LateText outside;
  outside.before = "%early = pop %ring : shared f16[64, 64]  // here";
  LateText empty;
  empty.before = "%other = channel {slots = 1} : channel f16[]  // here";
  refused({
      {"channel: stands in a region inside the launch's; expected the launch's own",
       "channels are made before the roles that share them", inner},
      {"pop: stands outside of roles", "a channel is between two", outside},
      {"channel: slots: expected 1 to 4096, got 0", "as many as the producer may run ahead",
       ring("{slots = 0}")},
      {"channel: message field 'row': expected name:bool or name:i32", "",
       ring(R"({slots = 1, message = "done:bool row"})")},
      {"channel: message field 'x' is given twice", "",
       ring(R"({slots = 1, message = "x:i32 x:bool"})")},
      {"channel: carries neither tiles nor messages", "give it a shape, or a message", empty},
      {"channel: offset: expected a multiple of 1024, got 512", "1024",
       ring("{slots = 1, offset = 512}")},
      {"channel: control: expected a multiple of 16, got 8", "16",
       ring("{slots = 1, control = 8}")},
      {"channel: layout: expected one over [64, 64], got [8]",
       "ir/layout/text.h says how a layout is written",
       ring(R"ir({slots = 1, layout = "[8] offset (1) (2) (4)"})ir")},
      {"channel: no role pushes it", "", ring("{slots = 1}")},
  });
}

TEST_CASE("late: a channel has two ends", "[verify][late]") {
  LateText both = producing(
      {std::string(kPush) + "  // there", kEnd, "%mine = pop %ring : shared f16[64, 64]  // here"});
  LateText unpopped;
  unpopped.before = "%other = channel {slots = 1} : channel f16[64, 64]  // here";
  unpopped.producer +=
      lines({"%o = push_begin %other : shared f16[64, 64]", "push_end %other, %o"});
  LateText third;
  third.roles = roles("one two three", "1, 1, 4", "40, 40, 128") +
                "do {\n%slot = push_begin %ring : shared f16[64, 64]  // there\n"
                "push_end %ring, %slot\n}";
  third.producer = lines({std::string(kPush) + "  // here", kEnd});
  refused({
      {"push_begin: role 'two' pushes the channel too: role 'one' does on line THERE",
       "a channel has one role that pushes and one that pops", third},
      {"pop: role 'producer' both pushes and pops the channel, the other on line THERE",
       "a channel is from one role to another", both},
      {"channel: no role pops it", "", unpopped},
  });
}

TEST_CASE("late: pushes are balanced", "[verify][late]") {
  const std::string push = kPush, end = kEnd, ends = "every push ends where it began";
  refused({
      {"push_begin: has no push_end in its region", ends, producing({push + "  // here"})},
      {"push_end: the push_begin on line THERE is in another region", ends,
       producing({push + "  // there", "if %yes do {", end + "  // here", "}"})},
      {"push_begin: the push begun on line THERE has not ended", "one push at a time of a channel",
       producing(
           {push + "  // there", "%b = push_begin %ring : shared f16[64, 64]  // here", end})},
      {"push_begin: the push begun on line THERE has not ended", "one push at a time of a channel",
       producing({push + "  // there", "for %c0, %n, %c64 do |%i: i32| {",
                  "%b = push_begin %ring : shared f16[64, 64]  // here", "push_end %ring, %b", "}",
                  end})},
      {"exit_if: leaves the loop before the push begun on line THERE has ended",
       "push_end before the exit",
       producing(
           {"loop do {", push + "  // there", "exit_if %yes  // here", "do {", "}", end, "}"})},
      {"push_end: uses a slot that was handed over on line THERE",
       "it is the other role's from then on",
       producing({push, end + "  // there", end + "  // here"})},
      {"copy_async: uses a slot that was handed over on line THERE",
       "it is the other role's from then on",
       producing({push, end + "  // there", "%from = slice %x, %c0, %c0 : view global f16[64, 64]",
                  "copy_async %from, %slot  // here"})},
      {"push_end: message: expected 2 fields or none, got 1",
       "a value for each field of the channel's message, in order",
       producing({push, "push_end %ring, %slot, %no  // here"})},
      {"push_end: message field 'done': expected bool, got i32", "cast it",
       producing({push, "push_end %ring, %slot, %c0, %c0  // here"})},
      {"push_begin: the result: expected shared f16[64, 64], got shared f16[64, 32]",
       "a slot has the channel's dtype and shape",
       producing({"%slot = push_begin %ring : shared f16[64, 32]  // here", end})},
      {"copy_async: 'destination': expected a slot of push_begin, got shared f16[64, 64]",
       "copy writes any other tile",
       producing({push, "%t = alloc : shared f16[64, 64]",
                  "%from = slice %x, %c0, %c0 : view global f16[64, 64]",
                  "copy_async %from, %t  // here", end})},
      {"copy_async: shapes differ: the source is 32x64 f16, the destination 64x64 f16",
       "shapes agree once extents of 1 are dropped",
       producing({push, "%from = slice %x, %c0, %c0 : view global f16[32, 64]",
                  "copy_async %from, %slot  // here", end})},
      {"copy_async: dtypes differ: the source is 1 i32, the destination 1x1 f16",
       "convert through a fragment with copy",
       producing({push, "%one = slice %slot, %c0, %c0 : view shared f16[1, 1]",
                  "copy_async %counter, %one  // here", end})},
  });
}

TEST_CASE("late: slots are used while they are held", "[verify][late]") {
  const std::string gone = "it may be overwritten from then on", release = "release %ring, %full";
  LateText other = consuming({"release %second, %full  // here"});
  other.before = "%second = channel {slots = 1} : channel f16[64, 64]";
  other.consumer.replace(other.consumer.find("%full = pop %ring : shared f16[64, 64]"), 38,
                         "%full = pop %ring : shared f16[64, 64]  // there");
  refused({
      {"copy: uses a slot that was released on line THERE", gone,
       consuming({release + "  // there", "copy %full, %p  // here"})},
      {"message: uses a slot that was released on line THERE", gone,
       consuming({release + "  // there", "if %yes do {",
                  R"(%row = message %full {field = "row"} : i32  // here)", "}"})},
      {"release: uses a slot that was released on line THERE", gone,
       consuming({release + "  // there", release + "  // here"})},
      {"slice: uses a slot that was released on line THERE", gone,
       consuming({release + "  // there",
                  "%v = slice %full, %c0, %c0 : view shared f16[8, 64]  // here"})},
      {"release: 'slot': is of another channel, taken on line THERE",
       "a slot of the op's own channel", other},
      {"release: 'slot': expected a slot of pop or held, got shared f16[64, 64]",
       "slots come from push_begin, pop and held",
       consuming({"%t = alloc : shared f16[64, 64]", "release %ring, %t  // here"})},
      {"message: 'slot': expected a slot of pop or held, got shared f16[64, 64]",
       "slots come from push_begin, pop and held",
       producing({kPush, R"(%r = message %slot {field = "row"} : i32  // here)", kEnd})},
      {"message: the channel's messages have no field 'kv'", "one of done, row",
       consuming({R"(%r = message %full {field = "kv"} : i32  // here)"})},
      {"message: the result: expected bool, got i32", "the field's dtype",
       consuming({R"(%r = message %full {field = "done"} : i32  // here)"})},
  });
}

TEST_CASE("late: gemms under way", "[verify][late]") {
  const std::string gemm = std::string(kGemm) + "  // there";
  const std::string first = "await its token first";
  const std::string edge = "no token crosses the back-edge of a loop";
  const std::string crosses = "no token crosses the end of a region, nor the back-edge of a loop";
  refused({
      {"gemm_async: is not awaited in its region", crosses,
       consuming({"for %c0, %n, %c64 do |%i: i32| {", std::string(kGemm) + "  // here", "}"})},
      {"gemm_async: is not awaited in its region", crosses,
       consuming({kGemm, "%h = gemm_async %full, %full, %u : token  // here", "await %g"})},
      {"await: the gemm_async on line THERE is in another region",
       "await it in the region that begins it",
       consuming({gemm, "if %yes do {", "await %g  // here", "}"})},
      {"await: the gemm_async on line THERE was awaited on line 31",
       "an await is also for those begun before",
       consuming(
           {gemm, "%h = gemm_async %full, %full, %u : token", "await %h", "await %g  // here"})},
      {"for: the gemm_async on line THERE is not awaited before this loop", edge,
       consuming({gemm, "for %c0, %n, %c64  // here", "do |%i: i32| {", "}", "await %g"})},
      {"exit_if: leaves the loop before the gemm_async on line THERE is awaited",
       "await it before the exit",
       consuming({"loop do {", gemm, "exit_if %yes  // here", "do {", "}", "await %g", "}"})},
      {"copy: uses the result of the gemm_async on line THERE, which is not awaited yet", first,
       consuming({gemm, "copy %s, %p  // here", "await %g"})},
      {"load: uses the result of the gemm_async on line THERE, which is not awaited yet", first,
       consuming({gemm, "parallel {extents = [64, 64]} do |%i: i32, %j: i32| {",
                  "%e = load %s, %i, %j : f32  // here", "}", "await %g"})},
      {"fill: writes shared f16[64, 64], which the gemm_async on line THERE may still be reading",
       first, consuming({gemm, "fill %zero, %full  // here", "await %g"})},
      {"fill: writes fragment f16[64, 64], which the gemm_async on line THERE may still be "
       "reading",
       first,
       consuming({"%g = gemm_async %p, %full, %s : token  // there", "if %yes do {",
                  "fill %zero, %p  // here", "}", "await %g"})},
      {"release: gives away shared f16[64, 64], which the gemm_async on line THERE may still be "
       "reading",
       first, consuming({gemm, "release %ring, %full  // here", "await %g"})},
      {"gemm_async: 'b': expected a shared tile, got fragment f16[64, 64]", "move it there first",
       consuming({"%g = gemm_async %full, %p, %s : token  // here", "await %g"})},
      {"gemm_async: 'clear': expected bool, got i32", "compare it with something",
       consuming({"%g = gemm_async %full, %full, %s, %c0 : token  // here", "await %g"})},
      {"gemm_async: expected c of f32 (a, b of f16, bf16, f32, f64, e4m3 or e5m2), f64 (f64) or "
       "i32 (i8 or u8); a, b are f16, "
       "c "
       "is f16",
       "accumulate in f32",
       consuming({"%g = gemm_async %full, %full, %p : token  // here", "await %g"})},
      {"await: 'token': expected a token, got i32", "", consuming({"await %c0  // here"})},
      {"await_stores: pending: expected 0 or more, got -1", "0 waits for all",
       consuming({"await_stores {pending = -1}  // here"})},
      {"store_async: 'source': expected a shared tile, got fragment f16[64, 64]",
       "move it there first",
       consuming(
           {"%to = slice %y, %c0, %c0 : view global f16[64, 64]", "store_async %p, %to  // here"})},
  });
}

TEST_CASE("late: warps meet before they read what others wrote", "[verify][late]") {
  const std::string layout =
      R"ir({layout = "[64, 64] offset (0, 1) (0, 2) (0, 4) (0, 8) (0, 16) (0, 32) (1, 0) (2, 0) (4, 0) (8, 0) (16, 0) (32, 0)"})ir";
  const std::string tile = "%w = alloc " + layout + " : shared f16[64, 64]";
  const std::string message =
      "copy: reads shared f16[64, 64], which other warps wrote on line "
      "THERE, without a barrier between";
  const std::string write = "copy %p, %w", read = "copy %w, %p";
  const auto mark = [](const std::string& op, const char* what) { return op + "  // " + what; };
  refused({
      {message, "insert a barrier", consuming({tile, mark(write, "there"), mark(read, "here")})},
      {message, "insert a barrier",
       consuming({tile, "for %c0, %n, %c64 do |%i: i32| {", mark(read, "here"), "barrier",
                  mark(write, "there"), "}"})},
      {message, "insert a barrier",
       consuming({tile, mark(write, "there"), "if %yes do {", "barrier", "}", mark(read, "here")})},
      {message, "insert a barrier",
       consuming({tile, "loop do {", "barrier", mark(write, "there"), "exit_if %yes do {", "}",
                  "barrier", "}", mark(read, "here")})},
      {"gemm_async: reads shared f16[64, 64], which other warps wrote on line THERE, without a "
       "barrier between",
       "insert a barrier",
       consuming({tile, "parallel {extents = [64, 64]} do |%i: i32, %j: i32| {",
                  "store %zero, %w, %i, %j  // there", "}",
                  "%g = gemm_async %full, %w, %s : token  // here", "await %g"})},
  });
  accepted(consuming({tile, write, "barrier", read}));
  accepted(consuming({tile, write, "if %yes do {", "barrier", "} do {", "barrier", "}", read}));
  accepted(consuming({tile, "loop do {", write, "barrier", "exit_if %yes do {", "}", "}", read}));
  accepted(consuming({tile, "fill %zero, %w", "%to = slice %y, %c0, %c0 : view global f16[64, 64]",
                      "store_async %w, %to"}));
  accepted(consuming({"%w = alloc : shared f16[64, 64]", write, read}));  // layouts are not known
}

TEST_CASE("late: places in shared memory", "[verify][late]") {
  const auto at = [](const std::string& first, const std::string& second) {
    LateText text;
    text.launch = "{shared = 32832} ";
    text.ring = R"({slots = 2, message = "done:bool row:i32", )" + first + "}";
    text.before = "%second = channel {slots = 1, " + second + "} : channel f16[64, 64]  // here";
    text.producer += "%a = push_begin %second : shared f16[64, 64]\npush_end %second, %a\n";
    text.consumer += "%z = pop %second : shared f16[64, 64]\nrelease %second, %z\n";
    return text;
  };
  LateText fits = at("offset = 0, control = 16384", "offset = 17408, control = 16448");
  fits.before.erase(fits.before.find("  // here"));
  accepted(fits);
  refused({
      {"channel: ring: begins at 15360 in shared memory, inside the 16384 bytes from 0 on of the "
       "ring on line 13",
       "offsets at which nothing that is alive at one time overlaps",
       at("offset = 0, control = 32768", "offset = 15360, control = 32768")},
      {"channel: control: begins at 16432 in shared memory, inside the 64 bytes from 16384 on of "
       "the control on line 13",
       "offsets at which nothing that is alive at one time overlaps",
       at("offset = 0, control = 16384", "offset = 17408, control = 16432")},
      {"channel: ring: 8192 bytes from 25600 on are more than the 32832 of the launch's shared "
       "memory",
       "a lower offset, or a larger `shared` of the launch",
       at("offset = 0, control = 16384", "offset = 25600")},
  });
}

TEST_CASE("late: the step of the softmax that may guess", "[verify][late]") {
  const auto step = [](const std::string& l, const std::string& exact) {
    return consuming({"%m = alloc : fragment f32[64]", "%l = alloc : fragment f32" + l,
                      "%alpha = alloc : fragment f32[64]", "%scale = const {value = 1.0} : f32",
                      "softmax_step %s, %m, %l, %p, %alpha, %scale" + exact});
  };
  accepted(step("[64]", ""));
  accepted(step("[64, 4]", ", %yes"));
  refused({
      {"softmax_step: 'exact': expected bool, got i32", "compare it with something",
       step("[64]", ", %c0  // here")},
      {"softmax_step: 'l': expected fragment f32[64, 4], got fragment f32[32, 4]",
       "an f32 for each row of 's', or of what is scaled", step("[32, 4]", "  // here")},
      {"softmax_step: 'l': expected fragment f32[64], got fragment f32[64, 4, 1]",
       "an f32 for each row of 's', or of what is scaled", step("[64, 4, 1]", "  // here")},
  });
}
