// mma.sync: the manual's positions of elements in registers, on whole numbers so small that every
// order of summing is exact, and on fractions.
#include <fmt/format.h>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

constexpr size_t kLanes = 32;

struct Place {
  size_t row, column;
};

// Positions of element i of a lane's A (M×K), B (K×8) and C. `wide` is how many elements of A fill
// 32 bits; f64 has a register of its own for each.
struct Shape {
  size_t m, k, wide;
  size_t a_count() const { return m * k / kLanes; }
  size_t b_count() const { return 8 * k / kLanes; }
  size_t c_count() const { return 8 * m / kLanes; }
  // A's registers alternate between rows g and g + 8, then go on 4 registers' columns further.
  Place a(size_t lane, size_t i) const {
    size_t group = lane / 4, thread = lane % 4, part = i % wide, reg = i / wide;
    if (m == 8) return {group, 4 * wide * reg + wide * thread + part};
    return {group + 8 * (reg % 2), 4 * wide * (reg / 2) + wide * thread + part};
  }
  Place b(size_t lane, size_t i) const {
    size_t group = lane / 4, thread = lane % 4;
    return {4 * wide * (i / wide) + wide * thread + i % wide, group};
  }
  Place c(size_t lane, size_t i) const { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }
};

// An element type of A or B: how a value is made and read.
struct Kind {
  std::string name;
  size_t bits;
  double (*decode)(uint64_t);
  uint64_t (*small)(std::mt19937_64&);
  uint64_t (*fraction)(std::mt19937_64&);  // in [-1, 1]; none: not tried
};

double whole(std::mt19937_64& random, unsigned limit) {
  return static_cast<double>(random() % (2 * limit + 1)) - limit;
}
double part(std::mt19937_64& random) {
  return static_cast<double>(static_cast<int64_t>(random())) * 0x1p-63;
}

template <DType T>
Kind half_kind() {
  return {std::string(name(T)), 16, [](uint64_t x) { return from_half(T, x & 0xffff); },
          [](std::mt19937_64& random) { return to_half(T, whole(random, 4)); },
          [](std::mt19937_64& random) { return to_half(T, part(random)); }};
}
template <DType T>
Kind byte_kind() {
  return {std::string(name(T)), 8,
          [](uint64_t x) { return from_bits8(T, static_cast<uint8_t>(x)); },
          [](std::mt19937_64& random) { return uint64_t{to_bits8(T, whole(random, 4))}; }, nullptr};
}
Kind tf32() {
  return {
      "tf32", 32, [](uint64_t x) { return double{as<float>(x & 0xffffe000)}; },
      [](std::mt19937_64& random) { return bits(static_cast<float>(whole(random, 100))); },
      [](std::mt19937_64& random) { return bits(static_cast<float>(part(random))) & 0xffffe000; }};
}
Kind integer(bool is_signed) {
  auto any = [](std::mt19937_64& random) { return random() & 0xff; };
  if (is_signed)
    return {"s8", 8, [](uint64_t x) { return static_cast<double>(as<int8_t>(x)); }, any, nullptr};
  return {"u8", 8, [](uint64_t x) { return static_cast<double>(as<uint8_t>(x)); }, any, nullptr};
}
Kind f64() {
  return {"f64", 64, as<double>, [](std::mt19937_64& random) { return bits(whole(random, 1000)); },
          nullptr};
}

// The accumulator: how it is read and written, how many are in a register.
struct Sum {
  std::string name;
  size_t in_register;
  const char* type;
  double (*decode)(uint64_t);
  uint64_t (*encode)(double);
  Element element;
};
const Sum kF32 = {"f32",
                  1,
                  "b32",
                  [](uint64_t x) { return double{as<float>(x)}; },
                  [](double x) { return bits(static_cast<float>(x)); },
                  Element::F32};
const Sum kF16 = {"f16",
                  2,
                  "b32",
                  [](uint64_t x) { return from_half(DType::F16, x & 0xffff); },
                  [](double x) { return to_half(DType::F16, x); },
                  Element::F16x2};
const Sum kS32 = {"s32",
                  1,
                  "b32",
                  [](uint64_t x) { return static_cast<double>(as<int32_t>(x)); },
                  [](double x) { return bits(static_cast<int32_t>(x)); },
                  Element::Bits};
const Sum kF64 = {"f64", 1, "b64", as<double>, [](double x) { return bits(x); }, Element::F64};

std::string list(size_t first, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}${}", i ? ", " : "", first + i);
  return "{" + text + "}";
}

