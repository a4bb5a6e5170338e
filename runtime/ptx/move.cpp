// mov, also between a register and a vector of its parts; clocks.
#include <fmt/format.h>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

using Kind = SyntaxOperand::Kind;

template <class T>
void move(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* from = warp.at(in.operand[1]);
  fill<T>(warp.at(in.operand[0]), mask, [=](int lane) { return get<T>(from, lane); });
}

void move_128(Warp& warp, const Instruction& in, uint32_t mask) {
  for_each_lane(mask, [&](int lane) {
    std::memmove(warp.at(in.operand[0]) + lane * 16, warp.at(in.operand[1]) + lane * 16, 16);
  });
}

void move_predicate(Warp& warp, const Instruction& in, uint32_t mask) {
  warp.set_predicate(in.operand[0], mask, warp.predicate(in.operand[1]));
}

// A register from in.count parts of in.a bytes each, and back.
void pack(Warp& warp, const Instruction& in, uint32_t mask) {
  std::byte* to = warp.at(in.operand[0]);
  for_each_lane(mask, [&](int lane) {
    uint8_t bytes[16] = {};
    for (int n = 0; n < in.count; ++n) {
      const Operand& part = in.operand[n + 1];
      std::memcpy(bytes + n * in.a, warp.at(part) + lane * part.bytes, in.a);
    }
    std::memcpy(to + lane * in.operand[0].bytes, bytes, in.operand[0].bytes);
  });
}

void unpack(Warp& warp, const Instruction& in, uint32_t mask) {
  const Operand& whole = in.operand[in.count];
  const std::byte* from = warp.at(whole);
  for_each_lane(mask, [&](int lane) {
    uint8_t bytes[16] = {};
    std::memcpy(bytes, from + lane * whole.bytes, whole.bytes);
    for (int n = 0; n < in.count; ++n) {
      const Operand& part = in.operand[n];
      uint8_t wide[16] = {};
      std::memcpy(wide, bytes + n * in.a, in.a);
      std::memcpy(warp.at(part) + lane * part.bytes, wide, part.bytes);
    }
  });
}

Type part_type(Decoder& d, int bytes) {
  switch (bytes) {
    case 1: return Type::B8;
    case 2: return Type::B16;
    case 4: return Type::B32;
    case 8: return Type::B64;
    default: d.unknown();
  }
}

void decode_vector(Decoder& d, Type type, bool packs) {
  const SyntaxOperand& vector = d.syntax(packs ? 1 : 0);
  size_t count = vector.parts.size();
  if (count != 2 && count != 4) d.fail("a vector of 2 or 4");
  int bytes = bytes_of(type) / static_cast<int>(count);
  Type part = part_type(d, bytes);
  d.now.count = static_cast<uint8_t>(count);
  d.now.a = static_cast<uint8_t>(bytes);
  if (packs) d.define(0, type);
  for (const SyntaxOperand& each : vector.parts)
    if (packs)
      d.use(each, part);
    else
      d.define(each, bytes);
  if (!packs) d.use(1, type);
  d.now.run = packs ? pack : unpack;
}

// %clock counts the warp's instructions: it grows, and is the same in every run. As a GPU's, it has
// not begun with the block. a: bits that it is shifted down by.
template <class T>
void clock(Warp& warp, const Instruction& in, uint32_t mask) {
  constexpr uint64_t kBegin = uint64_t{1} << 40;
  auto now = static_cast<T>((kBegin + warp.turns) >> in.a);
  fill<T>(warp.at(in.operand[0]), mask, [=](int) { return now; });
}

bool is_clock(std::string_view name) {
  return name == "%clock" || name == "%clock64" || name == "%clock_hi" || name == "%globaltimer" ||
         name == "%globaltimer_lo" || name == "%globaltimer_hi";
}

void decode_mov(Decoder& d) {
  Type type = d.type();
  d.expect_operands(2);
  const SyntaxOperand& to = d.syntax(0);
  const SyntaxOperand& from = d.syntax(1);
  if (to.kind == Kind::Vector) return decode_vector(d, type, false);
  if (from.kind == Kind::Vector) return decode_vector(d, type, true);
  d.define(0, type);
  if (from.kind == Kind::Special && is_clock(from.name)) {
    d.now.a = from.name.ends_with("_hi") ? 32 : 0;
    d.now.run = bytes_of(type) == 8 ? clock<uint64_t> : clock<uint32_t>;
    return;
  }
  d.use(1, type);
  switch (bytes_of(type)) {
    case 0: d.now.run = move_predicate; return;
    case 1:
    case 2:
    case 4: d.now.run = move<uint32_t>; return;
    case 8: d.now.run = move<uint64_t>; return;
    default: d.now.run = move_128;
  }
}

constexpr Mnemonic kMnemonics[] = {{"mov", decode_mov}};

}  // namespace

std::span<const Mnemonic> move_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
