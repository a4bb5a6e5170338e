// What is not PTX, or not known, or does not fit an entry: an error that names its line.
#include <catch2/catch.hpp>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using Catch::Matchers::Contains;

std::string error_of(const std::string& body, int* line = nullptr) {
  try {
    parse(entry(1, body));
  } catch (const Error& error) {
    if (line) *line = error.line();
    return error.what();
  }
  return "";
}

TEST_CASE("unknown instructions are named, with their line") {
  int line = 0;
  CHECK_THAT(error_of("\n\nfrobnicate.u32 %r1, %r2;", &line),
             Contains("unknown instruction 'frobnicate.u32'") && Contains("PTX line 10"));
  CHECK(line == 10);
  CHECK_THAT(error_of("add.wobbly.u32 %r1, %r2, %r3;"),
             Contains("'add.wobbly.u32'") && Contains(".wobbly"));
  CHECK_THAT(error_of("add.f32x4 %r1, %r2, %r3;"), Contains("unknown instruction"));
  CHECK_THAT(
      error_of("mma.sync.aligned.m99n8k16.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};"),
      Contains("unknown instruction"));
  CHECK_THAT(error_of("call foo;"), Contains("call"));
}

TEST_CASE("mistakes in operands") {
  CHECK_THAT(error_of("add.u32 %r1, %r2;"), Contains("2 operands, expected 3"));
  CHECK_THAT(error_of("add.u32 %r1, %r2, %nothing;"), Contains("'%nothing'"));
  CHECK_THAT(error_of("add.u32 %r1, %r2, %d3;"), Contains("'%d3' is too wide"));
  CHECK_THAT(error_of("add.u64 %d1, %d2, %r3;"), Contains("'%r3' is too narrow"));
  CHECK_THAT(error_of("add.u32 %p1, %r2, %r3;"), Contains("'%p1' is a predicate"));
  CHECK_THAT(error_of("add.u32 5, %r2, %r3;"), Contains("must be a register"));
  CHECK_THAT(error_of("bra nowhere;"), Contains("'nowhere' is not declared"));
  CHECK_THAT(error_of("@%r1 add.u32 %r1, %r2, %r3;"), Contains("'%r1' is no predicate"));
  CHECK_THAT(error_of("ld.global.v4.b32 {%r1, %r2}, [%d0];"),
             Contains("a vector of 2, expected 4"));
  CHECK_THAT(error_of("ld.shared.b32 %r1, [p0];"), Contains("'p0' is in param memory"));
  CHECK_THAT(error_of("cp.async.cg.shared.global [%r1], [%d0], 8;"), Contains("copies 16 bytes"));
  CHECK_THAT(error_of("a: a: ret;"), Contains("second label 'a'"));
}

TEST_CASE("mistakes of syntax") {
  CHECK_THAT(error_of("add.u32 %r1, %r2, %r3"), Contains("',' or ';'"));
  CHECK_THAT(error_of("add.u32 %r1 %r2;"), Contains("got '%r2'"));
  CHECK_THAT(error_of("mov.u32 %r1, 0x;"), Contains("64-bit number"));
  CHECK_THAT(error_of("mov.f32 %r1, 0f12;"), Contains("hexadecimal"));
  CHECK_THAT(error_of("mov.u32 %r1, `;"), Contains("'`'"));
  CHECK_THAT(error_of("/* no end"), Contains("comment"));
  CHECK_THROWS_AS(parse("kernel x {}"), Error);
  CHECK_THROWS_AS(parse(".version 7.0 .target sm_80 .address_size 64 .entry f() { ret;"), Error);
  CHECK_THROWS_AS(parse(".bogus"), Error);
  CHECK(parse("").entries().empty());
}

TEST_CASE("debug sections, pragmas and comments are passed over") {
  Program program = parse(R"(
//
.version 8.7
.target sm_80, debug
.address_size 64
.file 1 "a.cpp", 12345, 99
/* two
   lines */
.visible .entry one(.param .u64 .ptr .global .align 16 x) .maxntid 128, 1, 1 .minnctapersm 2
{
  .pragma "nounroll";
  .reg .b32 %r<3>;
  .loc 1 3 4, function_name $L__info, inlined_at 1 5 6
  mov.u32 %r1, %tid.x;
  bra.uni $L__BB0_1;
$L__BB0_1:
  ret;
}
.visible .entry two() .reqntid 64 { ret; }
.section .debug_abbrev
{
.b8 1
.b32 $L__x
}
)");
  CHECK(program.entries() == std::vector<std::string>{"one", "two"});
}

TEST_CASE("a launch must fit its entry") {
  Program program = parse(
      ".version 7.0 .target sm_80 .address_size 64 .entry f(.param .u64 x) .reqntid 64 { ret; }"
      ".entry g() .maxntid 32 { ret; }");
  Memory memory;
  std::vector<std::byte> none, eight(8);
  auto error = [&](const char* name, Dim3 grid, Dim3 block, std::vector<std::byte>& bytes) {
    try {
      launch(program, name, grid, block, 0, bytes, memory);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error("f", {1}, {64}, eight) == "");
  CHECK_THAT(error("h", {1}, {64}, eight), Contains("no entry 'h'") && Contains("f, g"));
  CHECK_THAT(error("f", {1}, {64}, none), Contains("0 bytes of parameters, expected 8"));
  CHECK_THAT(error("f", {1}, {32}, eight), Contains("requires (64, 1, 1)"));
  CHECK_THAT(error("g", {1}, {64}, none), Contains("at most 32"));
  CHECK_THAT(error("g", {0}, {1}, none), Contains("empty grid"));
  CHECK_THAT(error("g", {1}, {2048}, none), Contains("a block (2048, 1, 1)"));
  Options options;
  options.only_block = Dim3{5, 0, 0};
  CHECK_THROWS_AS(launch(program, "g", {2}, {1}, 0, none, memory, options), Error);
}

TEST_CASE("an entry that is defined twice is refused, with its line") {
  const std::string once = ".visible .entry f()\n{\n ret;\n}\n";
  try {
    parse(".version 8.0\n.target sm_80\n.address_size 64\n" + once + once);
    FAIL("it was taken");
  } catch (const Error& error) {
    CHECK_THAT(error.what(), Contains("entry 'f' is defined twice"));
    CHECK_THAT(error.what(), Contains("8"));
  }
}

TEST_CASE("one block can run alone") {
  std::vector<uint8_t> out(32);
  Options options;
  options.only_block = Dim3{2, 1, 0};
  Report report =
      run_text(entry(1, R"(ld.param.u64 %d0, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y;
                  mad.lo.u32 %r3, %r2, 4, %r1; mad.wide.u32 %d1, %r3, 4, %d0; add.u32 %r4, %r3, 1;
                  st.global.u32 [%d1], %r4;)"),
               {&out}, {4, 2}, {1}, 0, options);
  CHECK(findings(report) == "");
  std::vector<uint32_t> values(8);
  std::memcpy(values.data(), out.data(), 32);
  CHECK(values == std::vector<uint32_t>{0, 0, 0, 0, 0, 0, 7, 0});
}

}  // namespace
}  // namespace kiln::ptx
