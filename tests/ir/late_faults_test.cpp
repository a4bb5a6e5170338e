// Faults of protocol, seeded one at a time into a stream that is right: each is an error of the
// verifier, or a report of the interpreter in every mode, at the line to blame.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;

namespace {

// y[i] = (q · k[i]ᵀ) · v[i]. One ring carries K, with a message, and V; what comes out leaves
// through the slot of q, which goes back a round later.
constexpr const char* kStream = R"(kernel @stream {
  %n = dim {name = "n"} : i32
  %q = tensor {name = "q"} : tensor f32[4, 4]
  %k = tensor %n {name = "k"} : tensor f32[?, 4, 4]
  %v = tensor %n {name = "v"} : tensor f32[?, 4, 4]
  %y = tensor %n {name = "y", role = output} : tensor f32[?, 4, 4]
  %one = const {value = 1} : i32
  launch %one do |%bx: i32| {
    %c0 = const {value = 0} : i32
    %unit = const {value = 1.0} : f32
    %yes = const {value = true} : bool
    %no = const {value = false} : bool
    %kv = channel {slots = 3, message = "done:bool item:i32"} : channel f32[4, 4]
    %qs = channel {slots = 2} : channel f32[4, 4]
    roles {names = "producer consumer", warps = [1, 4], registers = [40, 216]} do {
      for %c0, %n, %one do |%i: i32| {
        %q_slot = push_begin %qs : shared f32[4, 4]
        copy_async %q, %q_slot
        push_end %qs, %q_slot
        %k_slot = push_begin %kv : shared f32[4, 4]
        %k_from = slice %k, %i, %c0, %c0 : view global f32[1, 4, 4]
        copy_async %k_from, %k_slot
        push_end %kv, %k_slot, %no, %i
        %v_slot = push_begin %kv : shared f32[4, 4]
        %v_from = slice %v, %i, %c0, %c0 : view global f32[1, 4, 4]
        copy_async %v_from, %v_slot
        push_end %kv, %v_slot
      }
      %end = push_begin %kv : shared f32[4, 4]
      push_end %kv, %end, %yes, %c0
    } do {
      %s = alloc : fragment f32[4, 4]
      %p = alloc : fragment f32[4, 4]
      %acc = alloc : fragment f32[4, 4]
      %open = alloc : fragment bool[]
      store %no, %open
      loop do {
        %kk = pop %kv : shared f32[4, 4]
        %done = message %kk {field = "done"} : bool
        exit_if %done do {
          release %kv, %kk
        }
        %item = message %kk {field = "item"} : i32
        %qq = pop %qs : shared f32[4, 4]
        %pending = load %open : bool
        if %pending do {
          await_stores {read = true}
          %old = held %qs {which = oldest} : shared f32[4, 4]
          release %qs, %old
        }
        %scores = gemm_async %qq, %kk, %s, %yes {transpose_b = true} : token
        await %scores
        release %kv, %kk // K
        copy %s, %p
        %vv = pop %kv : shared f32[4, 4]
        %sums = gemm_async %p, %vv, %acc, %yes : token
        await %sums
        release %kv, %vv // V
        copy %acc, %qq
        %to = slice %y, %item, %c0, %c0 : view global f32[1, 4, 4]
        store_async %qq, %to {split = warps}
        store %yes, %open
      }
      %rest = load %open : bool
      if %rest do {
        await_stores {read = true} // last
        %last = held %qs {which = oldest} : shared f32[4, 4]
        release %qs, %last
      }
    }
  }
}
)";

constexpr int kItems = 3;

Run stream(const std::string& text, bool verified) {
  Run run(text, verified);
  Numbers q, k, v;
  for (int i = 0; i < 16; ++i) q.push_back(i % 5 - 2);
  for (int i = 0; i < 16 * kItems; ++i) k.push_back(i % 7 - 3), v.push_back(i % 3 - 1);
  run.dim("n", kItems).tensor("q", F32, {4, 4}, q).tensor("k", F32, {kItems, 4, 4}, k);
  run.tensor("v", F32, {kItems, 4, 4}, v).tensor("y", F32, {kItems, 4, 4});
  return run;
}

