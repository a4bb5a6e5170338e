// Bulk copies without tensor maps: into shared memory, counted by an mbarrier, and out of it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

constexpr size_t kThreads = 32, kBytes = 16 * kThreads;

// The threads' operands, 16 bytes each, lie one after another: all 512 bytes are one source.
const char* const kBegin =
    "{ .shared .align 16 .b8 tile[512]; .shared .align 8 .b64 bar; mov.u32 %r1, bar;"
    "mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 16, %r2; setp.eq.u32 %p1, %r0, 0;"
    "mov.u64 %d2, 0; st.shared.v2.b64 [%r3], {%d2, %d2};"
    "@%p1 mbarrier.init.shared::cta.b64 [%r1], 1; fence.proxy.async; bar.sync 0;";

void loads(Table& table, size_t from, size_t bytes, size_t to) {
  const std::string text = fmt::format(
      "{} @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {};"
      "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+{}], [%d1+{}], "
      "{}, [%r1];"
      "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra W;"
      "ld.shared.v2.b64 {{$0, $1}}, [%r3]; }}",
      kBegin, bytes, to, from, bytes);
  table.add(hopper_row(kThreads,
                       fmt::format("cp.async.bulk.shared::cluster.global of {} bytes, {} to {}",
                                   bytes, from, to),
                       text, {"b64", "b64"}, {"b64", "b64"}),
            [=](const Operands& in, size_t thread) {
              std::vector<uint64_t> result;
              for (size_t i = 0; i < 2; ++i) {
                const size_t at = 16 * thread + 8 * i;
                const bool copied = at >= to && at < to + bytes;
                const size_t source = copied ? from + at - to : 0;
                result.push_back(copied ? in.all[source / 8] : 0);
              }
              return result;
            });
}

// To the output of the row's threads, which writes nothing else there.
void stores(Table& table, const std::string& wait) {
  const std::string text = fmt::format(
      "{{ .shared .align 16 .b8 tile[512]; mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 16, %r2;"
      "setp.eq.u32 %p1, %r0, 0; st.shared.v2.b64 [%r3], {{$2, $3}};"
      "fence.proxy.async.shared::cta; bar.sync 0;"
      "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r2], 512;"
      "@%p1 cp.async.bulk.commit_group; {} bar.sync 0;"
      "ld.global.v2.b64 {{$0, $1}}, [%d0]; }}",
      wait);
  table.add(hopper_row(kThreads, fmt::format("cp.async.bulk.global.shared::cta, {}", wait), text,
                       {"b64", "b64"}, {"b64", "b64"}),
            [](const Operands& in, size_t thread) {
              return std::vector<uint64_t>{in(thread, 0), in(thread, 1)};
            });
}

struct Reduce {
  const char *op, *type;
  size_t bytes;
  uint64_t (*apply)(uint64_t, uint64_t);
};

// Onto a start value of each element, which the thread stores first.
void reduces(Table& table, const Reduce& reduce) {
  const std::string text = fmt::format(
      "{{ .shared .align 16 .b8 tile[512]; mov.u32 %r2, tile; mad.lo.u32 %r3, %r0, 16, %r2;"
      "setp.eq.u32 %p1, %r0, 0; st.shared.v2.b64 [%r3], {{$2, $3}};"
      "st.global.v2.b64 [%d0], {{$4, $5}};"
      "fence.proxy.async; bar.sync 0;"
      "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.{}.{} [%d0], [%r2], 512;"
      "@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0; bar.sync 0;"
      "ld.global.v2.b64 {{$0, $1}}, [%d0]; }}",
      reduce.op, reduce.type);
  table.add(
      hopper_row(kThreads, fmt::format("cp.reduce.async.bulk .{}.{}", reduce.op, reduce.type), text,
                 {"b64", "b64"}, {"b64", "b64", "b64", "b64"}),
      [=](const Operands& in, size_t thread) {
        std::vector<uint64_t> result;
        const uint64_t mask =
            reduce.bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * reduce.bytes) - 1;
        for (size_t i = 0; i < 2; ++i) {
          uint64_t word = 0;
          for (size_t bit = 0; bit < 64; bit += 8 * reduce.bytes)
            word |=
                (reduce.apply(in(thread, 2 + i) >> bit & mask, in(thread, i) >> bit & mask) & mask)
                << bit;
          result.push_back(word);
        }
        return result;
      });
}

}  // namespace

void add_bulk(Table& table) {
  loads(table, 0, kBytes, 0);
  loads(table, 0, 16, 0);
  loads(table, 32, 128, 256);
  loads(table, 496, 16, 16);
  loads(table, 16, 480, 32);
  stores(table, "@%p1 cp.async.bulk.wait_group 0;");
  stores(table, "@%p1 cp.async.bulk.wait_group.read 0; @%p1 cp.async.bulk.wait_group 0;");
  using U = uint64_t;
  const Reduce all[] = {
      {"add", "u32", 4, [](U a, U b) { return a + b; }},
      {"add", "s32", 4, [](U a, U b) { return a + b; }},
      {"add", "u64", 8, [](U a, U b) { return a + b; }},
      {"min", "u32", 4, [](U a, U b) { return std::min(a, b); }},
      {"max", "u32", 4, [](U a, U b) { return std::max(a, b); }},
      {"min", "s32", 4,
       [](U a, U b) { return U(uint32_t(std::min(int32_t(uint32_t(a)), int32_t(uint32_t(b))))); }},
      {"max", "s32", 4,
       [](U a, U b) { return U(uint32_t(std::max(int32_t(uint32_t(a)), int32_t(uint32_t(b))))); }},
      {"min", "u64", 8, [](U a, U b) { return std::min(a, b); }},
      {"max", "s64", 8, [](U a, U b) { return U(std::max(int64_t(a), int64_t(b))); }},
      {"inc", "u32", 4, [](U a, U b) { return a >= b ? 0 : a + 1; }},
      {"dec", "u32", 4, [](U a, U b) { return a == 0 || a > b ? b : a - 1; }},
      {"and", "b32", 4, [](U a, U b) { return a & b; }},
      {"or", "b32", 4, [](U a, U b) { return a | b; }},
      {"xor", "b64", 8, [](U a, U b) { return a ^ b; }},
  };
  for (const Reduce& each : all) reduces(table, each);
}

}  // namespace kiln::conformance
