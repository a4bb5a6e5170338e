#include "ir/canon.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/siphash.h"
#include "ir/walk.h"

using namespace kiln;

namespace {

uint64_t random_seed() {
  const char* given = std::getenv("KILN_SEED");
  return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

std::string canon(const std::string& text) {
  return print(canonical(parse(text)));
}

// A launch over one block around `ops`; %x and %y are tiles of i32[8], %z a scalar variable.
std::string in_launch(const std::string& ops) {
  return "kernel @k {\n%one = const {value = 1} : i32\nlaunch %one do |%b: i32| {\n"
         "%x = alloc : shared i32[8]\n%y = alloc : shared i32[8]\n%z = alloc : fragment i32[]\n" +
         ops + "}\n}\n";
}

void equal(const std::string& a, const std::string& b) {
  CHECK(canon(in_launch(a)) == canon(in_launch(b)));
  CHECK(hash(parse(in_launch(a))) == hash(parse(in_launch(b))));
}

void different(const std::string& a, const std::string& b) {
  CHECK(canon(in_launch(a)) != canon(in_launch(b)));
  CHECK(hash(parse(in_launch(a))) != hash(parse(in_launch(b))));
}

}  // namespace

TEST_CASE("siphash gives the reference implementation's vectors") {
  const Hash128 key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string data;
  for (char c = 0; c < 15; ++c) data += c;
  auto bytes = [&](size_t size) {
    std::string text;
    for (uint64_t word : siphash128(std::string_view(data).substr(0, size), key))
      for (int i = 0; i < 8; ++i) {
        const char* digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned>(word >> (8 * i)) & 0xFF;
        text += {digits[byte / 16], digits[byte % 16]};
      }
    return text;
  };
  CHECK(bytes(0) == "a3817f04ba25a8e66df67214c7550293");
  CHECK(bytes(1) == "da87c1d86b99af44347659119b22fc45");
  CHECK(bytes(15) == "5493e99933b0a8117e08ec0f97cfc3d9");
}

TEST_CASE("hash_text is 32 hex digits and depends on every byte") {
  CHECK(hash_text("").size() == 32);
  CHECK(hash_text("abc") == hash_text("abc"));
  CHECK(hash_text(std::string(1, '\0')) != hash_text(""));
  std::string text(1000, 'x');
  const std::string before = hash_text(text);
  for (char& c : text) {
    c = 'y';
    CHECK(hash_text(text) != before);
    c = 'x';
  }
}

TEST_CASE("operands evaluated in either order give one text") {
  equal(
      "%i = const {value = 2} : i32\n%a = load %x, %i : i32\n%b1 = load %y, %i : i32\n"
      "%s = add %a, %b1 : i32\nstore %s, %z\n",
      "%i = const {value = 2} : i32\n%b1 = load %y, %i : i32\n%a = load %x, %i : i32\n"
      "%s = add %a, %b1 : i32\nstore %s, %z\n");
  equal("%p = const {value = 3} : i32\n%q = neg %b : i32\n%s = sub %p, %q : i32\nstore %s, %z\n",
        "%q = neg %b : i32\n%unused = neg %q : i32\n%p = const {value = 3} : i32\n"
        "%s = sub %p, %q : i32\nstore %s, %z\n");
}

TEST_CASE("operands in another order are another program") {
  different("%q = neg %b : i32\n%s = sub %b, %q : i32\nstore %s, %z\n",
            "%q = neg %b : i32\n%s = sub %q, %b : i32\nstore %s, %z\n");
}

TEST_CASE("a load stays between the writes it stood between") {
  const std::string before = "%v = load %z : i32\nstore %b, %z\nstore %v, %x, %b\n";
  const std::string after = "store %b, %z\n%v = load %z : i32\nstore %v, %x, %b\n";
  different(before, after);
  // Not even a write inside a region, or through a view, is passed.
  const std::string loop = "parallel {extents = [8]} do |%i: i32| {\nstore %b, %x, %i\n}\n";
  different("%v = load %x, %b : i32\n" + loop + "store %v, %y, %b\n",
            loop + "%v = load %x, %b : i32\nstore %v, %y, %b\n");
  const std::string fill = "%part = slice %x, %b : view shared i32[4]\nfill %b, %part\n";
  different("%v = load %x, %b : i32\n" + fill + "store %v, %y, %b\n",
            fill + "%v = load %x, %b : i32\nstore %v, %y, %b\n");
  // A write of other storage is no obstacle.
  equal("%v = load %z : i32\nstore %b, %x, %b\nstore %v, %y, %b\n",
        "store %b, %x, %b\n%v = load %z : i32\nstore %v, %y, %b\n");
}

TEST_CASE("loads that a write cuts off from their use have one order") {
  equal(
      "%v = load %z : i32\n%w = load %x, %b : i32\nstore %b, %z\nstore %b, %x, %b\n"
      "%d = sub %v, %w : i32\nstore %d, %y, %b\n",
      "%w = load %x, %b : i32\n%v = load %z : i32\nstore %b, %z\nstore %b, %x, %b\n"
      "%d = sub %v, %w : i32\nstore %d, %y, %b\n");
  equal(
      "%i = neg %b : i32\n%v = load %x, %i : i32\n%w = load %x, %b : i32\nstore %b, %x, %b\n"
      "%d = sub %v, %w : i32\nstore %d, %y, %b\n",
      "%w = load %x, %b : i32\n%i = neg %b : i32\n%v = load %x, %i : i32\nstore %b, %x, %b\n"
      "%d = sub %v, %w : i32\nstore %d, %y, %b\n");
}

TEST_CASE("ops stay in their region and go before its first use of them") {
  CHECK(canon(in_launch("%n = neg %b : i32\n%v = load %z : i32\nstore %b, %x, %b\n"
                        "parallel {extents = [8]} do |%i: i32| {\n%d = add %v, %n : i32\n"
                        "store %d, %y, %i\n}\n")) == R"(kernel @k {
  %const.0 = const {value = 1} : i32
  launch %const.0 do |%bx: i32| {
    %alloc.0 = alloc : shared i32[8]
    %alloc.1 = alloc : shared i32[8]
    %alloc.2 = alloc : fragment i32[]
    store %bx, %alloc.0, %bx
    %load.0 = load %alloc.2 : i32
    %neg.0 = neg %bx : i32
    parallel {extents = [8]} do |%i: i32| {
      %add.0 = add %load.0, %neg.0 : i32
      store %add.0, %alloc.1, %i
    }
  }
}
)");
}

