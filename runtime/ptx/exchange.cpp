// What lanes of a warp tell each other: shfl, vote, match, redux, elect, activemask.
#include <algorithm>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

enum class Shuffle : uint8_t { Up, Down, Butterfly, Index };

// Operands: d, p (a sink if not asked for), a, b, c, mask.
void shuffle(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[2]), *b = warp.at(in.operand[3]),
                  *c = warp.at(in.operand[4]);
  uint32_t valid = 0;
  uint32_t results[kLanes];
  for_each_lane(mask, [&](int lane) {
    auto offset = static_cast<int>(get<uint32_t>(b, lane) & 31);
    uint32_t control = get<uint32_t>(c, lane);
    auto clamp = static_cast<int>(control & 31), segment = static_cast<int>(control >> 8 & 31);
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from = lane;
    bool inside = false;
    switch (static_cast<Shuffle>(in.a)) {
      case Shuffle::Up:
        from = lane - offset;
        inside = from >= last;
        break;
      case Shuffle::Down:
        from = lane + offset;
        inside = from <= last;
        break;
      case Shuffle::Butterfly:
        from = lane ^ offset;
        inside = from <= last;
        break;
      case Shuffle::Index:
        from = first | (offset & ~segment);
        inside = from <= last;
        break;
    }
    if (!inside) from = lane;
    if (inside) valid |= 1u << lane;
    // A lane that does not take part has no defined value to give.
    results[lane] = mask >> from & 1 ? get<uint32_t>(a, from) : 0xdeadbeef;
  });
  fill<uint32_t>(warp.at(in.operand[0]), mask, [&](int lane) { return results[lane]; });
  warp.set_predicate(in.operand[1], mask, valid);
}

void decode_shfl(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  std::string_view mode = d.take_one({"up", "down", "bfly", "idx"});
  if (mode.empty() || d.type() != Type::B32) d.unknown();
  d.now.a = static_cast<uint8_t>(mode == "up"     ? Shuffle::Up
                                 : mode == "down" ? Shuffle::Down
                                 : mode == "bfly" ? Shuffle::Butterfly
                                                  : Shuffle::Index);
  d.expect_operands(5);
  const SyntaxOperand& result = d.syntax(0);
  if (result.kind == SyntaxOperand::Kind::Pair) {
    d.define(result.parts[0], 4);
    d.define(result.parts[1], 0);
  } else {
    d.define(result, 4);
    d.define(SyntaxOperand{}, 0);
  }
  for (size_t i = 1; i < 5; ++i) d.use(i, Type::B32);
  d.now.together = true;
  d.now.members = 5;
  d.now.run = shuffle;
}

enum class Vote : uint8_t { All, Any, Uniform, Ballot };

// Operands: d, p, mask.
void vote(Warp& warp, const Instruction& in, uint32_t mask) {
  uint32_t lanes = warp.predicate(in.operand[1]) & mask;
  switch (static_cast<Vote>(in.a)) {
    case Vote::All: warp.set_predicate(in.operand[0], mask, lanes == mask ? kAllLanes : 0); return;
    case Vote::Any: warp.set_predicate(in.operand[0], mask, lanes != 0 ? kAllLanes : 0); return;
    case Vote::Uniform:
      warp.set_predicate(in.operand[0], mask, lanes == mask || lanes == 0 ? kAllLanes : 0);
      return;
    case Vote::Ballot: fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int) { return lanes; });
  }
}

void decode_vote(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  std::string_view mode = d.take_one({"all", "any", "uni", "ballot"});
  if (mode.empty() || d.type() != (mode == "ballot" ? Type::B32 : Type::Pred)) d.unknown();
  d.now.a = static_cast<uint8_t>(mode == "all"   ? Vote::All
                                 : mode == "any" ? Vote::Any
                                 : mode == "uni" ? Vote::Uniform
                                                 : Vote::Ballot);
  d.expect_operands(3);
  d.define(0, mode == "ballot" ? Type::B32 : Type::Pred);
  d.use(1, Type::Pred);
  d.use(2, Type::B32);
  d.now.together = true;
  d.now.members = 2;
  d.now.run = vote;
}

