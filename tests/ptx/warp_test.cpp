// Lanes together and apart: shuffles, votes, divergence.
#include <bit>
#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

std::vector<uint64_t> run32(const std::string& body) {  // the result is %r1
  return run_warp(body + "cvt.u64.u32 %d2, %r1; st.global.u64 [%d0], %d2;");
}

TEST_CASE("shuffles") {
  auto check = [](const std::string& body, auto source) {
    std::vector<uint64_t> output = run32("mul.lo.u32 %r2, %r0, 100;" + body);
    for (uint64_t lane = 0; lane < 32; ++lane) {
      INFO(body << " lane " << lane);
      CHECK(output[lane] == 100 * source(lane));
    }
  };
  check("shfl.sync.bfly.b32 %r1, %r2, 5, 31, -1;", [](auto lane) { return lane ^ 5; });
  check("shfl.sync.idx.b32 %r1, %r2, 7, 31, -1;", [](auto) { return uint64_t{7}; });
  check("shfl.sync.up.b32 %r1, %r2, 3, 0, -1;",
        [](auto lane) { return lane < 3 ? lane : lane - 3; });
  check("shfl.sync.down.b32 %r1, %r2, 4, 31, -1;",
        [](auto lane) { return lane + 4 > 31 ? lane : lane + 4; });
  // Segments of 8 lanes: the mask in bits 8 to 12 of c is 0x18.
  check("shfl.sync.idx.b32 %r1, %r2, 2, 0x181f, -1;", [](auto lane) { return lane / 8 * 8 + 2; });
  check("shfl.sync.down.b32 %r1, %r2, 3, 0x181f, -1;",
        [](auto lane) { return lane % 8 + 3 > 7 ? lane : lane + 3; });
  check("shfl.sync.up.b32 %r1, %r2, 3, 0x1800, -1;",
        [](auto lane) { return lane % 8 < 3 ? lane : lane - 3; });
  // The predicate tells whether the source was within the segment.
  std::vector<uint64_t> output =
      run32("shfl.sync.down.b32 %r2|%p1, %r0, 4, 31, -1; selp.b32 %r1, 1, 0, %p1;");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == (lane + 4 <= 31));
}

TEST_CASE("votes, matches, reductions, elections") {
  auto all = [](const std::string& body, uint64_t value) {
    INFO(body);
    CHECK(run32(body) == std::vector<uint64_t>(32, value));
  };
  const std::string odd = "and.b32 %r2, %r0, 1; setp.ne.u32 %p1, %r2, 0; setp.lt.u32 %p2, %r0, 99;";
  all(odd + "vote.sync.ballot.b32 %r1, %p1, -1;", 0xaaaaaaaa);
  all(odd + "vote.sync.ballot.b32 %r1, !%p1, -1;", 0x55555555);
  all(odd + "vote.sync.any.pred %p3, %p1, -1; selp.b32 %r1, 1, 0, %p3;", 1);
  all(odd + "vote.sync.all.pred %p3, %p1, -1; selp.b32 %r1, 1, 0, %p3;", 0);
  all(odd + "vote.sync.all.pred %p3, %p2, -1; selp.b32 %r1, 1, 0, %p3;", 1);
  all(odd + "vote.sync.uni.pred %p3, !%p2, -1; selp.b32 %r1, 1, 0, %p3;", 1);
  all("redux.sync.add.s32 %r1, %r0, -1;", 31 * 16);
  all("redux.sync.max.u32 %r1, %r0, -1;", 31);
  all("sub.s32 %r2, %r0, 5; redux.sync.min.s32 %r1, %r2, -1;", 0xfffffffb);
  all("redux.sync.xor.b32 %r1, %r0, -1;", 0);
  all("redux.sync.or.b32 %r1, %r0, -1;", 31);
  all("activemask.b32 %r1;", 0xffffffff);
  std::vector<uint64_t> output = run32("and.b32 %r2, %r0, 3; match.any.sync.b32 %r1, %r2, -1;");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == 0x11111111u << lane % 4);
  output = run32("and.b32 %r2, %r0, 0; match.all.sync.b32 %r1|%p1, %r2, -1;");
  CHECK(output == std::vector<uint64_t>(32, 0xffffffff));
  output = run32("elect.sync %r2|%p1, -1; selp.b32 %r1, 1, 0, %p1;");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == (lane == 0));
}

