// wgmma: four warps multiply 64 rows of a, 16 to each, with the columns of b in shared memory. Each
// warp runs its own part. Fragments are those of mma.sync with 8 columns a time (mma.cpp); operands
// in shared memory are told by descriptors of 64 bits (PTX ISA, "Matrix Descriptor Format").
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"
#include "runtime/ptx/element.h"

namespace kiln::ptx {
namespace {

constexpr int kRows = 16;        // of a warp
constexpr int kDepthBytes = 32;  // along k, of an instruction
constexpr int kMostDepth = 32, kMostColumns = 256;
constexpr int kChunk = 16;  // bytes that lie together

// Of Instruction: count = registers of d; a = these bits; immediate = types of d, a, b, then n.
constexpr uint8_t kRegistersA = 1, kMajorA = 2, kMajorB = 4, kNegateA = 8, kNegateB = 16,
                  kSaturates = 32;

Type type_of(const Instruction& in, int i) {
  return static_cast<Type>(in.immediate >> (8 * i) & 0xff);
}

// An operand in shared memory: `rows` of m or n from the first on, and all of k.
struct SharedOperand {
  uint64_t start, leading, stride;  // bytes
  uint32_t width;                   // of the swizzle: 16 (none), 32, 64, 128
  bool mn_major;
  int element_bytes;

  SharedOperand(uint64_t descriptor, bool mn_major, int element_bytes)
      : start((descriptor & 0x3fff) << 4),
        leading((descriptor >> 16 & 0x3fff) << 4),
        stride((descriptor >> 32 & 0x3fff) << 4),
        width(kWidths[descriptor >> 62]),
        mn_major(mn_major),
        element_bytes(element_bytes) {}

  // The address of the 16 bytes that begin with the element (mn, k).
  uint64_t address(uint64_t mn, uint64_t k) const {
    const uint64_t in_chunk = kChunk / static_cast<uint64_t>(element_bytes);
    uint64_t at = start;
    if (!mn_major) {
      at += mn % 8 * width + mn / 8 * stride;
      at += width == kChunk ? k / in_chunk * leading : k * static_cast<uint64_t>(element_bytes);
    } else if (width == kChunk) {
      at += mn / in_chunk * stride + k % 8 * kChunk + k / 8 * leading;
    } else {
      const uint64_t row = width / static_cast<uint64_t>(element_bytes);
      at += mn % row * static_cast<uint64_t>(element_bytes) + mn / row * leading;
      at += k % 8 * width + k / 8 * stride;
    }
    return at ^ (at >> 7 & (width / kChunk - 1)) << 4;
  }

  // Calls f(mn, k, address) for all chunks of rows [first, first + rows).
  template <class F>
  void for_each_chunk(int first, int rows, F f) const {
    const int in_chunk = kChunk / element_bytes, depth = kDepthBytes / element_bytes;
    const int mn_step = mn_major ? in_chunk : 1, k_step = mn_major ? 1 : in_chunk;
    for (int mn = first; mn < first + rows; mn += mn_step)
      for (int k = 0; k < depth; k += k_step)
        f(mn, k, address(static_cast<uint64_t>(mn), static_cast<uint64_t>(k)));
  }

