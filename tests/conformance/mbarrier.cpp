// mbarriers: phases, their parity, arrivals, bytes, states.
#include <fmt/format.h>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

constexpr size_t kThreads = 64;

// A snippet whose first thread makes an mbarrier `bar` (%r1) for `count` arrivals.
std::string with_barrier(const std::string& count, const std::string& body) {
  return fmt::format(
      "{{ .shared .align 8 .b64 bar; mov.u32 %r1, bar; setp.eq.u32 %p1, %r0, 0;"
      "@%p1 mbarrier.init.shared::cta.b64 [%r1], {};"
      "bar.sync 0; {} }}",
      count, body);
}

// The predicates of tests for both parities, as bits.
std::string tests(const std::string& result) {
  return fmt::format(
      "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0;"
      "mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r1], 1;"
      "selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 2, 0, %p3; or.b32 {}, %r2, %r3;",
      result);
}

}  // namespace

void add_mbarrier(Table& table) {
  const auto constant = [](uint64_t value) {
    return Results([=](const Operands&, size_t) { return std::vector<uint64_t>{value}; });
  };
  table.add(hopper_row(kThreads, "mbarrier.test_wait.parity of a new mbarrier",
                       with_barrier("64", tests("$0")), {"u32"}),
            constant(2));
  for (int phases = 1; phases <= 4; ++phases) {
    std::string body;
    for (int i = 0; i < phases; ++i)
      body += fmt::format(
          "mbarrier.arrive.shared::cta.b64 _, [%r1]; W{0}: "
          "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], {1};"
          "@!%p2 bra W{0}; bar.sync 0;",
          i, i % 2);
    table.add(hopper_row(kThreads, fmt::format("mbarrier.try_wait.parity of {} phases", phases),
                         with_barrier("64", body + tests("$0")), {"u32"}),
              constant(phases % 2 ? 1 : 2));
  }
  for (int count : {1, 3, 63, 64}) {  // threads that arrive, of 64 expected
    const std::string body = fmt::format(
        "setp.lt.u32 %p2, %r0, {}; @%p2 mbarrier.arrive.shared::cta.b64 _, [%r1];"
        "bar.sync 0; {}",
        count, tests("$0"));
    table.add(hopper_row(kThreads, fmt::format("mbarrier.arrive by {} of 64", count),
                         with_barrier("64", body), {"u32"}),
              constant(count == 64 ? 1 : 2));
  }
  for (int count : {1, 2, 7})  // arrivals in one
    table.add(
        hopper_row(kThreads, fmt::format("mbarrier.arrive of {}", count),
                   with_barrier(std::to_string(64 * count),
                                fmt::format("mov.u32 %r4, {}; mbarrier.arrive.shared::cta.b64 %d2, "
                                            "[%r1], %r4; bar.sync 0; {}",
                                            count, tests("$0"))),
                   {"u32"}),
        constant(1));
  // The state that a sole thread's arrival gives holds the phase before it and what was pending.
  for (int pending : {2, 5, 1000})
    table.add(hopper_row(kThreads, fmt::format("mbarrier.pending_count of {}", pending),
                         with_barrier(std::to_string(pending),
                                      "mov.u64 %d2, 0; mov.u32 $0, 0;"
                                      "@%p1 mbarrier.arrive.shared::cta.b64 %d2, [%r1];"
                                      "@%p1 mbarrier.pending_count.b64 $0, %d2;"),
                         {"u32"}),
              Results([=](const Operands&, size_t thread) {
                return std::vector<uint64_t>{thread == 0 ? static_cast<uint64_t>(pending) : 0};
              }));
  for (const bool last : {false, true})
    table.add(
        hopper_row(kThreads,
                   fmt::format("mbarrier.test_wait of a state, {}", last ? "complete" : "not yet"),
                   with_barrier(last ? "64" : "65",
                                "mbarrier.arrive.shared::cta.b64 %d2, [%r1]; bar.sync 0;"
                                "mbarrier.test_wait.shared::cta.b64 %p2, [%r1], %d2;"
                                "selp.u32 $0, 1, 0, %p2;"),
                   {"u32"}),
        constant(last));
  // Bytes: a phase waits for them, before or after they are expected.
  struct Bytes {
    const char* name;
    const char* body;
    int phases;
  };
  const Bytes bytes[] = {
      {"arrive.expect_tx", "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;", 0},
      {"arrive.expect_tx, then complete_tx",
       "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;"
       "@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
       1},
      {"expect_tx, arrive, complete_tx in parts",
       "@%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48;"
       "@%p1 mbarrier.arrive.shared::cta.b64 _, [%r1];"
       "@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;"
       "@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 32;",
       1},
      {"complete_tx before what expects it",
       "@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;"
       "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;",
       1},
      {"complete_tx of too few",
       "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 32;"
       "@%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
       0},
  };
  for (const Bytes& each : bytes) {
    // What is missing comes at last, so that nothing is left open.
    const std::string rest =
        each.phases
            ? ""
            : "bar.sync 0; @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;";
    table.add(
        hopper_row(kThreads, fmt::format("mbarrier.{}", each.name),
                   with_barrier("1", each.body + ("bar.sync 0;" + tests("$0")) + rest), {"u32"}),
        constant(each.phases ? 1 : 2));
  }
  // Whoever drops out is not expected again.
  table.add(hopper_row(kThreads, "mbarrier.arrive_drop",
                       with_barrier("64",
                                    "setp.lt.u32 %p4, %r0, 32;"
                                    "@%p4 mbarrier.arrive_drop.shared::cta.b64 _, [%r1];"
                                    "@!%p4 mbarrier.arrive.shared::cta.b64 _, [%r1]; bar.sync 0;"
                                    "@!%p4 mbarrier.arrive.shared::cta.b64 _, [%r1]; bar.sync 0;" +
                                        tests("$0")),
                       {"u32"}),
            constant(2));
  table.add(hopper_row(kThreads, "mbarrier.inval, then another",
                       with_barrier("64",
                                    "bar.sync 0;"
                                    "@%p1 mbarrier.inval.shared::cta.b64 [%r1];"
                                    "@%p1 mbarrier.init.shared::cta.b64 [%r1], 32;"
                                    "bar.sync 0; setp.lt.u32 %p4, %r0, 32;"
                                    "@%p4 mbarrier.arrive.shared::cta.b64 _, [%r1];"
                                    "bar.sync 0;" +
                                        tests("$0")),
                       {"u32"}),
            constant(1));
  // What was written before an arrival is seen after the wait.
  table.add(
      hopper_row(kThreads, "mbarrier.arrive releases, mbarrier.try_wait acquires",
                 "{ .shared .align 8 .b64 bar; .shared .b32 words[64]; mov.u32 %r1, bar;"
                 "mov.u32 %r5, words; mad.lo.u32 %r6, %r0, 4, %r5; xor.b32 %r7, %r0, 63;"
                 "mad.lo.u32 %r7, %r7, 4, %r5; setp.eq.u32 %p1, %r0, 0;"
                 "@%p1 mbarrier.init.shared::cta.b64 [%r1], 64; bar.sync 0;"
                 "st.shared.b32 [%r6], $1; mbarrier.arrive.shared::cta.b64 _, [%r1];"
                 "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra W;"
                 "ld.shared.b32 $0, [%r7]; }",
                 {"b32"}, {"b32"}),
      [](const Operands& in, size_t thread) { return std::vector<uint64_t>{in(thread ^ 63, 0)}; });
}

}  // namespace kiln::conformance
