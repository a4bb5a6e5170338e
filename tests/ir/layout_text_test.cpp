#include "ir/layout/text.h"

#include <catch2/catch.hpp>

#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"

using namespace kiln;

TEST_CASE("layout text: what is written is read back") {
  for (const Layout& layout :
       {mma_accumulator(16, 40, {}), mma_accumulator(24, 20, {1, 3, 2}),
        mma_operand_b(48, 24, kMma8Bit, {2, 3, 1}), wgmma_accumulator(128, 176, 2),
        blocked({}, 3, 4), blocked({5, 7}, 12, 2), replicated({3, 5}, 5),
        reduce_axis(mma_accumulator(64, 96, {2, 3, 1}), 1), row_major({6, 40}, 44),
        swizzled({3, 24, 80}, 2, 32)}) {
    INFO(layout_text(layout));
    CHECK(parse_layout(layout_text(layout)) == layout);
    CHECK(layout_text(parse_layout(layout_text(layout))) == layout_text(layout));
  }
  CHECK(layout_text(mma_accumulator(16, 40, {})) ==
        "[16, 40] reg (0, 1) (8, 0) lane (0, 2) (0, 4) (1, 0) (2, 0) (4, 0) "
        "digit 5 reg 4 axis 1 8");
  CHECK(parse_layout("[6] digit 3 reg 2 axis 0 2 reg (1)") ==
        parse_layout("[6] digit 6 reg 1 axis 0 1"));
}

TEST_CASE("layout text: anything else is the user's error") {
  const std::string good = layout_text(mma_accumulator(16, 40, {1, 1, 3}).crop({16, 36}));
  for (size_t length = 0; length < good.size(); ++length) {
    try {
      parse_layout(good.substr(0, length));
    } catch (const UserError&) {
    }
    for (const char c : std::string("0917-,()[] xd")) {
      std::string changed = good;
      changed[length] = c;
      try {
        parse_layout(changed);
      } catch (const UserError&) {
      }
    }
  }
  for (const char* text :
       {"", "[", "16", "[16] reg (1)", "[2] reg (1) reg (1)", "[2] reg (1, 0)", "[2] reg 1",
        "[2] reg (1) digit", "[2] reg (1) digit 2 reg 1 axis 0 2",
        "[2] reg (1) digit 2 reg 2 axis 1 1", "[2] reg (1) digit 0 reg 2 copies",
        "[2] reg (1) digit 3 lane 1 copies", "[2] reg (1) digit 2 place 1 copies",
        "[2] reg (99999999999)", "[2] reg (-1)", "[0]", "[2] reg (1) other"})
    CHECK_THROWS_AS(parse_layout(text), UserError);
}
