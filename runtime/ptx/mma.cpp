// mma.sync. With g = lane / 4 and c = lane % 4, a register of A holds consecutive k from p·c on in
// row g (even registers) or g + 8 (odd ones), p elements to 32 bits; each further pair of registers
// is 4·p further along k. B is the same with column g. C and D hold (g, 2c) and (g, 2c + 1), then
// the same of row g + 8.
#include <algorithm>
#include <limits>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/element.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

constexpr int kMostM = 16, kN = 8, kMostK = 32;

// Of Instruction: count = m, a = k, b bit 0 satfinite; immediate = the types.
struct Shape {
  int m, k;
  Type d, a, b, c;
};
Shape shape_of(const Instruction& in) {
  auto type = [&](int i) { return static_cast<Type>(in.immediate >> (8 * i) & 0xff); };
  return {in.count, in.a, type(0), type(1), type(2), type(3)};
}

uint64_t raw(Warp& warp, const Operand& operand, int lane) {
  const std::byte* lanes = warp.at(operand);
  return operand.bytes == 8 ? get<uint64_t>(lanes, lane) : get<uint32_t>(lanes, lane);
}

// How A or B lies in registers.
struct Lie {
  int bits, in_register, registers;  // of an element; elements; of a row of 8
};
Lie lie_of(Type type, int k) {
  int bits = 8 * bytes_of(type);
  int in_register = std::max(1, 32 / bits);
  return {bits, in_register, std::max(1, k / (4 * in_register))};
}

// out[row][k], or out[k][row] if transposed.
template <Type T, bool Transposed, size_t Columns>
void gather(Warp& warp, const Operand* registers, const Lie& lie, int blocks,
            double (*out)[Columns]) {
  for (int j = 0; j < lie.registers; ++j)
    for (int block = 0; block < blocks; ++block)
      for (int lane = 0; lane < kLanes; ++lane) {
        uint64_t bits = raw(warp, registers[j * blocks + block], lane);
        int row = lane / 4 + 8 * block;
        int k = lie.in_register * (lane % 4 + 4 * j);
        for (int i = 0; i < lie.in_register; ++i) {
          double value = element<T>(bits >> (lie.bits * i % 64));
          (Transposed ? out[k + i][row] : out[row][k + i]) = value;
        }
      }
}

template <bool Transposed, size_t Columns>
void gather(Type type, Warp& warp, const Operand* registers, const Lie& lie, int blocks,
            double (*out)[Columns]) {
  auto run = [&]<Type T>() { gather<T, Transposed>(warp, registers, lie, blocks, out); };
  switch (type) {
    case Type::F16: return run.template operator()<Type::F16>();
    case Type::BF16: return run.template operator()<Type::BF16>();
    case Type::TF32: return run.template operator()<Type::TF32>();
    case Type::F64: return run.template operator()<Type::F64>();
    case Type::E4M3: return run.template operator()<Type::E4M3>();
    case Type::E5M2: return run.template operator()<Type::E5M2>();
    case Type::U8: return run.template operator()<Type::U8>();
    default: return run.template operator()<Type::S8>();
  }
}

int accumulators(const Shape& shape) {  // registers
  int elements = shape.m * kN / kLanes;
  return shape.d == Type::F16 ? elements / 2 : elements;
}

// f64 sums products exactly enough that the one rounding at the end decides.
void mma(Warp& warp, const Instruction& in, uint32_t mask) {
  if (mask != kAllLanes)
    warp.fault(FindingKind::DivergentWarp, "not all 32 lanes of the warp run it",
               "run it with whole warps: no lane may have left before");
  Shape shape = shape_of(in);
  Lie lie_a = lie_of(shape.a, shape.k), lie_b = lie_of(shape.b, shape.k);
  int count = accumulators(shape);
  const Operand* to = in.operand;
  const Operand* a = to + count;
  const Operand* b = a + lie_a.registers * (shape.m / 8);
  const Operand* c = b + lie_b.registers;

  double left[kMostM][kMostK], right[kMostK][kN], sum[kMostM][kN];
  gather<false>(shape.a, warp, a, lie_a, shape.m / 8, left);
  gather<true>(shape.b, warp, b, lie_b, 1, right);
  bool halves = shape.c == Type::F16;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < shape.m / 4; ++i) {
      uint64_t bits = raw(warp, c[halves ? i / 2 : i], lane);
      if (halves) bits >>= 16 * (i % 2);
      sum[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2] = element_of(shape.c, bits);
    }
  for (int row = 0; row < shape.m; ++row)
    for (int k = 0; k < shape.k; ++k)
      for (int n = 0; n < kN; ++n) sum[row][n] += left[row][k] * right[k][n];

  halves = shape.d == Type::F16;
  for (int i = 0; i < shape.m / 4; ++i) {
    std::byte* out = warp.at(to[halves ? i / 2 : i]);
    for (int lane = 0; lane < kLanes; ++lane) {
      double x = sum[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
      if (shape.d == Type::F64) {
        set<double>(out, lane, canonical(x));
      } else if (shape.d == Type::F32) {
        set<float>(out, lane, canonical(static_cast<float>(x)));
      } else if (halves) {
        uint32_t bits = half_of(x).bits;
        if (i % 2 == 1) bits = bits << 16 | (get<uint32_t>(out, lane) & 0xffff);
        set<uint32_t>(out, lane, bits);
      } else {
        auto exact = static_cast<int64_t>(x);  // far from 2^53
        if (in.b)
          exact = std::clamp<int64_t>(exact, std::numeric_limits<int32_t>::min(),
                                      std::numeric_limits<int32_t>::max());
        set<uint32_t>(out, lane, static_cast<uint32_t>(exact));
      }
    }
  }
}

