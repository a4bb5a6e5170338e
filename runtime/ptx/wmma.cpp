// wmma: matrices in registers whose layout PTX leaves open. Here a lane holds consecutive elements
// of the matrix in row-major order, from its first register on; registers that are left over are 0.
#include <algorithm>
#include <limits>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"
#include "runtime/ptx/element.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

struct Shape {
  std::string_view name;
  int m, n, k;
};
constexpr Shape kShapes[] = {
    {"m16n16k16", 16, 16, 16}, {"m32n8k16", 32, 8, 16}, {"m8n32k16", 8, 32, 16}};

// A matrix in registers: rows × columns of a type, `registers` of 32 bits.
struct Fragment {
  int rows, columns;
  Type type;
  int bytes() const { return bytes_of(type); }
  int elements() const { return rows * columns / kLanes; }  // a lane
  int registers() const {
    // f16 operands have each element twice.
    bool twice = type == Type::F16 && rows * columns == 256 && operand;
    return elements() * bytes() / 4 * (twice ? 2 : 1);
  }
  bool operand = false;  // A or B rather than C or D
};

// Of Instruction: immediate = rows, columns, type, whether it is an operand and stored by columns.
int64_t packed(const Fragment& fragment, bool by_columns) {
  return fragment.rows | fragment.columns << 8 | static_cast<int64_t>(fragment.type) << 16 |
         int64_t{fragment.operand} << 24 | int64_t{by_columns} << 25;
}
Fragment fragment_of(int64_t bits) {
  return {static_cast<int>(bits & 0xff), static_cast<int>(bits >> 8 & 0xff),
          static_cast<Type>(bits >> 16 & 0xff), (bits >> 24 & 1) != 0};
}

void need_whole_warp(Warp& warp, uint32_t mask) {
  if (mask != kAllLanes)
    warp.fault(FindingKind::DivergentWarp, "not all 32 lanes of the warp run it",
               "run it with whole warps: no lane may have left before");
}

// f(lane, register, bit, address of the element).
template <class F>
void for_each_element(const Fragment& fragment, bool by_columns, uint64_t base, uint64_t stride,
                      F f) {
  int size = fragment.bytes(), in_register = 4 / size;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < fragment.elements(); ++i) {
      int index = lane * fragment.elements() + i;
      auto row = static_cast<uint64_t>(index / fragment.columns),
           column = static_cast<uint64_t>(index % fragment.columns);
      uint64_t offset = by_columns ? column * stride + row : row * stride + column;
      f(lane, i / in_register, 8 * size * (i % in_register),
        base + offset * static_cast<uint64_t>(size));
    }
}

// Operands: the registers, the address, the stride; a store has the address first.
void load_matrix(Warp& warp, const Instruction& in, uint32_t mask) {
  need_whole_warp(warp, mask);
  Fragment fragment = fragment_of(in.immediate);
  bool by_columns = in.immediate >> 25 & 1;
  const Operand* rest = in.operand + fragment.registers();
  uint64_t addresses[kLanes];
  Instruction plain = in;
  plain.immediate = in.target;
  lane_addresses(warp, plain, rest[0], addresses);
  uint64_t stride = lane32(warp.at(rest[1]), 0);
  for (int i = 0; i < fragment.registers(); ++i) std::memset(warp.at(in.operand[i]), 0, kSlotBytes);
  auto size = static_cast<uint32_t>(fragment.bytes());
  Access access(warp, in.space, size, Intent::Read);
  for_each_element(fragment, by_columns, addresses[0], stride,
                   [&](int lane, int index, int bit, uint64_t address) {
                     const std::byte* place = access.find(lane, address);
                     access.note(lane, address, 0, place);
                     uint32_t value = 0;
                     std::memcpy(&value, place, size);
                     std::byte* to = warp.at(in.operand[index]);
                     set<uint32_t>(to, lane, get<uint32_t>(to, lane) | value << bit);
                   });
}

void store_matrix(Warp& warp, const Instruction& in, uint32_t mask) {
  need_whole_warp(warp, mask);
  Fragment fragment = fragment_of(in.immediate);
  bool by_columns = in.immediate >> 25 & 1;
  uint64_t addresses[kLanes];
  Instruction plain = in;
  plain.immediate = in.target;
  lane_addresses(warp, plain, in.operand[0], addresses);
  auto size = static_cast<uint32_t>(fragment.bytes());
  Access access(warp, in.space, size, Intent::Write);
  for_each_element(fragment, by_columns, addresses[0],
                   lane32(warp.at(in.operand[1 + fragment.registers()]), 0),
                   [&](int lane, int index, int bit, uint64_t address) {
                     uint32_t value = get<uint32_t>(warp.at(in.operand[1 + index]), lane) >> bit;
                     std::byte* place = access.find(lane, address);
                     access.note(lane, address, 0, place, reinterpret_cast<std::byte*>(&value));
                     std::memcpy(place, &value, size);
                   });
}

void read_fragment(Warp& warp, const Operand* registers, const Fragment& fragment, double* out) {
  for_each_element(fragment, false, 0, static_cast<uint64_t>(fragment.columns),
                   [&](int lane, int index, int bit, uint64_t at) {
                     uint32_t value = get<uint32_t>(warp.at(registers[index]), lane) >> bit;
                     out[at / static_cast<uint64_t>(fragment.bytes())] =
                         element_of(fragment.type, value);
                   });
}