 private:
  static constexpr uint32_t kWidths[] = {16, 128, 64, 32};
};

struct Operands {
  const Instruction& in;
  const Wgmma& wgmma;
  SharedOperand a() const { return {wgmma.a, (in.a & kMajorA) != 0, bytes_of(type_of(in, 1))}; }
  SharedOperand b() const { return {wgmma.b, (in.a & kMajorB) != 0, bytes_of(type_of(in, 2))}; }
};

// Elements of a chunk along the rows of `out`, or its columns.
template <Type T, size_t Columns>
void take(const std::byte* chunk, int mn, int k, bool along_mn, double sign,
          double (*out)[Columns]) {
  constexpr int kBytes = T == Type::TF32 ? 4 : T == Type::F16 || T == Type::BF16 ? 2 : 1;
  for (int i = 0; i < kChunk / kBytes; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, chunk + i * kBytes, kBytes);
    const double value = sign * element<T>(bits);
    (along_mn ? out[k][mn + i] : out[k + i][mn]) = value;
  }
}

// out[k][mn]: an operand's rows [first, first + rows), as rows from 0 on.
template <size_t Columns>
void gather(Warp& warp, Type type, const SharedOperand& from, int first, int rows, bool negated,
            double (*out)[Columns]) {
  const double sign = negated ? -1 : 1;
  const auto run = [&]<Type T>() {
    from.for_each_chunk(first, rows, [&](int mn, int k, uint64_t address) {
      const std::byte* chunk = warp.block().shared.data() + (address - kSharedBase);
      take<T>(chunk, mn - first, k, from.mn_major, sign, out);
    });
  };
  switch (type) {
    case Type::F16: return run.template operator()<Type::F16>();
    case Type::BF16: return run.template operator()<Type::BF16>();
    case Type::TF32: return run.template operator()<Type::TF32>();
    case Type::E4M3: return run.template operator()<Type::E4M3>();
    case Type::E5M2: return run.template operator()<Type::E5M2>();
    case Type::U8: return run.template operator()<Type::U8>();
    default: return run.template operator()<Type::S8>();
  }
}

// A fragment: register q holds consecutive k of row lane/4, or that + 8.
void gather_registers(Warp& warp, Type type, const Operand* registers, bool negated,
                      double (*out)[kRows]) {
  const int bits = 8 * bytes_of(type), in_register = 32 / bits;
  for (int q = 0; q < 4; ++q) {
    const std::byte* lanes = warp.at(registers[q]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t word = lane32(lanes, lane);
      const int row = lane / 4 + 8 * (q % 2), k = in_register * (4 * (q / 2) + lane % 4);
      for (int i = 0; i < in_register; ++i) {
        const double value = element_of(type, word >> (bits * i % 32));
        out[k + i][row] = negated ? -value : value;
      }
    }
  }
}

// Calls f(register, half, lane, row, column) for the elements of d.
template <class F>
void for_each_element(int columns, bool halves, F f) {
  for (int i = 0; i < columns / 2; ++i)
    for (int lane = 0; lane < kLanes; ++lane)
      f(halves ? i / 2 : i, halves ? i % 2 : 0, lane, lane / 4 + 8 * (i / 2 % 2),
        8 * (i / 4) + 2 * (lane % 4) + i % 2);
}

uint32_t rounded(Type type, double sum, bool saturates) {
  if (type == Type::F32) return std::bit_cast<uint32_t>(canonical(static_cast<float>(sum)));
  if (type == Type::F16) return half_of(sum).bits;
  auto exact = static_cast<int64_t>(sum);  // far from 2^53
  if (saturates)
    exact = std::clamp<int64_t>(exact, std::numeric_limits<int32_t>::min(),
                                std::numeric_limits<int32_t>::max());
  return static_cast<uint32_t>(exact);
}

// Notes what is read of shared memory, and finds what cannot be.
void check_shared(Warp& warp, const SharedOperand& operand, int first, int rows, AgentId agent,
                  uint32_t clock) {
  operand.for_each_chunk(first, rows, [&](int, int, uint64_t address) {
    Access access(warp, Space::Shared, kChunk, Intent::Read);
    const std::byte* place = access.find(0, address);
    access.by(agent, clock);
    access.note(0, address, 0, place);
  });
}

void check_descriptor(Warp& warp, uint64_t descriptor) {
  if (descriptor >> 49 & 7)
    warp.fault(FindingKind::Misaligned,
               fmt::format("a matrix descriptor with base offset {} is not emulated",
                           descriptor >> 49 & 7),
               "begin matrices where the swizzle's pattern does: 1024, 512 or 256 bytes");
}

// Operands: d as results, d, a (registers or a descriptor), b's descriptor, scale-d.
void mma_async(Warp& warp, const Instruction& in, uint32_t mask) {
  if (mask != kAllLanes)
    warp.fault(FindingKind::DivergentWarp, "not all 32 lanes of the warp run it",
               "run it with whole warps: no lane may have left before");
  if (warp.block().grid.threads() < (warp.index / 4 + 1) * 4 * kLanes)
    warp.fault(
        FindingKind::DivergentWarp,
        fmt::format("warp {} is not one of four that begin at a multiple of four", warp.index),
        "launch whole warpgroups of 128 threads");
  const uint32_t last = in.operands - 1;
  const uint32_t scale = warp.predicate(in.operand[last]);
  if (scale != 0 && scale != kAllLanes)
    warp.fault(FindingKind::DivergentWarp, "lanes differ in scale-d",
               "let all lanes have the same predicate");
  const auto descriptor = [&](uint32_t operand) {
    const std::byte* lanes = warp.at(in.operand[operand]);
    for (int lane = 1; lane < kLanes; ++lane)
      if (get<uint64_t>(lanes, lane) != get<uint64_t>(lanes, 0))
        warp.fault(FindingKind::DivergentWarp, "lanes differ in a matrix descriptor",
                   "let all lanes have the same descriptor");
    check_descriptor(warp, get<uint64_t>(lanes, 0));
    return get<uint64_t>(lanes, 0);
  };
  Wgmma wgmma{&in, 0, descriptor(last - 1), scale != 0, warp.flight.group(), false};
  if ((in.a & kRegistersA) == 0) wgmma.a = descriptor(last - 2);
  Clocks& clocks = warp.block().clocks;
  const AgentId agent = clocks.agent(Clocks::Kind::Wgmma, warp.index);
  const Operands operands{in, wgmma};
  if ((in.a & kRegistersA) == 0)
    check_shared(warp, operands.a(), static_cast<int>(warp.index % 4) * kRows, kRows, agent,
                 wgmma.group + 1);
  check_shared(warp, operands.b(), 0, columns_of(in), agent, wgmma.group + 1);
  warp.flight.begin(warp, wgmma);
}

void fence(Warp& warp, const Instruction&, uint32_t) {
  warp.flight.fence();
}
void commit_group(Warp& warp, const Instruction&, uint32_t) {
  warp.flight.commit();
}
void wait_group(Warp& warp, const Instruction& in, uint32_t) {
  warp.flight.wait(warp, static_cast<uint32_t>(in.immediate));
}

bool is_number(Type type) {
  return type == Type::S8 || type == Type::U8;
}

struct Form {
  Type kind;  // of a; b's is of the same
  int depth;
  bool half;  // d may be f16
};
constexpr Form kForms[] = {{Type::F16, 16, true},
                           {Type::BF16, 16, false},
                           {Type::TF32, 8, false},
                           {Type::E4M3, 32, true},
                           {Type::S8, 32, false}};

Type kind_of(Type type) {
  return type == Type::E5M2 ? Type::E4M3 : type == Type::U8 ? Type::S8 : type;
}

// "m64n128k16": n; the depth must be the form's.
int take_shape(Decoder& d, const Form& form) {
  for (int n = 8; n <= kMostColumns; n += 8)
    if (d.take(fmt::format("m64n{}k{}", n, form.depth))) {
      const bool coarse = is_number(form.kind) && n > 32;  // also 24, then steps of 16
      if (coarse && n % 16 != 0) d.fail("no such number of columns of integers");
      return n;
    }
  d.unknown();
}

int64_t take_sign(Decoder& d, size_t index) {
  const auto sign = static_cast<int32_t>(d.integer(index));
  if (sign != 1 && sign != -1) d.fail(fmt::format("operand {} must be 1 or -1", index));
  return sign;
}

void decode_mma(Decoder& d) {
  if (!d.take("sync") || !d.take("aligned")) d.unknown();
  if (d.take("satfinite")) d.now.a |= kSaturates;
  const Type to = d.type(), a = d.type(), b = d.type();
  const Form* form = std::find_if(std::begin(kForms), std::end(kForms),
                                  [&](const Form& each) { return each.kind == kind_of(a); });
  if (form == std::end(kForms) || kind_of(b) != kind_of(a)) d.unknown();
  const Type wide = is_number(a) ? Type::S32 : Type::F32;
  if (to != wide && !(form->half && to == Type::F16)) d.unknown();
  if ((d.now.a & kSaturates) && !is_number(a)) d.unknown();
  const int columns = take_shape(d, *form);
  const auto count = static_cast<size_t>(to == Type::F16 ? columns / 4 : columns / 2);
  d.now.count = static_cast<uint8_t>(count);
  d.now.immediate = static_cast<int64_t>(to) | static_cast<int64_t>(a) << 8 |
                    static_cast<int64_t>(b) << 16 | static_cast<int64_t>(columns) << 24;
  const bool registers = d.syntax(1).kind == SyntaxOperand::Kind::Vector;
  if (registers) d.now.a |= kRegistersA;
  const size_t signs = is_number(a) ? 0 : 2;
  const size_t majors = bytes_of(a) != 2 ? 0 : registers ? 1 : 2;
  d.expect_operands(4 + signs + majors);
  d.define_vector(0, Type::B32, count);
  d.use_vector(0, Type::B32, count);
  registers ? d.use_vector(1, Type::B32, 4) : d.use(1, Type::B64);
  d.use(2, Type::B64);
  d.use(3, Type::Pred);
  if (signs) {
    if (take_sign(d, 4) < 0) d.now.a |= kNegateA;
    if (take_sign(d, 5) < 0) d.now.a |= kNegateB;
  }
  if (majors == 2 && d.integer(6) != 0) d.now.a |= kMajorA;
  if (majors > 0 && d.integer(5 + majors) != 0) d.now.a |= kMajorB;
  d.now.together = true;
  d.now.run = mma_async;
}

void decode_wgmma(Decoder& d) {
  if (d.take("mma_async")) return decode_mma(d);
  const std::string_view what = d.take_one({"fence", "commit_group", "wait_group"});
  if (what.empty() || !d.take("sync") || !d.take("aligned")) d.unknown();
  d.expect_operands(what == "wait_group" ? 1 : 0);
  if (what == "wait_group") d.now.immediate = static_cast<int64_t>(d.integer(0) & 0xffffffff);
  d.now.together = true;
  d.now.run = what == "fence" ? fence : what == "commit_group" ? commit_group : wait_group;
}

constexpr Mnemonic kMnemonics[] = {{"wgmma", decode_wgmma}};

}  // namespace