std::vector<InterpOptions> modes() {
  using Async = InterpOptions::Async;
  std::vector<InterpOptions> all;
  for (bool reverse : {false, true})
    for (Async async : {Async::Eager, Async::Lazy})
      all.push_back({.reverse_agents = reverse, .async = async});
  for (uint64_t seed = 1; seed <= 5; ++seed) all.push_back({.async = Async::Random, .seed = seed});
  return all;
}

struct Edit {
  std::string from, to;  // `from` is in the text once
};
struct Fault {
  const char* what;
  std::vector<Edit> edits;
  std::string blamed;   // a piece of that line, in the text once; of the edited text
  std::string message;  // how it begins
};

size_t only(const std::string& text, const std::string& piece) {
  const size_t at = text.find(piece);
  INFO(piece);
  REQUIRE(at != std::string::npos);
  REQUIRE(text.find(piece, at + 1) == std::string::npos);
  return at;
}

std::string seeded(const Fault& fault) {
  std::string text = kStream;
  for (const Edit& edit : fault.edits)
    text.replace(only(text, edit.from), edit.from.size(), edit.to);
  return text;
}

std::string expected(const Fault& fault, const std::string& text) {
  const auto end = text.begin() + static_cast<ptrdiff_t>(only(text, fault.blamed));
  return fmt::format("{}: {}", std::count(text.begin(), end, '\n') + 1, fault.message);
}

void found_by_verifier(const Fault& fault) {
  const std::string text = seeded(fault);
  INFO(fault.what << "\n" << text);
  std::string error = "no error";
  try {
    verify(parse(text));
  } catch (const UserError& caught) {
    error = fmt::format("{}: {}", caught.loc().line, caught.message());
  }
  CHECK_THAT(error, Catch::Matchers::StartsWith(expected(fault, text)));
}

void reported(const Fault& fault) {
  const std::string text = seeded(fault);
  INFO(fault.what << "\n" << text);
  for (const InterpOptions& options : modes()) {
    Run run = stream(text, true);
    INFO("mode " << static_cast<int>(options.async) << ", reversed " << options.reverse_agents
                 << ", seed " << options.seed);
    CHECK_THAT(run.error(options), Catch::Matchers::StartsWith(expected(fault, text)));
  }
}

const char* const kPushV = R"(        %v_slot = push_begin %kv : shared f32[4, 4]
        %v_from = slice %v, %i, %c0, %c0 : view global f32[1, 4, 4]
        copy_async %v_from, %v_slot
        push_end %kv, %v_slot
)";
const char* const kPushK = R"(        %k_slot = push_begin %kv : shared f32[4, 4]
        %k_from = slice %k, %i, %c0, %c0 : view global f32[1, 4, 4]
        copy_async %k_from, %k_slot
        push_end %kv, %k_slot, %no, %i
)";

}  // namespace

TEST_CASE("faults: without one the stream is right in every mode", "[late][faults]") {
  Run first = stream(kStream, true);
  first();
  for (const InterpOptions& options : modes()) {
    Run run = stream(kStream, true);
    CHECK(run.error(options) == "no error");
    CHECK(run.values("y") == first.values("y"));
  }
  CHECK(first.values("y") != Numbers(16 * kItems, 0.0));
}

