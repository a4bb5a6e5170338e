// Integer and bit instructions, each against a direct computation.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using I32 = int32_t;
using U32 = uint32_t;
using I64 = int64_t;
using U64 = uint64_t;
__extension__ using I128 = __int128;
__extension__ using U128 = unsigned __int128;

U32 u32(U64 x) {
  return static_cast<U32>(x);
}
I32 i32(U64 x) {
  return static_cast<I32>(x);
}
I64 i64(U64 x) {
  return static_cast<I64>(x);
}
int16_t i16(U64 x) {
  return static_cast<int16_t>(x);
}
U64 low16(I64 x) {
  return static_cast<uint16_t>(x);
}
U64 low32(I64 x) {
  return static_cast<U32>(x);
}

TEST_CASE("add, sub, mul, mad of every width") {
  check_op("add.s16 $0, $1, $2;", {2, 2, 2}, [](auto* a) { return low16(i64(a[0] + a[1])); });
  check_op("add.u32 $0, $1, $2;", {4, 4, 4}, [](auto* a) { return low32(i64(a[0] + a[1])); });
  check_op("add.s64 $0, $1, $2;", {8, 8, 8}, [](auto* a) { return a[0] + a[1]; });
  check_op("sub.s32 $0, $1, $2;", {4, 4, 4}, [](auto* a) { return low32(i64(a[0] - a[1])); });
  check_op("sub.u64 $0, $1, $2;", {8, 8, 8}, [](auto* a) { return a[0] - a[1]; });
  auto clamp = [](I64 x) { return low32(std::clamp<I64>(x, INT32_MIN, INT32_MAX)); };
  check_op("add.sat.s32 $0, $1, $2;", {4, 4, 4},
           [=](auto* a) { return clamp(I64{i32(a[0])} + i32(a[1])); });
  check_op("sub.sat.s32 $0, $1, $2;", {4, 4, 4},
           [=](auto* a) { return clamp(I64{i32(a[0])} - i32(a[1])); });
  check_op("mul.lo.s16 $0, $1, $2;", {2, 2, 2},
           [](auto* a) { return low16(i64(u32(a[0]) * u32(a[1]))); });
  check_op("mul.hi.u16 $0, $1, $2;", {2, 2, 2}, [](auto* a) { return a[0] * a[1] >> 16; });
  check_op("mul.lo.u32 $0, $1, $2;", {4, 4, 4}, [](auto* a) { return low32(i64(a[0] * a[1])); });
  check_op("mul.hi.u32 $0, $1, $2;", {4, 4, 4}, [](auto* a) { return a[0] * a[1] >> 32; });
  check_op("mul.hi.s32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return low32((I64{i32(a[0])} * i32(a[1])) >> 32); });
  check_op("mul.lo.s64 $0, $1, $2;", {8, 8, 8}, [](auto* a) { return a[0] * a[1]; });
  check_op("mul.hi.u64 $0, $1, $2;", {8, 8, 8},
           [](auto* a) { return static_cast<U64>((U128{a[0]} * a[1]) >> 64); });
  check_op("mul.hi.s64 $0, $1, $2;", {8, 8, 8},
           [](auto* a) { return static_cast<U64>((I128{i64(a[0])} * i64(a[1])) >> 64); });
  check_op("mul.wide.u16 $0, $1, $2;", {4, 2, 2}, [](auto* a) { return a[0] * a[1]; });
  check_op("mul.wide.s16 $0, $1, $2;", {4, 2, 2},
           [](auto* a) { return low32(I64{i16(a[0])} * i16(a[1])); });
  check_op("mul.wide.u32 $0, $1, $2;", {8, 4, 4}, [](auto* a) { return a[0] * a[1]; });
  check_op("mul.wide.s32 $0, $1, $2;", {8, 4, 4},
           [](auto* a) { return static_cast<U64>(I64{i32(a[0])} * i32(a[1])); });
  check_op("mad.lo.s32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [](auto* a) { return low32(i64(a[0] * a[1] + a[2])); });
  check_op("mad.hi.s32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [](auto* a) { return low32(((I64{i32(a[0])} * i32(a[1])) >> 32) + i64(a[2])); });
  check_op("mad.hi.sat.s32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [=](auto* a) { return clamp(((I64{i32(a[0])} * i32(a[1])) >> 32) + i32(a[2])); });
  check_op("mad.wide.s32 $0, $1, $2, $3;", {8, 4, 4, 8},
           [](auto* a) { return static_cast<U64>(I64{i32(a[0])} * i32(a[1])) + a[2]; });
  check_op("mad.lo.u64 $0, $1, $2, $3;", {8, 8, 8, 8}, [](auto* a) { return a[0] * a[1] + a[2]; });
  check_op("mul24.lo.u32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return u32((a[0] & 0xffffff) * (a[1] & 0xffffff)); });
  check_op("mul24.hi.s32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    I64 x = i32(a[0] << 8) >> 8, y = i32(a[1] << 8) >> 8;
    return low32((x * y) >> 16);
  });
  check_op("mad24.lo.s32 $0, $1, $2, $3;", {4, 4, 4, 4}, [](auto* a) {
    I64 x = i32(a[0] << 8) >> 8, y = i32(a[1] << 8) >> 8;
    return low32(x * y + i64(a[2]));
  });
}

TEST_CASE("carries run through chains") {
  check_op(R"(mov.b64 {%r20, %r21}, $1; mov.b64 {%r22, %r23}, $2;
              add.cc.u32 %r20, %r20, %r22; addc.u32 %r21, %r21, %r23; mov.b64 $0, {%r20, %r21};)",
           {8, 8, 8}, [](auto* a) { return a[0] + a[1]; });
  check_op(R"(mov.b64 {%r20, %r21}, $1; mov.b64 {%r22, %r23}, $2;
              sub.cc.u32 %r20, %r20, %r22; subc.u32 %r21, %r21, %r23; mov.b64 $0, {%r20, %r21};)",
           {8, 8, 8}, [](auto* a) { return a[0] - a[1]; });
  // The high half of a 64-bit square from 32-bit parts.
  check_op(R"(mov.b64 {%r20, %r21}, $1; mul.lo.u32 %r22, %r20, %r20; mul.hi.u32 %r23, %r20, %r20;
              mad.lo.cc.u32 %r23, %r20, %r21, %r23; madc.hi.u32 %r24, %r20, %r21, 0;
              mad.lo.cc.u32 %r23, %r20, %r21, %r23; madc.hi.cc.u32 %r24, %r20, %r21, %r24;
              addc.u32 %r25, 0, 0; mad.lo.cc.u32 %r24, %r21, %r21, %r24;
              madc.hi.u32 %r25, %r21, %r21, %r25; mov.b64 $0, {%r24, %r25};)",
           {8, 8}, [](auto* a) { return static_cast<U64>((U128{a[0]} * a[0]) >> 64); });
}

TEST_CASE("div, rem, min, max, abs, neg, sad") {
  check_op("div.s32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    if (u32(a[1]) == 0) return U64{0xffffffff};
    return low32(I64{i32(a[0])} / i32(a[1]));
  });
  check_op("div.u64 $0, $1, $2;", {8, 8, 8},
           [](auto* a) { return a[1] == 0 ? ~U64{0} : a[0] / a[1]; });
  check_op("rem.s32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return u32(a[1]) == 0 ? a[0] : low32(I64{i32(a[0])} % i32(a[1])); });
  check_op("rem.u32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return a[1] == 0 ? a[0] : a[0] % a[1]; });
  check_op("div.s16 $0, $1, $2;", {2, 2, 2},
           [](auto* a) { return i16(a[1]) == 0 ? U64{0xffff} : low16(i16(a[0]) / i16(a[1])); });
  check_op("min.s16 $0, $1, $2;", {2, 2, 2},
           [](auto* a) { return low16(std::min(i16(a[0]), i16(a[1]))); });
  check_op("max.u32 $0, $1, $2;", {4, 4, 4}, [](auto* a) { return std::max(a[0], a[1]); });
  check_op("max.s64 $0, $1, $2;", {8, 8, 8},
           [](auto* a) { return static_cast<U64>(std::max(i64(a[0]), i64(a[1]))); });
  check_op("min.relu.s32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return low32(std::max(0, std::min(i32(a[0]), i32(a[1])))); });
  check_op("max.s16x2 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    return low16(std::max(i16(a[0]), i16(a[1]))) | low16(std::max(i16(a[0] >> 16), i16(a[1] >> 16)))
                                                       << 16;
  });
  check_op("add.u16x2 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    return ((a[0] + a[1]) & 0xffff) | low16(i64((a[0] >> 16) + (a[1] >> 16))) << 16;
  });
  check_op("abs.s32 $0, $1;", {4, 4}, [](auto* a) { return low32(std::abs(I64{i32(a[0])})); });
  check_op("neg.s64 $0, $1;", {8, 8}, [](auto* a) { return 0 - a[0]; });
  check_op("sad.s32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [](auto* a) { return low32(i64(a[2]) + std::abs(I64{i32(a[0])} - i32(a[1]))); });
  check_op("dp4a.s32.u32 $0, $1, $2, $3;", {4, 4, 4, 4}, [](auto* a) {
    I64 sum = i64(a[2]);
    for (int i = 0; i < 4; ++i)
      sum += static_cast<int8_t>(a[0] >> (8 * i)) * I64{static_cast<uint8_t>(a[1] >> (8 * i))};
    return low32(sum);
  });
  check_op("dp2a.hi.u32.s32 $0, $1, $2, $3;", {4, 4, 4, 4}, [](auto* a) {
    I64 sum = i64(a[2]);
    for (int i = 0; i < 2; ++i)
      sum +=
          static_cast<uint16_t>(a[0] >> (16 * i)) * I64{static_cast<int8_t>(a[1] >> (16 + 8 * i))};
    return low32(sum);
  });
}

TEST_CASE("logic and shifts") {
  check_op("and.b16 $0, $1, $2;", {2, 2, 2}, [](auto* a) { return a[0] & a[1]; });
  check_op("or.b32 $0, $1, $2;", {4, 4, 4}, [](auto* a) { return a[0] | a[1]; });
  check_op("xor.b64 $0, $1, $2;", {8, 8, 8}, [](auto* a) { return a[0] ^ a[1]; });
  check_op("not.b16 $0, $1;", {2, 2}, [](auto* a) { return a[0] ^ 0xffff; });
  check_op("cnot.b32 $0, $1;", {4, 4}, [](auto* a) { return U64{a[0] == 0}; });
  for (int table : {0x1a, 0xfe, 0x96, 0x00, 0xca})
    check_op("lop3.b32 $0, $1, $2, $3, " + std::to_string(table) + ";", {4, 4, 4, 4}, [=](auto* a) {
      U64 result = 0;
      for (int bit = 0; bit < 32; ++bit) {
        U64 index = (a[0] >> bit & 1) << 2 | (a[1] >> bit & 1) << 1 | (a[2] >> bit & 1);
        result |= (static_cast<U64>(table) >> index & 1) << bit;
      }
      return result;
    });
  check_op("shl.b32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return a[1] > 31 ? 0 : u32(a[0] << a[1]); });
  check_op("shl.b64 $0, $1, $2;", {8, 8, 4}, [](auto* a) { return a[1] > 63 ? 0 : a[0] << a[1]; });
  check_op("shr.u16 $0, $1, $2;", {2, 2, 4}, [](auto* a) { return a[1] > 15 ? 0 : a[0] >> a[1]; });
  check_op("shr.s32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return low32(i32(a[0]) >> std::min<U64>(a[1], 31)); });
  check_op("shr.s64 $0, $1, $2;", {8, 8, 4},
           [](auto* a) { return static_cast<U64>(i64(a[0]) >> std::min<U64>(a[1], 63)); });
  check_op("shf.l.wrap.b32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [](auto* a) { return u32((a[1] << 32 | a[0]) << (a[2] & 31) >> 32); });
  check_op("shf.r.clamp.b32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [](auto* a) { return u32((a[1] << 32 | a[0]) >> std::min<U64>(a[2], 32)); });
  check_op("bmsk.clamp.b32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    U64 result = 0;
    for (U64 i = 0; i < 32; ++i) result |= U64{i >= a[0] && i - a[0] < a[1]} << i;
    return result;
  });
}

TEST_CASE("counting, finding and moving bits") {
  check_op("popc.b32 $0, $1;", {4, 4}, [](auto* a) { return U64(std::popcount(a[0])); });
  check_op("popc.b64 $0, $1;", {4, 8}, [](auto* a) { return U64(std::popcount(a[0])); });
  check_op("clz.b32 $0, $1;", {4, 4}, [](auto* a) { return U64(std::countl_zero(u32(a[0]))); });
  check_op("clz.b64 $0, $1;", {4, 8}, [](auto* a) { return U64(std::countl_zero(a[0])); });
  check_op("brev.b32 $0, $1;", {4, 4}, [](auto* a) {
    U64 result = 0;
    for (int i = 0; i < 32; ++i) result |= (a[0] >> i & 1) << (31 - i);
    return result;
  });
  check_op("bfind.u32 $0, $1;", {4, 4}, [](auto* a) {
    return a[0] == 0 ? U64{0xffffffff} : U64(31 - std::countl_zero(u32(a[0])));
  });
  check_op("bfind.shiftamt.s64 $0, $1;", {4, 8}, [](auto* a) {
    U64 x = i64(a[0]) < 0 ? ~a[0] : a[0];
    return x == 0 ? U64{0xffffffff} : U64(std::countl_zero(x));
  });
  check_op("bfe.u32 $0, $1, $2, $3;", {4, 4, 4, 4}, [](auto* a) {
    U64 at = a[1] & 0xff, length = a[2] & 0xff, result = 0;
    for (U64 i = 0; i < length && at + i < 32 && i < 32; ++i) result |= (a[0] >> (at + i) & 1) << i;
    return result;
  });
  check_op("bfe.s32 $0, $1, $2, $3;", {4, 4, 4, 4}, [](auto* a) {
    // As the manual's pseudo code.
    U64 at = a[1] & 0xff, length = a[2] & 0xff, result = 0;
    U64 sign = length == 0 ? 0 : a[0] >> std::min<U64>(at + length - 1, 31) & 1;
    for (U64 i = 0; i < 32; ++i)
      result |= (i < length && at + i <= 31 ? a[0] >> (at + i) & 1 : sign) << i;
    return result;
  });
  check_op("bfi.b32 $0, $1, $2, $3, 7;", {4, 4, 4, 4}, [](auto* a) {
    U64 at = a[2] & 0xff, result = a[1];
    for (U64 i = 0; i < 7 && at + i < 32; ++i)
      result = (result & ~(U64{1} << (at + i))) | (a[0] >> i & 1) << (at + i);
    return result;
  });
  auto prmt = [](U64 a, U64 b, U64 selector) {
    U64 bytes = b << 32 | a, result = 0;
    for (int i = 0; i < 4; ++i) {
      U64 nibble = selector >> (4 * i) & 15, byte = bytes >> (8 * (nibble & 7)) & 0xff;
      if (nibble & 8) byte = byte >> 7 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  };
  check_op("prmt.b32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [=](auto* a) { return prmt(a[0], a[1], a[2]); });
  check_op("prmt.b32.f4e $0, $1, $2, $3;", {4, 4, 4, 4}, [=](auto* a) {
    U64 n = a[2] & 3;
    return u32((a[1] << 32 | a[0]) >> (8 * n));
  });
  check_op("prmt.b32.rc16 $0, $1, $2, $3;", {4, 4, 4, 4}, [=](auto* a) {
    U64 half = a[0] >> (16 * (a[2] & 1)) & 0xffff;
    return half | half << 16;
  });
  check_op("szext.wrap.s32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    U64 n = a[1] & 31;
    return n == 0 ? U64{0} : low32(i32(a[0] << (32 - n)) >> (32 - n));
  });
  check_op("fns.b32 $0, $1, 5, 2;", {4, 4}, [](auto* a) {
    int found = 0;
    for (U64 i = 5; i < 32; ++i)
      if ((a[0] >> i & 1) && ++found == 2) return i;
    return U64{0xffffffff};
  });
}

TEST_CASE("comparisons, selections and predicates") {
  check_op("setp.lt.s32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;", {4, 4, 4},
           [](auto* a) { return U64{i32(a[0]) < i32(a[1])}; });
  check_op("setp.hs.u32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;", {4, 4, 4},
           [](auto* a) { return U64{a[0] >= a[1]}; });
  check_op("setp.ne.b64 %p1, $1, $2; selp.b64 $0, $1, $2, %p1;", {8, 8, 8},
           [](auto* a) { return a[0]; });
  check_op("setp.gt.s16 %p1, $1, $2; selp.b16 $0, $1, $2, %p1;", {2, 2, 2},
           [](auto* a) { return i16(a[0]) > i16(a[1]) ? a[0] : a[1]; });
  check_op(R"(setp.lt.u32 %p1|%p2, $1, $2; setp.eq.and.u32 %p3, $1, 3, %p1;
              setp.eq.or.u32 %p4, $1, 3, !%p1; xor.pred %p5, %p3, %p4; not.pred %p6, %p5;
              and.pred %p6, %p6, %p2; selp.u32 $0, 1, 0, %p6;)",
           {4, 4, 4}, [](auto* a) {
             bool p1 = a[0] < a[1], p2 = !p1, p3 = a[0] == 3 && p1, p4 = a[0] == 3 || !p1;
             return U64{!(p3 != p4) && p2};
           });
  check_op("set.le.u32.s32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return i32(a[0]) <= i32(a[1]) ? U64{0xffffffff} : 0; });
  check_op("set.ne.f32.u32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return a[0] != a[1] ? bits(1.0f) : 0; });
  check_op("slct.s32.s32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [](auto* a) { return i32(a[2]) >= 0 ? a[0] : a[1]; });
}

TEST_CASE("mov packs and unpacks") {
  check_op("mov.b64 $0, {$1, $2};", {8, 4, 4}, [](auto* a) { return a[1] << 32 | a[0]; });
  check_op("mov.b32 {%h1, %h2}, $1; mov.b32 $0, {%h2, %h1};", {4, 4},
           [](auto* a) { return u32(a[0] << 16 | a[0] >> 16); });
  check_op("mov.b64 {_, $0}, $1;", {4, 8}, [](auto* a) { return a[0] >> 32; });
  check_op(R"(mov.b64 {%h1, %h2, %h3, %h4}, $1; mov.b64 $0, {%h4, %h3, %h2, %h1};)", {8, 8},
           [](auto* a) {
             return (a[0] & 0xffff) << 48 | (a[0] >> 16 & 0xffff) << 32 |
                    (a[0] >> 32 & 0xffff) << 16 | a[0] >> 48;
           });
  check_op("mov.b128 %q1, {$1, $2}; mov.b128 {_, $0}, %q1;", {8, 8, 8},
           [](auto* a) { return a[1]; });
}

}  // namespace
}  // namespace kiln::ptx