bool a_in_registers(const Instruction& wgmma) {
  return (wgmma.a & kRegistersA) != 0;
}

int columns_of(const Instruction& wgmma) {
  return static_cast<int>(wgmma.immediate >> 24);
}

// f64 sums products exactly enough that the one rounding at the end decides.
void multiply(Warp& warp, const Wgmma& wgmma) {
  const Instruction& in = *wgmma.in;
  const Operands operands{in, wgmma};
  const Type to = type_of(in, 0);
  const int columns = columns_of(in), depth = kDepthBytes / bytes_of(type_of(in, 1));
  double left[kMostDepth][kRows], right[kMostDepth][kMostColumns], sum[kRows][kMostColumns] = {};
  if (in.a & kRegistersA)
    gather_registers(warp, type_of(in, 1), in.operand + 2 * in.count, (in.a & kNegateA) != 0, left);
  else
    gather(warp, type_of(in, 1), operands.a(), static_cast<int>(warp.index % 4) * kRows, kRows,
           (in.a & kNegateA) != 0, left);
  gather(warp, type_of(in, 2), operands.b(), 0, columns, (in.a & kNegateB) != 0, right);
  const bool halves = to == Type::F16;
  if (wgmma.adds)
    for_each_element(columns, halves, [&](int r, int half, int lane, int row, int column) {
      sum[row][column] = element_of(to, lane32(warp.at(in.operand[r]), lane) >> (16 * half));
    });
  for (int row = 0; row < kRows; ++row)
    for (int k = 0; k < depth; ++k) {
      const double factor = left[k][row];
      for (int n = 0; n < columns; ++n) sum[row][n] += factor * right[k][n];
    }
  for_each_element(columns, halves, [&](int r, int half, int lane, int row, int column) {
    std::byte* out = warp.at(in.operand[r]);
    uint32_t bits = rounded(to, sum[row][column], (in.a & kSaturates) != 0);
    if (half == 1) bits = bits << 16 | (lane32(out, lane) & 0xffff);
    set<uint32_t>(out, lane, bits);
  });
}

std::span<const Mnemonic> wgmma_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