TEST_CASE("lanes part and meet again") {
  // Each lane loops its own number of times; together again they all vote.
  std::vector<uint64_t> output = run32(R"(
    mov.u32 %r2, 0; mov.u32 %r3, 0;
    again:
    add.u32 %r3, %r3, %r2; add.u32 %r2, %r2, 1; setp.le.u32 %p1, %r2, %r0; @%p1 bra again;
    activemask.b32 %r4; setp.ne.u32 %p2, %r4, -1; @%p2 mov.u32 %r3, 0xdead;
    mov.u32 %r1, %r3;)");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == lane * (lane + 1) / 2);
  // Nested branches; both sides of each meet at its end.
  output = run32(R"(
    and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 0; and.b32 %r3, %r0, 2; setp.eq.u32 %p2, %r3, 0;
    mov.u32 %r1, 0;
    @%p1 bra even;
    @%p2 bra odd_low;
    add.u32 %r1, %r1, 3; bra odd_end;
    odd_low: add.u32 %r1, %r1, 1;
    odd_end: activemask.b32 %r4; setp.ne.u32 %p3, %r4, 0xaaaaaaaa; @%p3 add.u32 %r1, %r1, 100;
    bra.uni end;
    even: activemask.b32 %r4; setp.ne.u32 %p3, %r4, 0x55555555; @%p3 add.u32 %r1, %r1, 100;
    end: activemask.b32 %r4; setp.ne.u32 %p3, %r4, -1; @%p3 add.u32 %r1, %r1, 1000;)");
  for (uint64_t lane = 0; lane < 32; ++lane)
    CHECK(output[lane] == (lane % 2 == 0 ? 0 : lane % 4 == 1 ? 1 : 3));
}

TEST_CASE("a loop's exit that stands before its body waits for the loop") {
  std::vector<uint64_t> output = run32(R"(
    mov.u32 %r2, 0;
    bra head;
    out: activemask.b32 %r1; bra end;
    body: add.u32 %r2, %r2, 1;
    head: setp.lt.u32 %p1, %r2, %r0; @%p1 bra body; bra out;
    end:)");
  CHECK(output == std::vector<uint64_t>(32, 0xffffffff));
}

TEST_CASE("a spinning lane does not starve the one that it waits for") {
  // Lanes take a lock one after the other; the holder must get to run while the others spin.
  std::vector<uint64_t> output = run_warp(R"(
    .shared .align 4 .b32 lock;
    setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [lock], 0; bar.warp.sync -1;
    spin: atom.shared.cas.b32 %r2, [lock], 0, 1; setp.ne.u32 %p2, %r2, 0; @%p2 bra spin;
    atom.shared.exch.b32 %r3, [lock], 0;
    mov.u64 %d2, 7; st.global.u64 [%d0], %d2;)");
  CHECK(output == std::vector<uint64_t>(32, 7));
  // Even lanes wait for odd ones, which come later in the program.
  output = run_warp(R"(
    .shared .align 4 .b32 flag;
    setp.eq.u32 %p1, %r0, 0; @%p1 st.shared.u32 [flag], 0; bar.warp.sync -1;
    and.b32 %r2, %r0, 1; setp.eq.u32 %p2, %r2, 1; @%p2 bra odd;
    wait: ld.volatile.shared.u32 %r3, [flag]; setp.ne.u32 %p3, %r3, 16; @%p3 bra wait;
    bra end;
    odd: atom.shared.add.u32 %r4, [flag], 1;
    end: mov.u64 %d2, 1; st.global.u64 [%d0], %d2;)");
  CHECK(output == std::vector<uint64_t>(32, 1));
}

