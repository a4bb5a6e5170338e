// reduce: kinds, dtypes, axes, widths, clear, special values, views.
#include <catch2/catch.hpp>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

std::string check_reduce(const std::string& kind, DType from, DType to, Shape shape, int64_t dim,
                         bool clear, bool keep, double specials = 0) {
  Shape reduced = shape;
  if (keep) {
    reduced[static_cast<size_t>(dim)] = 1;
  } else {
    reduced.erase(reduced.begin() + dim);
  }
  Program p("reduce");
  Value x = p.tensor("x", from, shape), old = p.tensor("old", to, reduced);
  Value y = p.tensor("y", to, reduced, "output");
  p.launch([&] {
    Value tile = p.b.alloc(Space::Fragment, from, shape);
    Value sum = p.b.alloc(Space::Shared, to, reduced);
    p.copy(x, tile);
    p.copy(old, sum);
    Attrs attrs;
    attrs.set("kind", kind);
    attrs.set("dim", dim);
    attrs.set("clear", clear);
    p.b.emit(OpCode::Reduce, {tile, sum}, attrs);
    p.copy(sum, y);
  });
  // Also elements of one sign: what is beyond a row's end must not take part.
  std::vector<Check> checks(3);
  for (Check& check : checks) {
    check.options.seed = random_seed();
    check.options.specials = specials;
    check.tolerance = 0;  // exact, but which of −0 and 0 is larger depends on the order
  }
  checks[1].options.low = 3;
  checks[1].options.high = 7;
  checks[2].options.low = -7;
  checks[2].options.high = -3;
  return check_program(p.kernel, checks);
}

}  // namespace

TEST_CASE("every kind and dtype along every axis", "[reduce]") {
  for (DType dtype : kAllDTypes)
    for (const char* kind : {"max", "min", "sum", "absmax", "and", "or", "xor"}) {
      const bool bits =
          std::string(kind) == "and" || std::string(kind) == "or" || std::string(kind) == "xor";
      if (bits ? is_float(dtype) : dtype == Bool) continue;
      INFO(kind << " " << name(dtype));
      // e4m3 holds sums of few elements exactly.
      const int64_t width = dtype == E4M3 || dtype == E5M2 ? 3 : 19;
      CHECK(check_reduce(kind, dtype, dtype, {3, width}, 1, true, false) == "");
      CHECK(check_reduce(kind, dtype, dtype, {width, 3, 5}, 0, false, false) == "");
      CHECK(check_reduce(kind, dtype, dtype, {2, width, 18}, 1, false, true) == "");
    }
}

TEST_CASE("every width", "[reduce]") {
  for (int64_t width : {1, 2, 4, 5, 15, 16, 17, 31, 33, 64, 80, 97, 128, 176}) {
    INFO(width);
    CHECK(check_reduce("sum", F32, F32, {3, width}, 1, true, false) == "");
    CHECK(check_reduce("max", F32, F32, {width, 3}, 0, false, true) == "");
    CHECK(check_reduce("max", F16, F32, {width}, 0, true, true) == "");
  }
}

TEST_CASE("NaN and infinities", "[reduce]") {
  for (const char* kind : {"max", "min", "absmax", "sum"})
    for (bool clear : {false, true})
      for (int64_t dim : {0, 1}) {
        INFO(kind);
        CHECK(check_reduce(kind, F32, F32, {21, 37}, dim, clear, false, 0.5) == "");
        CHECK(check_reduce(kind, F16, F32, {3, 4}, dim, clear, false, 0.9) == "");
      }
}

TEST_CASE("a reduction of a view that sticks out into another view", "[reduce]") {
  Program p("views");
  Value x = p.tensor("x", F32, {8, 40}), y = p.tensor("y", F32, {20}, "output");
  p.launch([&] {
    Value tile = p.b.alloc(Space::Shared, F32, {8, 40}), sums = p.b.alloc(Space::Shared, F32, {20});
    p.copy(x, tile);
    p.b.fill(7.0, sums);
    Attrs attrs;
    attrs.set("kind", std::string("sum"));
    attrs.set("dim", int64_t{1});
    attrs.set("clear", false);
    p.b.emit(
        OpCode::Reduce,
        {p.b.slice(tile, {p.index(-1), p.index(25)}, {6, 30}), p.b.slice(sums, {p.index(16)}, {6})},
        attrs);
    p.copy(sums, y);
  });
  CHECK(check_program(p.kernel) == "");
}