TEST_CASE("the hash knows shapes, dtypes, attributes and names of the interface only") {
  const std::string base =
      "kernel @k {\n%n = dim {name = \"n\"} : i32\n"
      "%t = tensor %n {name = \"t\"} : tensor f32[?, 8]\n}";
  const std::string reference = hash(parse(base));
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = base;
    text.replace(text.find(from), from.size(), to);
    return hash(parse(text, "other.tile"));
  };
  CHECK(changed("%t = ", "%u = ") == reference);
  CHECK(changed("f32[?, 8]", "f32[?, 8] at \"a.cpp\":3") == reference);
  CHECK(changed("8]", "16]") != reference);
  CHECK(changed("f32", "f16") != reference);
  CHECK(changed("\"t\"", "\"u\"") != reference);
  CHECK(changed("{name = \"t\"}", "{name = \"t\", role = output}") != reference);
  CHECK(changed("{name = \"t\"}", "{name = \"t\", role = input}") == reference);
  CHECK(changed("@k", "@k {fast_math = true}") != reference);
}

TEST_CASE("canonical copies what the body reaches and leaves its argument alone") {
  Kernel kernel = parse(in_launch("%s = add %b, %b : i32\n%v = load %z : i32\nstore %b, %z\n"));
  const std::string text = print(kernel);
  const Kernel result = canonical(kernel);
  CHECK(print(kernel) == text);
  CHECK(result.value_count() == kernel.value_count() - 2);
  CHECK(print(result).find("add") == std::string::npos);
  CHECK(print(result).find("load") == std::string::npos);
  CHECK(str(result.op(result.region(result.body).ops[1]).loc) == "<text>:3");

  Builder b(kernel);
  b.binary(OpCode::Add, kernel.new_value(Type::scalar(I32)), b.constant(I32, 1));
  CHECK_NOTHROW(canonical(kernel));
  const Value stray = kernel.new_value(Type::scalar(I32));
  b.emit(OpCode::Launch, {stray});
  CHECK_THROWS_AS(canonical(kernel), InternalError);
}