TEST_CASE("sync instructions gather lanes that arrive apart") {
  std::vector<uint64_t> output = run32(R"(
    setp.lt.u32 %p1, %r0, 16; @%p1 bra low;
    add.u32 %r2, %r0, 1000; bra together;
    low: add.u32 %r2, %r0, 2000;
    together: shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1;)");
  for (uint64_t lane = 0; lane < 32; ++lane)
    CHECK(output[lane] == (lane < 16 ? 1000 + lane + 16 : 2000 + lane - 16));
  // Halves of a warp may shuffle on their own.
  output = run32(R"(
    setp.lt.u32 %p1, %r0, 16; @%p1 bra low;
    shfl.sync.idx.b32 %r1, %r0, 20, 31, 0xffff0000; bra end;
    low: shfl.sync.idx.b32 %r1, %r0, 3, 31, 0x0000ffff;
    end:)");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == (lane < 16 ? 3 : 20));
}

TEST_CASE("branches by tables, scopes, and predicated exits") {
  std::vector<uint64_t> output = run32(R"(
    mov.u32 %r1, 9; and.b32 %r2, %r0, 3;
    targets: .branchtargets a, b, c, d;
    brx.idx %r2, targets;
    a: mov.u32 %r1, 10; bra end;
    b: mov.u32 %r1, 11; bra end;
    c: mov.u32 %r1, 12;
    d:
    end:
    { .reg .b32 %r1; .reg .pred a; mov.u32 %r1, 5; setp.eq.u32 a, %r1, 5; @a bra end;
      trap; end: }
    )");
  for (uint64_t lane = 0; lane < 32; ++lane)
    CHECK(output[lane] == (lane % 4 == 3 ? 9 : 10 + lane % 4));
  output = run32("mov.u32 %r1, 4; setp.gt.u32 %p1, %r0, 9; @%p1 exit;");
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(output[lane] == (lane > 9 ? 0 : 4));
}

TEST_CASE("barriers: named, partial, arriving, reducing") {
  std::vector<uint8_t> array(4 * 96);
  auto run = [&](const std::string& body) {
    Report report = run_text(
        entry(1,
              "mov.u32 %r0, %tid.x; ld.param.u64 %d0, [p0]; mad.wide.u32 %d0, %r0, 4, %d0;" + body +
                  "st.global.u32 [%d0], %r1;",
              ".shared .align 4 .b8 tile[384];"),
        {&array}, {1}, {96});
    CHECK(findings(report) == "");
    std::vector<uint32_t> values(96);
    std::memcpy(values.data(), array.data(), array.size());
    return values;
  };
  // Warp 2 produces and only arrives; warps 0 and 1 wait for it.
  auto values = run(R"(
    mov.u32 %r1, 0; setp.ge.u32 %p1, %r0, 64; mov.u32 %r5, tile;
    @%p1 bra produce;
    bar.sync 4, 96; and.b32 %r2, %r0, 31; mad.lo.u32 %r2, %r2, 4, %r5; ld.shared.u32 %r1, [%r2];
    bra end;
    produce: sub.u32 %r2, %r0, 64; mad.lo.u32 %r2, %r2, 4, %r5; st.shared.u32 [%r2], %r0;
    bar.arrive 4, 96;
    end:)");
  for (uint32_t i = 0; i < 96; ++i) CHECK(values[i] == (i < 64 ? 64 + i % 32 : 0));
  values = run("setp.lt.u32 %p1, %r0, 41; bar.red.popc.u32 %r1, 2, %p1;");
  CHECK(values == std::vector<uint32_t>(96, 41));
  values = run(R"(setp.lt.u32 %p1, %r0, 96; bar.red.and.pred %p2, 0, %p1;
                  barrier.cta.red.or.aligned.pred %p3, 0, 96, !%p1;
                  selp.u32 %r1, 1, 0, %p2; @%p3 add.u32 %r1, %r1, 2;)");
  CHECK(values == std::vector<uint32_t>(96, 1));
}

}  // namespace
}  // namespace kiln::ptx