TEST_CASE("faults: what the verifier finds", "[late][faults]") {
  const std::vector<Fault> faults = {
      {"a token across the back-edge",
       {{"        await %sums\n", ""},
        {"release %kv, %vv // V", ""},
        {"copy %acc, %qq", "copy %p, %qq"}},
       "%sums = ",
       "gemm_async: is not awaited in its region"},
      {"a token awaited in another region",
       {{"        await %scores\n", "        if %pending do {\n await %scores\n }\n"}},
       " await %scores",
       "await: the gemm_async on line 51 is in another region"},
      {"a result used before it is there",
       {{"        await %scores\n", ""},
        {"copy %s, %p", "copy %s, %p\n await %scores"},
        {"        release %kv, %kk // K\n", ""}},
       "copy %s, %p",
       "copy: uses the result of the gemm_async on line 51"},
      {"a slot given back under a gemm",
       {{"await %scores\n        release %kv, %kk // K", "release %kv, %kk // K\n await %scores"}},
       "// K",
       "release: gives away shared f32[4, 4], which the gemm_async on line 51"},
      {"a push without an end",
       {{"        push_end %kv, %v_slot\n", ""}},
       "%v_slot = ",
       "push_begin: has no push_end in its region"},
      {"a push that ends in a branch",
       {{"        push_end %kv, %v_slot\n", "        if %yes do {\n push_end %kv, %v_slot\n }\n"}},
       " push_end %kv, %v_slot",
       "push_end: the push_begin on line 24 is in another region"},
      {"two pushes at a time",
       {{"        push_end %kv, %k_slot, %no, %i\n", ""},
        {"        push_end %kv, %v_slot\n",
         "        push_end %kv, %v_slot\n push_end %kv, %k_slot, %no, %i\n"}},
       "%v_slot = ",
       "push_begin: the push begun on line 20 has not ended"},
      {"half a message",
       {{"%k_slot, %no, %i", "%k_slot, %no"}},
       "push_end %kv, %k_slot",
       "push_end: message: expected 2 fields or none, got 1"},
      {"a message in the wrong order",
       {{"%k_slot, %no, %i", "%k_slot, %i, %no"}},
       "push_end %kv, %k_slot",
       "push_end: message field 'done': expected bool, got i32"},
      {"a message after the release",
       {{"        %item = message %kk {field = \"item\"} : i32\n", ""},
        {"copy %acc, %qq",
         "copy %acc, %qq\n %item = message %kk "
         "{field = \"item\"} : i32"}},
       "%item = ",
       "message: uses a slot that was released on line 52"},
      {"a slot filled after it was handed over",
       {{kPushV, R"(        %v_slot = push_begin %kv : shared f32[4, 4]
        %v_from = slice %v, %i, %c0, %c0 : view global f32[1, 4, 4]
        push_end %kv, %v_slot
        copy_async %v_from, %v_slot
)"}},
       "copy_async %v_from",
       "copy_async: uses a slot that was handed over on line 26"},
      {"more registers than there are",
       {{"[40, 216]", "[40, 256]"}, {"warps = [1, 4]", "warps = [1, 8]"}},
       "roles {",
       "roles: registers: the roles need 70656 = 128·40 + 256·256"},
      {"a role that pushes what it pops",
       {{"store %no, %open",
         "store %no, %open\n %mine = "
         "push_begin %kv : shared f32[4, 4]\n push_end %kv, %mine"}},
       "%mine = ",
       "push_begin: role 'consumer' pushes the channel too: role 'producer' does on line 20"},
      {"a loop without an exit",
       {{R"(        exit_if %done do {
          release %kv, %kk
        }
)",
         ""}},
       "loop do",
       "loop: has no exit_if directly in its region"},
      {"a tile shared by roles",
       {{"      %p = alloc : fragment f32[4, 4]\n", ""},
        {"    roles {", "    %p = alloc : fragment f32[4, 4]\n    roles {"}},
       "copy %s, %p",
       "copy: uses fragment f32[4, 4] from outside of the role"},
      {"work for warps in one thread",
       {{"push_end %qs, %q_slot", "push_end %qs, %q_slot\n barrier"}},
       " barrier",
       "barrier: works on a tile, but role 'producer' is one thread"},
      {"a copy to what is no slot",
       {{"copy_async %v_from, %v_slot",
         "%t = alloc : shared f32[4, 4]\n"
         " copy_async %v_from, %t"}},
       "copy_async %v_from",
       "copy_async: 'destination': expected a slot of push_begin"},
      {"a slot of another channel",
       {{"release %qs, %old", "release %kv, %old"}},
       "release %kv, %old",
       "release: 'slot': is of another channel"},
  };
  for (const Fault& fault : faults) found_by_verifier(fault);
}

