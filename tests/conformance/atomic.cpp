// atom and red: alone at a place, and all threads at one.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

using Combine = std::function<uint64_t(uint64_t old, uint64_t operand)>;

struct Atomic {
  std::string op, type;  // "add.noftz", "f16"
  Combine combine;
  uint64_t initial;  // for all threads at one place
  Element element = Element::Bits;
  int target = 80;
  // Of floats: small whole numbers, of which every sum is exact.
  std::function<uint64_t(std::mt19937_64&)> value = nullptr;
};

template <class T>
void integers(std::vector<Atomic>& all, const std::string& type) {
  auto combine = [](auto compute) {
    return [=](uint64_t a, uint64_t b) { return bits<T>(compute(as<T>(a), as<T>(b))); };
  };
  all.push_back({"min", type, combine([](T a, T b) { return std::min(a, b); }),
                 bits(std::numeric_limits<T>::max())});
  all.push_back({"max", type, combine([](T a, T b) { return std::max(a, b); }),
                 bits(std::numeric_limits<T>::min())});
  if (type == "s64") return;  // has no add
  all.push_back({"add", type, combine([](T a, T b) {
                   return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
                 }),
                 5});
}

std::function<uint64_t(std::mt19937_64&)> whole(uint64_t (*convert)(double)) {
  return [=](std::mt19937_64& random) { return convert(static_cast<double>(random() % 9) - 4); };
}

std::vector<Atomic> atomics() {
  std::vector<Atomic> all;
  integers<int32_t>(all, "s32");
  integers<uint32_t>(all, "u32");
  integers<int64_t>(all, "s64");
  integers<uint64_t>(all, "u64");
  for (std::string type : {"b32", "b64"}) {
    uint64_t ones = type == "b32" ? 0xffffffff : ~uint64_t{0};
    all.push_back({"and", type, [](uint64_t a, uint64_t b) { return a & b; }, ones});
    all.push_back({"or", type, [](uint64_t a, uint64_t b) { return a | b; }, 0});
    all.push_back({"xor", type, [](uint64_t a, uint64_t b) { return a ^ b; }, 0x1234});
  }
  all.push_back({"inc", "u32", [](uint64_t a, uint64_t b) { return a >= b ? 0 : a + 1; }, 3});
  all.push_back(
      {"dec", "u32", [](uint64_t a, uint64_t b) { return a == 0 || a > b ? b : a - 1; }, 3});
  all.push_back(
      {"add", "f32", [](uint64_t a, uint64_t b) { return bits(as<float>(a) + as<float>(b)); },
       bits(1.0f), Element::F32, 80, whole([](double x) { return bits(static_cast<float>(x)); })});
  all.push_back({"add", "f64",
                 [](uint64_t a, uint64_t b) { return bits(as<double>(a) + as<double>(b)); },
                 bits(1.0), Element::F64, 80, whole([](double x) { return bits(x); })});
  auto add16 = [](DType type, uint64_t a, uint64_t b) {
    return to_half(type, from_half(type, a & 0xffff) + from_half(type, b & 0xffff));
  };
  auto pair = [=](DType type, uint64_t a, uint64_t b) {
    return add16(type, a, b) | add16(type, a >> 16, b >> 16) << 16;
  };
  auto half = whole([](double x) { return to_half(DType::F16, x); });
  auto brain = whole([](double x) { return to_half(DType::BF16, x / 4); });
  auto twice = [](auto one) {
    return [=](std::mt19937_64& random) {
      uint64_t low = one(random);
      return one(random) << 16 | low;
    };
  };
  using std::placeholders::_1;
  using std::placeholders::_2;
  all.push_back(
      {"add.noftz", "f16", std::bind(add16, DType::F16, _1, _2), 0, Element::F16, 80, half});
  all.push_back({"add.noftz", "f16x2", std::bind(pair, DType::F16, _1, _2), 0, Element::F16x2, 80,
                 twice(half)});
  all.push_back(
      {"add.noftz", "bf16", std::bind(add16, DType::BF16, _1, _2), 0, Element::BF16, 90, brain});
  all.push_back({"add.noftz", "bf16x2", std::bind(pair, DType::BF16, _1, _2), 0, Element::BF16x2,
                 90, twice(brain)});
  return all;
}