// Operands: d, p (a sink if not asked for), a, mask. in.a: all lanes must agree.
template <class T>
void match(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* a = warp.at(in.operand[2]);
  uint32_t results[kLanes], agreed = 0;
  for_each_lane(mask, [&](int lane) {
    T mine = get<T>(a, lane);
    uint32_t same = lanes_where(mask, [&](int other) { return get<T>(a, other) == mine; });
    bool all = same == mask;
    results[lane] = in.a && !all ? 0 : same;
    if (all) agreed |= 1u << lane;
  });
  fill<uint32_t>(warp.at(in.operand[0]), mask, [&](int lane) { return results[lane]; });
  warp.set_predicate(in.operand[1], mask, agreed);
}

void decode_match(Decoder& d) {
  d.now.a = d.take("all");
  if ((!d.now.a && !d.take("any")) || !d.take("sync")) d.unknown();
  Type type = d.type();
  if (type != Type::B32 && type != Type::B64) d.unknown();
  d.expect_operands(3);
  const SyntaxOperand& result = d.syntax(0);
  bool pair = result.kind == SyntaxOperand::Kind::Pair;
  d.define(pair ? result.parts[0] : result, 4);
  d.define(pair ? result.parts[1] : SyntaxOperand{}, 0);
  d.use(1, type);
  d.use(2, Type::B32);
  d.now.together = true;
  d.now.members = 3;
  d.now.run = type == Type::B32 ? match<uint32_t> : match<uint64_t>;
}

enum class Reduce : uint8_t { Add, Min, Max, And, Or, Xor };

template <class T>
void redux(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* a = warp.at(in.operand[1]);
  T result = get<T>(a, std::countr_zero(mask));
  for_each_lane(mask & (mask - 1), [&](int lane) {
    T x = get<T>(a, lane);
    switch (static_cast<Reduce>(in.a)) {
      case Reduce::Add:
        result = static_cast<T>(static_cast<uint32_t>(result) + static_cast<uint32_t>(x));
        break;
      case Reduce::Min: result = std::min(result, x); break;
      case Reduce::Max: result = std::max(result, x); break;
      case Reduce::And: result &= x; break;
      case Reduce::Or: result |= x; break;
      case Reduce::Xor: result ^= x; break;
    }
  });
  fill<T>(warp.at(in.operand[0]), mask, [=](int) { return result; });
}

void decode_redux(Decoder& d) {
  constexpr std::string_view kOps[] = {"add", "min", "max", "and", "or", "xor"};
  if (!d.take("sync")) d.unknown();
  size_t op = 0;
  while (op < std::size(kOps) && !d.take(kOps[op])) ++op;
  Type type = d.type();
  if (op == std::size(kOps) || bytes_of(type) != 4 || is_float(type)) d.unknown();
  d.now.a = static_cast<uint8_t>(op);
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, Type::B32);
  d.now.together = true;
  d.now.members = 2;
  d.now.run = type == Type::S32 ? redux<int32_t> : redux<uint32_t>;
}

// Operands: d, p, mask.
void elect(Warp& warp, const Instruction& in, uint32_t mask) {
  auto leader = static_cast<uint32_t>(std::countr_zero(mask));
  fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int) { return leader; });
  warp.set_predicate(in.operand[1], mask, 1u << leader);
}

void decode_elect(Decoder& d) {
  if (!d.take("sync")) d.unknown();
  d.expect_operands(2);
  const SyntaxOperand& result = d.syntax(0);
  if (result.kind != SyntaxOperand::Kind::Pair) d.fail("the result must be 'd|p'");
  d.define(result.parts[0], 4);
  d.define(result.parts[1], 0);
  d.use(1, Type::B32);
  d.now.together = true;
  d.now.members = 2;
  d.now.run = elect;
}

void activemask(Warp& warp, const Instruction& in, uint32_t mask) {
  fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int) { return mask; });
}

void decode_activemask(Decoder& d) {
  if (d.type() != Type::B32) d.unknown();
  d.expect_operands(1);
  d.define(0, Type::B32);
  d.now.run = activemask;
}

constexpr Mnemonic kMnemonics[] = {
    {"shfl", decode_shfl},   {"vote", decode_vote},   {"match", decode_match},
    {"redux", decode_redux}, {"elect", decode_elect}, {"activemask", decode_activemask},
};

}  // namespace

std::span<const Mnemonic> warp_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
