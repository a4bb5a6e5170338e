// What is changed in LLVM's PTX.
#include "codegen/nvptx_text_impl.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <regex>

#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::nvptx;
using namespace kiln::testing;

TEST_CASE("minima and maxima of 16 bits become those of 32", "[nvptx]") {
  const std::string before =
      "\tadd.s16 \t%rs1, %rs2, %rs3;\n\tmax.u16 \t%rs4, %rs3, -1;\n\tmin.s16 \t%rs4, %rs3, -1;\n"
      "\tmin.u16x2 \t%r4, %r3, %r2;\n\tmax.u32 \t%r4, %r3, 1;\n\tret;";
  const std::string after = with_wide_minima(before);
  CHECK(after ==
        "\tadd.s16 \t%rs1, %rs2, %rs3;\n"
        "\t{\n\t.reg .b32 \t%wide<3>;\n\tcvt.u32.u16 \t%wide1, %rs3;\n"
        "\tmov.b32 \t%wide2, 65535;\n\tmax.u32 \t%wide0, %wide1, %wide2;\n"
        "\tcvt.u16.u32 \t%rs4, %wide0;\n\t}\n"
        "\t{\n\t.reg .b32 \t%wide<3>;\n\tcvt.s32.s16 \t%wide1, %rs3;\n"
        "\tmov.b32 \t%wide2, -1;\n\tmin.s32 \t%wide0, %wide1, %wide2;\n"
        "\tcvt.u16.u32 \t%rs4, %wide0;\n\t}\n"
        "\tmin.u16x2 \t%r4, %r3, %r2;\n\tmax.u32 \t%r4, %r3, 1;\n\tret;");
  CHECK(with_wide_minima(after) == after);
}

// The manual's identifiers (PTX ISA, "Identifiers"), and what ptxas keeps for itself.
TEST_CASE("functions have the kernel's name, as PTX takes it", "[nvptx]") {
  const std::regex identifier("[a-zA-Z][a-zA-Z0-9_$]*|[_$%][a-zA-Z0-9_$]+");
  for (const auto& [name, entry] :
       std::vector<std::pair<std::string, std::string>>{{"attend", "attend"},
                                                        {"two words", "two_words"},
                                                        {"3d", "kernel_3d"},
                                                        {"", "kernel_"},
                                                        {"_", "kernel__"},
                                                        {"+", "kernel__"},
                                                        {"WARP_SZ", "kernel_WARP_SZ"},
                                                        {"na\xc3\xafve", "na__ve"}})
    for (int launches : {1, 2}) {
      INFO(name << ", " << launches);
      Program p(name);
      Value y = p.tensor("y", F32, {32}, "output");
      for (int i = 0; i < launches; ++i)
        p.launch([&] {
          p.b.parallel({32}, [&](std::span<const Value> at) {
            p.b.store(p.b.constant(F32, 1), y, {at[0]});
          });
        });
      const GpuCode code = compile_for(p.kernel, "sm_80");
      REQUIRE(code.launches.size() == static_cast<size_t>(launches));
      for (int i = 0; i < launches; ++i) {
        const std::string& got = code.launches[static_cast<size_t>(i)].entry;
        CHECK(got == (launches == 1 ? entry : fmt::format("{}_{}", entry, i)));
        CHECK(std::regex_match(got, identifier));
        CHECK(occurrences(code.ptx, ".entry " + got + "(") == 1);
      }
    }
}

// What ptxas took for true: the comparison of a maximum with an operand.
TEST_CASE("minima and maxima beside comparisons with what they are of", "[scalar]") {
  for (DType dtype : {U8, I8, U16, I16, I32, U32})
    for (OpCode code : {OpCode::Max, OpCode::Min}) {
      INFO(name(dtype));
      Program p("compared");
      Value x = p.tensor("x", dtype, {96}), y = p.tensor("y", dtype, {96});
      std::vector<Value> out;
      for (const char* name : {"one", "left", "right", "quotient"})
        out.push_back(p.tensor(name, dtype, {96}, "output"));
      p.launch([&] {
        p.b.parallel({96}, [&](std::span<const Value> i) {
          Value a = p.b.load(x, {i[0]}), b = p.b.load(y, {i[0]});
          Value one = p.b.constant(dtype, 1), zero = p.b.constant(dtype, 0);
          auto is = [&](Value m, Value of, size_t to) {
            Value same = p.b.compare("eq", m, of);
            p.b.store(p.b.select(same, one, zero), out[to], {i[0]});
          };
          is(p.b.binary(code, a, one), one, 0);
          is(p.b.binary(code, a, b), a, 1);
          is(p.b.binary(code, a, b), b, 2);
          p.b.store(p.b.binary(OpCode::FloorDiv, one, a), out[3], {i[0]});
        });
      });
      Check check;
      check.options.seed = random_seed();
      check.options.low = is_unsigned_int(dtype) ? 0 : -3;
      check.options.high = 5;
      CHECK(check_program(p.kernel, check) == "");
    }
}
