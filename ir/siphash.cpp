#include "ir/siphash.h"

#include <bit>

namespace kiln {
namespace {

struct State {
  uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }

  void absorb(uint64_t word) {
    v3 ^= word;
    for (int i = 0; i < 2; ++i) round();
    v0 ^= word;
  }

  uint64_t finish() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

uint64_t little_endian(std::string_view bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return word;
}

}  // namespace

Hash128 siphash128(std::string_view data, const Hash128& key) {
  // "somepseudorandomlygeneratedbytes"; 0xee and 0xdd tell the 128-bit variant from the 64-bit one.
  State state{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
              key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
  const uint64_t length = data.size();
  for (; data.size() >= 8; data.remove_prefix(8)) state.absorb(little_endian(data.substr(0, 8)));
  state.absorb(little_endian(data) | length << 56);
  state.v2 ^= 0xee;
  const uint64_t low = state.finish();
  state.v1 ^= 0xdd;
  return {low, state.finish()};
}

}  // namespace kiln