void multiply(Table& table, Shape shape, const Kind& a, const Kind& b, const Sum& c, bool fractions,
              int target, const std::string& modifier = "") {
  size_t per = shape.wide, sums = c.in_register;
  size_t na = shape.a_count() / per, nb = shape.b_count() / per, nc = shape.c_count() / sums;
  std::string op = fmt::format("mma.sync.aligned.m{}n8k{}.row.col{}.{}.{}.{}.{}", shape.m, shape.k,
                               modifier, c.name, a.name, b.name, c.name);
  std::vector<std::string> operands(na + nb, a.bits == 64 ? "b64" : "b32");
  operands.insert(operands.end(), nc, c.type);
  auto value = [=](size_t, size_t i, std::mt19937_64& random) {
    uint64_t all = 0;
    if (i < na + nb) {
      const Kind& kind = i < na ? a : b;
      for (size_t p = 0; p < per; ++p)
        all |= (fractions ? kind.fraction : kind.small)(random) << (p * kind.bits % 64);
    } else {
      for (size_t p = 0; p < sums; ++p)
        all |= c.encode(fractions ? part(random) : whole(random, 20)) << (16 * p);
    }
    return all;
  };
  auto expected = [=](const Operands& in, size_t lane) {
    auto element = [&](size_t from, size_t first, size_t i, const Kind& kind) {
      return kind.decode(in(from, first + i / per) >> (i % per * kind.bits % 64));
    };
    std::vector<double> A(shape.m * shape.k), B(shape.k * 8);
    for (size_t from = 0; from < kLanes; ++from) {
      for (size_t i = 0; i < shape.a_count(); ++i) {
        Place at = shape.a(from, i);
        A[at.row * shape.k + at.column] = element(from, 0, i, a);
      }
      for (size_t i = 0; i < shape.b_count(); ++i) {
        Place at = shape.b(from, i);
        B[at.row * 8 + at.column] = element(from, na, i, b);
      }
    }
    std::vector<uint64_t> result(nc);
    for (size_t i = 0; i < shape.c_count(); ++i) {
      Place at = shape.c(lane, i);
      double sum = c.decode(in(lane, na + nb + i / sums) >> (16 * (i % sums)));
      for (size_t k = 0; k < shape.k; ++k) sum += A[at.row * shape.k + k] * B[k * 8 + at.column];
      result[i / sums] |= c.encode(sum) << (16 * (i % sums));
    }
    return result;
  };
  // Products are exact and sums at least in single precision, in any order and truncated.
  double error = fractions ? static_cast<double>(shape.k + 1) * 0x1p-22 : 0;
  table.add(Row{.text = fmt::format("{} {}, {}, {}, {};", op, list(0, nc), list(nc, na),
                                    list(nc + na, nb), list(nc + na + nb, nc)),
                .results = std::vector<std::string>(nc, c.type),
                .operands = operands,
                .element = c.element,
                .tolerance = {0, error},
                .target = target,
                .threads = kLanes,
                .name = op + (fractions ? " of fractions" : ""),
                .value = value},
            expected);
}

}  // namespace

void add_mma(Table& table) {
  for (bool fractions : {false, true}) {
    for (size_t k : {size_t{8}, size_t{16}}) {
      Kind half = half_kind<DType::F16>(), brain = half_kind<DType::BF16>();
      multiply(table, {16, k, 2}, half, half, kF32, fractions, 80);
      multiply(table, {16, k, 2}, brain, brain, kF32, fractions, 80);
      if (!fractions) multiply(table, {16, k, 2}, half, half, kF16, false, 80);
    }
    for (size_t k : {size_t{4}, size_t{8}})
      multiply(table, {16, k, 1}, tf32(), tf32(), kF32, fractions, 80);
  }
  for (bool a : {false, true})
    for (bool b : {false, true})
      for (const char* modifier : {"", ".satfinite"})
        for (Shape shape : {Shape{8, 16, 4}, Shape{16, 16, 4}, Shape{16, 32, 4}})
          multiply(table, shape, integer(a), integer(b), kS32, false, 80, modifier);
  for (const Kind& a : {byte_kind<DType::E4M3>(), byte_kind<DType::E5M2>()})
    for (const Kind& b : {byte_kind<DType::E4M3>(), byte_kind<DType::E5M2>()})
      multiply(table, {16, 32, 4}, a, b, kF32, false, 89);
  multiply(table, {8, 4, 1}, f64(), f64(), kF64, false, 80);
}

}  // namespace kiln::conformance
