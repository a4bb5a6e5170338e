// cp.reduce.async.bulk: what each element becomes.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/ptx/bulk.h"
#include "runtime/ptx/numeric.h"

namespace kiln::ptx {
namespace {

template <class T>
T apply(Reduction reduction, T old, T b) {
  switch (reduction) {
    case Reduction::Add: return static_cast<T>(old + b);
    case Reduction::Min: return std::min(old, b);
    case Reduction::Max: return std::max(old, b);
    case Reduction::Inc: return old >= b ? T{0} : static_cast<T>(old + 1);
    case Reduction::Dec: return old == 0 || old > b ? b : static_cast<T>(old - 1);
    case Reduction::And: return old & b;
    case Reduction::Or: return old | b;
    case Reduction::Xor: return old ^ b;
    default: return b;
  }
}

template <class T>
T apply_float(Reduction reduction, T old, T b) {
  if (reduction == Reduction::Min) return smaller(old, b);
  if (reduction == Reduction::Max) return larger(old, b);
  return canonical(old + b);
}

// Other blocks may reduce to the same element.
template <class Bits, class F>
void each(std::byte* to, const std::byte* from, size_t bytes, F f) {
  for (size_t i = 0; i + sizeof(Bits) <= bytes; i += sizeof(Bits)) {
    Bits b;
    std::memcpy(&b, from + i, sizeof b);
    std::atomic_ref<Bits> place(*reinterpret_cast<Bits*>(to + i));
    Bits old = place.load();
    while (!place.compare_exchange_weak(old, f(old, b))) {
    }
  }
}

template <class T, class Bits>
void integers(Reduction r, std::byte* to, const std::byte* from, size_t bytes) {
  each<Bits>(to, from, bytes, [r](Bits a, Bits b) {
    const auto signed_op = r == Reduction::Min || r == Reduction::Max;
    return signed_op ? static_cast<Bits>(apply(r, static_cast<T>(a), static_cast<T>(b)))
                     : apply(r, a, b);
  });
}

template <class T, class Bits>
void floats(Reduction r, std::byte* to, const std::byte* from, size_t bytes) {
  each<Bits>(to, from, bytes, [r](Bits a, Bits b) {
    return std::bit_cast<Bits>(apply_float(r, std::bit_cast<T>(a), std::bit_cast<T>(b)));
  });
}

}  // namespace

void reduce(Reduction r, Type type, std::byte* to, const std::byte* from, size_t bytes) {
  switch (type) {
    case Type::S32: return integers<int32_t, uint32_t>(r, to, from, bytes);
    case Type::S64: return integers<int64_t, uint64_t>(r, to, from, bytes);
    case Type::U64:
    case Type::B64: return integers<uint64_t, uint64_t>(r, to, from, bytes);
    case Type::F32: return floats<float, uint32_t>(r, to, from, bytes);
    case Type::F64: return floats<double, uint64_t>(r, to, from, bytes);
    case Type::F16:
      return each<uint16_t>(to, from, bytes, [r](uint16_t a, uint16_t b) {
        return to_half(apply_float(r, to_float(Half{a}), to_float(Half{b}))).bits;
      });
    case Type::BF16:
      return each<uint16_t>(to, from, bytes, [r](uint16_t a, uint16_t b) {
        return to_bfloat(apply_float(r, to_float(BFloat{a}), to_float(BFloat{b}))).bits;
      });
    default: return integers<uint32_t, uint32_t>(r, to, from, bytes);
  }
}

}  // namespace kiln::ptx