uint32_t result_bits(Type type, double x, bool saturates) {
  if (type == Type::F16) return half_of(x).bits;
  if (type == Type::F32) return std::bit_cast<uint32_t>(canonical(static_cast<float>(x)));
  auto exact = static_cast<int64_t>(x);
  if (saturates)
    exact = std::clamp<int64_t>(exact, std::numeric_limits<int32_t>::min(),
                                std::numeric_limits<int32_t>::max());
  return static_cast<uint32_t>(exact);
}

// immediate: the types of D, A, B, C; a: the shape; b: saturates.
void multiply(Warp& warp, const Instruction& in, uint32_t mask) {
  need_whole_warp(warp, mask);
  const Shape& shape = kShapes[in.a];
  auto type = [&](int i) { return static_cast<Type>(in.immediate >> (8 * i) & 0xff); };
  Fragment d{shape.m, shape.n, type(0)}, a{shape.m, shape.k, type(1), true},
      b{shape.k, shape.n, type(2), true}, c{shape.m, shape.n, type(3)};
  const Operand* registers = in.operand + d.registers();
  double left[512], right[512], sum[256];
  read_fragment(warp, registers, a, left);
  read_fragment(warp, registers += a.registers(), b, right);
  read_fragment(warp, registers + b.registers(), c, sum);
  for (int row = 0; row < shape.m; ++row)
    for (int k = 0; k < shape.k; ++k)
      for (int column = 0; column < shape.n; ++column)
        sum[row * shape.n + column] += left[row * shape.k + k] * right[k * shape.n + column];
  for (int i = 0; i < d.registers(); ++i) std::memset(warp.at(in.operand[i]), 0, kSlotBytes);
  for_each_element(d, false, 0, static_cast<uint64_t>(d.columns),
                   [&](int lane, int index, int bit, uint64_t at) {
                     double x = sum[at / static_cast<uint64_t>(d.bytes())];
                     std::byte* to = warp.at(in.operand[index]);
                     uint32_t value = result_bits(d.type, x, in.b != 0);
                     set<uint32_t>(to, lane, get<uint32_t>(to, lane) | value << bit);
                   });
}

uint8_t take_shape(Decoder& d) {
  uint8_t index = 0;
  while (index < std::size(kShapes) && !d.take(kShapes[index].name)) ++index;
  if (index == std::size(kShapes)) d.unknown();
  return index;
}

bool is_operand_type(Type type) {
  return type == Type::F16 || type == Type::BF16 || type == Type::S8 || type == Type::U8;
}
bool is_sum_type(Type type) {
  return type == Type::F16 || type == Type::F32 || type == Type::S32;
}

void decode_move(Decoder& d, bool loads) {
  std::string_view which = loads ? d.take_one({"a", "b", "c"}) : d.take_one({"d"});
  if (which.empty() || !d.take("sync") || !d.take("aligned")) d.unknown();
  std::string_view layout = d.take_one({"row", "col"});
  if (layout.empty()) d.unknown();
  const Shape& shape = kShapes[take_shape(d)];
  d.now.space = d.space();
  Fragment fragment{which == "b" ? shape.k : shape.m, which == "a" ? shape.k : shape.n, d.type(),
                    which == "a" || which == "b"};
  if (fragment.operand ? !is_operand_type(fragment.type) : !is_sum_type(fragment.type)) d.unknown();
  d.expect_operands(3);
  auto count = static_cast<size_t>(fragment.registers());
  if (loads) {
    d.define_vector(0, Type::B32, count);
    d.address(1);
  } else {
    d.address(0);
    d.use_vector(1, Type::B32, count);
  }
  d.use(2, Type::B32);
  if (d.now.immediate != static_cast<int32_t>(d.now.immediate)) d.fail("an offset of 32 bits");
  d.now.target = static_cast<int32_t>(d.now.immediate);
  d.now.immediate = packed(fragment, layout == "col");
  d.now.together = true;
  d.now.run = loads ? load_matrix : store_matrix;
}

void decode_multiply(Decoder& d) {
  // The layouts of A and B are those that they were loaded with.
  if (!d.take("sync") || !d.take("aligned") || d.take_one({"row", "col"}).empty()) d.unknown();
  d.take_one({"row", "col"});
  d.now.a = take_shape(d);
  d.now.b = d.take("satfinite");
  Type types[4] = {d.type(), d.type(), Type::F16, Type::F16};
  if (auto third = d.maybe_type()) {  // D, A, B, C; of f16 operands D and C alone are named
    types[2] = *third;
    types[3] = d.type();
  } else {
    types[3] = types[1];
    types[1] = Type::F16;
  }
  if (!is_sum_type(types[0]) || !is_operand_type(types[1]) || !is_operand_type(types[2]) ||
      !is_sum_type(types[3]))
    d.unknown();
  const Shape& shape = kShapes[d.now.a];
  Fragment fragments[] = {{shape.m, shape.n, types[0]},
                          {shape.m, shape.k, types[1], true},
                          {shape.k, shape.n, types[2], true},
                          {shape.m, shape.n, types[3]}};
  d.expect_operands(4);
  for (size_t i = 0; i < 4; ++i) {
    auto count = static_cast<size_t>(fragments[i].registers());
    i == 0 ? d.define_vector(i, Type::B32, count) : d.use_vector(i, Type::B32, count);
    d.now.immediate |= static_cast<int64_t>(types[i]) << (8 * i);
  }
  d.now.together = true;
  d.now.run = multiply;
}

void decode_wmma(Decoder& d) {
  if (d.take("mma")) return decode_multiply(d);
  bool loads = d.take("load");
  if (!loads && !d.take("store")) d.unknown();
  decode_move(d, loads);
}

constexpr Mnemonic kMnemonics[] = {{"wmma", decode_wmma}};

}  // namespace

std::span<const Mnemonic> wmma_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
