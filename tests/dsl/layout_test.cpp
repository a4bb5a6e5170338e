// annotate_layout: what it leaves in the traced kernel, and that it changes no result anywhere.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "ir/canon.h"
#include "ir/layout/text.h"
#include "ir/layout/tile_layout.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/walk.h"

namespace kiln {
namespace {

// y = x · x over 64 x 64 halves, with what `wish` does to the tiles.
Kernel product(const std::function<void(const Tile& a, const Tile& c)>& wish) {
  return trace("product", [&] {
    Tensor x = input("x", F16, {64, 64}), y = output("y", F32, {64, 64});
    launch({1});
    Tile a = alloc_shared({64, 64}, F16), c = alloc_fragment({64, 64}, F32);
    wish(a, c);
    copy(x, a);
    gemm(a, a, c, {.clear = true});
    copy(c, y);
  });
}

std::vector<std::string> layouts(const Kernel& kernel) {
  std::vector<std::string> found;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Alloc) found.push_back(op.word("layout"));
  });
  return found;
}

TEST_CASE("a wish is the tile's attribute, in text and hash", "[layout]") {
  const Kernel plain = product([](const Tile&, const Tile&) {});
  CHECK(layouts(plain) == std::vector<std::string>{"", ""});
  const Kernel wished = product([](const Tile& a, const Tile& c) {
    annotate_layout(a, Swizzled64);
    annotate_layout(c, blocked({64, 64}, 4, 4));
  });
  CHECK(layouts(wished) == std::vector<std::string>{layout_text(swizzled({64, 64}, 2, 64)),
                                                    layout_text(blocked({64, 64}, 4, 4))});
  CHECK(print(parse(print(wished), "again")) == print(wished));
  CHECK(print(canonical(wished)) == print(wished));
  CHECK(hash(wished) != hash(plain));
}

TEST_CASE("the four layouts of shared tiles, and one written by hand", "[layout]") {
  const auto of = [](const auto& wish) {
    return layouts(product([&](const Tile& a, const Tile&) { annotate_layout(a, wish); }))[0];
  };
  CHECK(of(RowMajor) == layout_text(row_major({64, 64})));
  CHECK(of(Swizzled32) == layout_text(swizzled({64, 64}, 2, 32)));
  CHECK(of(Swizzled128) == layout_text(swizzled({64, 64}, 2, 128)));
  CHECK(of(row_major({64, 64}, 72)) == layout_text(row_major({64, 64}, 72)));
  // Columns one after another.
  const std::string by_hand = "[64, 64] digit 64 offset 1 axis 0 1 digit 64 offset 64 axis 1 1";
  CHECK(of(by_hand) == layout_text(parse_layout(by_hand)));
}

}  // namespace
}  // namespace kiln