TEST_CASE("long chains do not overflow the stack") {
  Kernel kernel("k");
  Builder b(kernel);
  Value value = b.constant(I32, 1);
  for (int i = 0; i < 200000; ++i) value = b.unary(OpCode::Neg, value);
  b.emit(OpCode::Launch, {value});
  CHECK(canonical(kernel).value_count() == 200001);
}

namespace {

// A random straight-line program in one region, as a list of ops that may be shuffled.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed), kernel_("random"), builder_(kernel_) {
    for (int i = 0; i < 3; ++i) tiles_.push_back(builder_.alloc(Space::Fragment, I32, {}));
    scalars_.push_back(builder_.constant(I32, 7));
    for (int i = 0; i < 40; ++i) step();
  }

  const Kernel& kernel() const { return kernel_; }

  // The same program, traced in another order: neighbours swap unless one uses the other, both
  // are effects, or one loads what the other writes.
  Kernel shuffled() {
    Kernel copy = kernel_;
    std::vector<OpId>& ops = copy.region(copy.body).ops;
    for (int round = 0; round < 400; ++round) {
      const size_t i = pick(ops.size() - 1);
      if (may_swap(copy.op(ops[i]), copy.op(ops[i + 1]))) std::swap(ops[i], ops[i + 1]);
    }
    return copy;
  }

 private:
  size_t pick(size_t count) { return random_() % count; }
  Value scalar() { return scalars_[pick(scalars_.size())]; }
  Value tile() { return tiles_[pick(tiles_.size())]; }

  void step() {
    switch (pick(5)) {
      case 0: return scalars_.push_back(builder_.binary(OpCode::Sub, scalar(), scalar()));
      case 1: return scalars_.push_back(builder_.unary(OpCode::Neg, scalar()));
      case 2:
      case 3: return scalars_.push_back(builder_.load(tile()));
      default: builder_.store(scalar(), tile());
    }
  }

  static bool may_swap(const Op& first, const Op& second) {
    auto effect = [](const Op& op) { return op.code == OpCode::Store || op.code == OpCode::Alloc; };
    auto touches = [](const Op& a, const Op& b) {  // a loads what b stores to
      return a.code == OpCode::Load && b.code == OpCode::Store && a.operands[0] == b.operands[1];
    };
    const auto& uses = second.operands;
    const bool used = first.result && std::count(uses.begin(), uses.end(), first.result) > 0;
    return !used && !(effect(first) && effect(second)) && !touches(first, second) &&
           !touches(second, first);
  }

  std::mt19937_64 random_;
  Kernel kernel_;
  Builder builder_;
  std::vector<Value> tiles_, scalars_;
};

// What the program leaves in its tiles and stored on the way, by plain execution.
std::vector<int64_t> executed(const Kernel& kernel) {
  std::map<uint32_t, int64_t> values;
  std::vector<int64_t> stored;
  int64_t tiles = 0;
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    auto operand = [&](size_t i) { return values[op.operands[i].id]; };
    switch (op.code) {
      case OpCode::Alloc: values[op.result.id] = ++tiles; break;
      case OpCode::Const: values[op.result.id] = op.integer("value"); break;
      case OpCode::Sub: values[op.result.id] = wrap_to(I32, operand(0) - operand(1)); break;
      case OpCode::Neg: values[op.result.id] = wrap_to(I32, -operand(0)); break;
      case OpCode::Load: values[op.result.id] = operand(0); break;
      default: values[op.operands[1].id] = operand(0); stored.push_back(operand(0));
    }
  }
  return stored;
}

}  // namespace

TEST_CASE("random programs: one canonical text for every order of tracing, the same results") {
  const uint64_t seed = random_seed();
  INFO("KILN_SEED=" << seed);
  for (uint64_t i = 0; i < 200; ++i) {
    RandomProgram program(seed + i);
    const Kernel first = canonical(program.kernel());
    INFO(print(program.kernel()));
    REQUIRE(executed(first) == executed(program.kernel()));
    CHECK(print(canonical(first)) == print(first));
    for (int order = 0; order < 4; ++order) {
      const Kernel shuffled = program.shuffled();
      REQUIRE(print(canonical(shuffled)) == print(first));
      REQUIRE(hash(shuffled) == hash(program.kernel()));
    }
  }
}