TEST_CASE("faults: what the interpreter reports", "[late][faults][interp]") {
  const std::string held = "the slot popped before this one";
  const std::vector<Fault> faults = {
      {"K is not given back",
       {{"        release %kv, %kk // K\n", ""}},
       "// V",
       "release of channel f32[4, 4] of test.tile:13: " + held},
      {"V is not given back",
       {{"        release %kv, %vv // V\n", ""}},
       "// K",
       "release of channel f32[4, 4] of test.tile:13: " + held},
      {"neither is",
       {{"        release %kv, %kk // K\n", ""}, {"        release %kv, %vv // V\n", ""}},
       "%v_slot = ",
       "deadlock: nobody can go on"},
      {"the slots of q are not given back",
       {{"          release %qs, %old\n", ""}},
       "%q_slot = ",
       "deadlock: nobody can go on"},
      {"V before K",
       {{kPushK, ""}, {kPushV, std::string(kPushV) + kPushK}},
       "%done = ",
       "message: field 'done' of a slot pushed without fields"},
      {"V twice",
       {{kPushV, std::string(kPushV) + R"(        %again = push_begin %kv : shared f32[4, 4]
        push_end %kv, %again
)"}},
       "%done = ",
       "message: field 'done' of a slot pushed without fields"},
      {"no end is sent",
       {{"      %end = push_begin %kv : shared f32[4, 4]\n"
         "      push_end %kv, %end, %yes, %c0\n",
         ""}},
       "%kk = ",
       "deadlock: nobody can go on"},
      {"more after the end",
       {{"      push_end %kv, %end, %yes, %c0\n",
         "      push_end %kv, %end, %yes, %c0\n %more = push_begin %kv : "
         "shared f32[4, 4]\n push_end %kv, %more\n"}},
       "push_end %kv, %more",
       "push_end: 1 of the 8 slots pushed"},
      {"the exit keeps its slot",
       {{"          release %kv, %kk\n", ""}},
       "%kk = ",
       "pop: role 'consumer' ends and the slot"},
      {"the last slot of q is kept",
       {{"        release %qs, %last\n", ""}},
       "%qq = ",
       "pop: role 'consumer' ends and the slot"},
      {"the newest instead of the oldest",
       {{"%old = held %qs {which = oldest}", "%old = held %qs"}},
       "release %qs, %old",
       "release of channel f32[4, 4] of test.tile:14: " + held},
      {"given back before the store has read it",
       {{"          await_stores {read = true}\n", ""}},
       "release %qs, %old",
       "release of a slot that store_async"},
      {"one store too few awaited",
       {{"await_stores {read = true}\n          %old",
         "await_stores {pending = 1, read = true}\n          %old"}},
       "release %qs, %old",
       "release of a slot that store_async"},
      {"given back at the end without waiting",
       {{"        await_stores {read = true} // last\n", ""}},
       "release %qs, %last",
       "release of a slot that store_async"},
      {"a message that V does not have",
       {{"        %sums = ",
         "        %row = message %vv {field = "
         "\"item\"} : i32\n        %sums = "}},
       "%row = ",
       "message: field 'item' of a slot pushed without fields"},
      {"V is never copied",
       {{"        copy_async %v_from, %v_slot\n", ""}},
       "%sums = ",
       "gemm_async reads element [0, 0] of shared f32[4, 4], which was never written"},
      {"a slot written under a copy",
       {{"copy_async %k_from, %k_slot",
         "copy_async %k_from, %k_slot\n"
         " store %unit, %k_slot, %c0, %c0"}},
       " store %unit",
       "store writes shared f32[4, 4], which copy_async"},
      {"a released slot under another name",
       {{"copy %s, %p", "%gone = held %kv : shared f32[4, 4]\n copy %gone, %p"}},
       "copy %gone",
       "copy uses a slot of channel f32[4, 4] of test.tile:13, but the slot was released"},
      {"a store's source written again",
       {{"        store %yes, %open\n",
         "        store %yes, %open\n"
         " copy %p, %qq\n"}},
       " copy %p, %qq",
       "copy writes shared f32[4, 4], which store_async"},
  };
  for (const Fault& fault : faults) reported(fault);
}
