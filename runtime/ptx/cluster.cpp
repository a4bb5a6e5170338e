// Clusters, of one block each: addresses of shared memory are its own, its barrier is the block's.
#include <fmt/format.h>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"

namespace kiln::ptx {
namespace {

// Operands: d, address, rank.
template <class T>
void mapa(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *addresses = warp.at(in.operand[1]), *ranks = warp.at(in.operand[2]);
  for_each_lane(mask, [&](int lane) {
    if (const auto rank = get<uint32_t>(ranks, lane); rank != 0)
      warp.fault(FindingKind::OutOfBounds,
                 fmt::format("{} asks for shared memory of block {} of a cluster of 1",
                             warp.thread_name(lane), rank),
                 "the emulator runs clusters of one block");
  });
  fill<T>(warp.at(in.operand[0]), mask, [=](int lane) { return get<T>(addresses, lane); });
}

void decode_mapa(Decoder& d) {
  d.take("shared::cluster");
  const Type type = d.type();
  if (type != Type::U32 && type != Type::U64) d.unknown();
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, Type::U32);
  d.now.run = type == Type::U32 ? mapa<uint32_t> : mapa<uint64_t>;
}

// The block's rank in its cluster.
void decode_getctarank(Decoder& d) {
  d.take("shared::cluster");
  const Type type = d.type();
  if (type != Type::U32 && type != Type::U64) d.unknown();
  d.expect_operands(2);
  d.define(0, Type::U32);
  d.use(1, type);
  d.now.run = [](Warp& warp, const Instruction& in, uint32_t mask) {
    fill<uint32_t>(warp.at(in.operand[0]), mask, [](int) { return 0u; });
  };
}

// A cache policy: which lines stay changes no result.
void decode_createpolicy(Decoder& d) {
  if (!d.take("fractional") && !d.take("range") && !d.take("cvt")) d.unknown();
  d.take("L2");
  d.take("global");
  d.take_prefix("L2::");
  if (d.type() != Type::B64) d.unknown();
  d.define(0, Type::B64);
  d.now.run = [](Warp& warp, const Instruction& in, uint32_t mask) {
    fill<uint64_t>(warp.at(in.operand[0]), mask, [](int) { return uint64_t{0}; });
  };
}

constexpr Mnemonic kMnemonics[] = {
    {"mapa", decode_mapa},
    {"getctarank", decode_getctarank},
    {"createpolicy", decode_createpolicy},
};

}  // namespace

std::span<const Mnemonic> cluster_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