// Each thread at its own place: the old value and the new one.
void alone(Table& table, const Atomic& atomic) {
  auto value = [=](size_t, size_t, std::mt19937_64& random) {
    return atomic.value ? atomic.value(random) : random_value(atomic.type, random);
  };
  size_t width = 8 * conformance::width(atomic.type);
  for (bool returns : {false, true}) {
    std::string name =
        fmt::format("{}.global.{}.{}", returns ? "atom" : "red", atomic.op, atomic.type);
    table.add(Row{.text = fmt::format("st.global.b{0} [%d0+8], $2; mov.b{0} $0, $2;"
                                      "{1} {2}[%d0+8], $3; ld.global.b{0} $1, [%d0+8];",
                                      width, name, returns ? "$0, " : ""),
                  .results = {atomic.type, atomic.type},
                  .operands = {atomic.type, atomic.type},
                  .element = atomic.element,
                  .target = atomic.target,
                  .name = name,
                  .value = value},
              [=](const Operands& in, size_t thread) {
                uint64_t old = in(thread, 0);
                return std::vector<uint64_t>{old, atomic.combine(old, in(thread, 1))};
              });
  }
}

// All threads at one place of shared memory.
void together(Table& table, const Atomic& atomic) {
  size_t width = 8 * conformance::width(atomic.type);
  bool counts = atomic.op == "inc" || atomic.op == "dec";  // one limit, else the order matters
  auto value = [=](size_t, size_t, std::mt19937_64& random) {
    if (counts) return uint64_t{100};
    return atomic.value ? atomic.value(random) : random_value(atomic.type, random);
  };
  std::string name = fmt::format("atom.shared.{}.{}", atomic.op, atomic.type);
  table.add(Row{.text = fmt::format("{{ .shared .align 8 .b8 place[8]; setp.eq.u32 %p1, %r0, 0;"
                                    "mov.b64 %d2, {}; @%p1 st.shared.b64 [place], %d2; bar.sync 0;"
                                    "{} $0, [place], $1; bar.sync 0; ld.shared.b{} $0, [place]; }}",
                                    atomic.initial, name, width),
                .results = {atomic.type},
                .operands = {atomic.type},
                .element = atomic.element,
                .target = atomic.target,
                .name = name,
                .value = value},
            [=](const Operands& in, size_t) {
              uint64_t result = atomic.initial;
              for (uint64_t operand : in.all) result = atomic.combine(result, operand);
              return std::vector<uint64_t>{result};
            });
}

void exchanges(Table& table) {
  for (std::string type : {"b32", "b64"}) {
    table.add(Row{.text = fmt::format("st.global.{0} [%d0+8], $2; atom.global.exch.{0} $0, "
                                      "[%d0+8], $3; ld.global.{0} $1, [%d0+8];",
                                      type),
                  .results = {type, type},
                  .operands = {type, type},
                  .name = "atom.global.exch." + type},
              [](const Operands& in, size_t thread) {
                return std::vector<uint64_t>{in(thread, 0), in(thread, 1)};
              });
  }
  for (std::string type : {"b16", "b32", "b64"})
    table.add(Row{.text = fmt::format("st.global.{0} [%d0+8], $2; atom.global.cas.{0} $0, "
                                      "[%d0+8], $3, $4; ld.global.{0} $1, [%d0+8];",
                                      type),
                  .results = {type, type},
                  .operands = {type, type, type},
                  .name = "atom.global.cas." + type,
                  .value =
                      [type](size_t, size_t i, std::mt19937_64& random) {
                        uint64_t any = random_value(type, random);
                        return i < 2 ? any % 2 : any;  // often equal
                      }},
              [](const Operands& in, size_t thread) {
                uint64_t old = in(thread, 0);
                return std::vector<uint64_t>{old, old == in(thread, 1) ? in(thread, 2) : old};
              });
}

}  // namespace

void add_atomic(Table& table) {
  for (const Atomic& atomic : atomics()) {
    alone(table, atomic);
    together(table, atomic);
  }
  exchanges(table);
}

}  // namespace kiln::conformance
