// Loops over the lanes of a warp, and the handlers that do one function of one lane in all of them.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/ptx/numeric.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {

// What a lane of a register that holds T is stored as.
template <class T>
using Lane = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline T get(const std::byte* lanes, int lane) {
  Lane<T> raw;
  std::memcpy(&raw, lanes + static_cast<size_t>(lane) * sizeof raw, sizeof raw);
  if constexpr (sizeof(T) == sizeof raw)
    return std::bit_cast<T>(raw);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(raw);
  else
    return T{static_cast<uint16_t>(raw)};
}

template <class T>
inline Lane<T> raw_of(T value) {
  if constexpr (sizeof(T) == sizeof(Lane<T>))
    return std::bit_cast<Lane<T>>(value);
  else if constexpr (std::is_integral_v<T>)
    return static_cast<std::make_unsigned_t<T>>(value);
  else
    return value.bits;
}

template <class T>
inline void set(std::byte* lanes, int lane, T value) {
  Lane<T> raw = raw_of(value);
  std::memcpy(lanes + static_cast<size_t>(lane) * sizeof raw, &raw, sizeof raw);
}

template <class F>
inline void for_each_lane(uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

// out[lane] = f(lane). All operands are read before a result is written when all lanes run.
template <class D, class F>
inline void fill(std::byte* out, uint32_t mask, F f) {
  if (mask == kAllLanes) {
    alignas(64) Lane<D> results[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) results[lane] = raw_of<D>(f(lane));
    std::memcpy(out, results, sizeof results);
  } else {
    for_each_lane(mask, [&](int lane) { set<D>(out, lane, f(lane)); });
  }
}

// Lanes for which f is true.
template <class F>
inline uint32_t lanes_where(uint32_t mask, F f) {
  uint32_t lanes = 0;
  for_each_lane(mask, [&](int lane) { lanes |= static_cast<uint32_t>(f(lane)) << lane; });
  return lanes;
}

// Handlers: F is a type whose operator() takes and gives values of one lane.
template <class F, class D, class A>
void unary(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* a = warp.at(in.operand[1]);
  fill<D>(warp.at(in.operand[0]), mask, [=](int i) { return D(F{}(get<A>(a, i))); });
}
template <class F, class D, class A, class B>
void binary(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]);
  fill<D>(warp.at(in.operand[0]), mask, [=](int i) { return D(F{}(get<A>(a, i), get<B>(b, i))); });
}
template <class F, class D, class A, class B, class C>
void ternary(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]),
                  *c = warp.at(in.operand[3]);
  fill<D>(warp.at(in.operand[0]), mask,
          [=](int i) { return D(F{}(get<A>(a, i), get<B>(b, i), get<C>(c, i))); });
}

}  // namespace kiln::ptx
