// Programs that break one rule of the verifier each, and what must be said about them.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/ir/run_text.h"

namespace kiln::test {

// A program whose op to blame is on the line that ends in "  // here" (dropped before parsing).
struct Mistake {
  const char* message;  // all of it
  const char* hint;
  std::string text;
};

inline constexpr const char* kInterface = R"(%n = dim {name = "n"} : i32
  %x = tensor %n {name = "x"} : tensor f16[?, 64]
  %o = tensor %n {name = "o", role = output} : tensor f32[?, 64]
  %mask = tensor {name = "mask"} : tensor bool[4, 4]
  %list = tensor {name = "list", role = inout} : tensor i32[4, 4]
  %scale = param {name = "scale"} : f32)";

inline std::string inside(const std::string& body) {
  return one_block(kInterface, body);
}

inline std::string in_parallel(const std::string& body) {
  return inside(
      "%f = alloc : fragment f32[8, 4]\n%r = alloc : fragment f32[8]\n"
      "%u = alloc : fragment f32[8, 1]\n%s = alloc : shared f32[8, 4]\n"
      "%v = alloc : fragment f32[]\n%z = const {value = 0.0} : f32\n"
      "parallel {extents = [8, 4]} do |%i: i32, %j: i32| {\n" +
      body + "\n}");
}

inline std::string tiles(const std::string& body) {
  return inside(R"(%a = alloc : shared f16[64, 128]
    %b = alloc : shared f16[64, 128]
    %bt = alloc : shared f16[128, 64]
    %c = alloc : fragment f32[64, 64]
    %m = alloc : fragment f32[64]
    %l = alloc : fragment f32[64]
    %alpha = alloc : fragment f32[64]
    %p = alloc : fragment f16[64, 64]
    %i8 = alloc : shared i8[64, 64]
    %flags = alloc : fragment bool[64]
    )" + body);
}

inline void check(const Mistake& mistake, IrStage stage) {
  std::string text = mistake.text;
  size_t mark = text.find("  // here");
  REQUIRE(mark != std::string::npos);
  text.erase(mark, 9);
  const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(mark), '\n') + 1;
  INFO(text);
  Kernel kernel = parse(text, "mistake.tile");
  try {
    verify(kernel, stage);
    FAIL_CHECK("verified, but expected: " << mistake.message);
  } catch (const UserError& error) {
    CHECK(error.message() == mistake.message);
    CHECK(error.hint() == mistake.hint);
    CHECK(error.loc().line == line);
    CHECK(std::string(error.loc().file) == "mistake.tile");
  }
}

inline void check_all(const std::vector<Mistake>& mistakes, IrStage stage = IrStage::Lowered) {
  for (const Mistake& mistake : mistakes) check(mistake, stage);
}

inline void accept(const std::string& text, IrStage stage = IrStage::Traced) {
  INFO(text);
  CHECK_NOTHROW(verify(parse(text), stage));
}

}  // namespace kiln::test