struct Row {
  std::string_view shape;
  Type a;  // B is of the same kind
  int m, k;
};
constexpr Row kShapes[] = {
    {"m16n8k8", Type::F16, 16, 8},    {"m16n8k16", Type::F16, 16, 16},
    {"m16n8k8", Type::BF16, 16, 8},   {"m16n8k16", Type::BF16, 16, 16},
    {"m16n8k4", Type::TF32, 16, 4},   {"m16n8k8", Type::TF32, 16, 8},
    {"m16n8k16", Type::E4M3, 16, 16}, {"m16n8k32", Type::E4M3, 16, 32},
    {"m8n8k16", Type::S8, 8, 16},     {"m16n8k16", Type::S8, 16, 16},
    {"m16n8k32", Type::S8, 16, 32},   {"m8n8k4", Type::F64, 8, 4},
    {"m16n8k4", Type::F64, 16, 4},    {"m16n8k8", Type::F64, 16, 8},
    {"m16n8k16", Type::F64, 16, 16},
};

Type kind_of(Type type) {
  return type == Type::E5M2 ? Type::E4M3 : type == Type::U8 ? Type::S8 : type;
}

void decode_mma(Decoder& d) {
  if (!d.take("sync") || !d.take("aligned")) d.unknown();
  std::string_view shape =
      d.take_one({"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m8n8k4", "m8n8k16"});
  if (!d.take("row") || !d.take("col")) d.unknown();
  d.take("kind::f8f6f4");
  d.now.b = d.take("satfinite");
  Type to = d.type(), a = d.type(), b = d.type(), c = d.type();
  const Row* row = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Row& each) {
    return each.shape == shape && each.a == kind_of(a);
  });
  if (row == std::end(kShapes) || kind_of(a) != kind_of(b)) d.unknown();
  bool integers = kind_of(a) == Type::S8;
  Type wide = integers ? Type::S32 : a == Type::F64 ? Type::F64 : Type::F32;
  bool half_allowed = a == Type::F16 || kind_of(a) == Type::E4M3;
  for (Type type : {to, c})
    if (type != wide && !(half_allowed && type == Type::F16)) d.unknown();
  if (to != c || (d.now.b && !integers)) d.unknown();
  d.now.count = static_cast<uint8_t>(row->m);
  d.now.a = static_cast<uint8_t>(row->k);
  d.now.immediate = static_cast<int64_t>(to) | static_cast<int64_t>(a) << 8 |
                    static_cast<int64_t>(b) << 16 | static_cast<int64_t>(c) << 24;
  Shape all = shape_of(d.now);
  auto count = static_cast<size_t>(accumulators(all));
  Type accumulator = to == Type::F64 ? Type::F64 : Type::B32;
  Type fragment = a == Type::F64 ? Type::F64 : Type::B32;
  d.expect_operands(4);
  d.define_vector(0, accumulator, count);
  d.use_vector(1, fragment, static_cast<size_t>(lie_of(a, row->k).registers * (row->m / 8)));
  d.use_vector(2, fragment, static_cast<size_t>(lie_of(b, row->k).registers));
  d.use_vector(3, accumulator, count);
  d.now.together = true;
  d.now.run = mma;
}

constexpr Mnemonic kMnemonics[] = {{"mma", decode_mma}};

}  // namespace

std::span<const Mnemonic> mma_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
