// sort, cumsum, arg_reduce: dtypes, axes, lengths, ties, special values, views.
#include <catch2/catch.hpp>
#include <random>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

const Space kSpaces[] = {Space::Fragment, Space::Shared};

bool is_number(DType dtype) {
  return dtype != Bool;
}

// Few different values, so that many are equal; special values; and, of some, all bits.
std::vector<Check> checks_of(bool exact_sums) {
  std::vector<Check> checks(exact_sums ? 2 : 3);
  for (Check& check : checks) check.options.seed = random_seed();
  checks[1].options.specials = 0.3;
  if (exact_sums) {
    for (Check& check : checks) check.tolerance = 0;  // 0 is −0
  } else {
    checks[2].options.any_bits = true;
  }
  return checks;
}

struct SortCase {
  DType keys = F32, values = I32;
  Shape shape;
  int64_t dim = 0, kept = 1;
  bool has_values = false, is_sorted = true;
  Space space = Space::Fragment;
};

std::string check_sort(const SortCase& c) {
  Shape first = c.shape;
  first[static_cast<size_t>(c.dim)] = c.kept;
  const DType order_dtype = c.has_values ? c.values : I32;
  Program p("sort");
  Value x = p.tensor("x", c.keys, c.shape), v = p.tensor("v", c.values, c.shape);
  Value s = p.tensor("s", c.keys, first, "output"), o = p.tensor("o", order_dtype, first, "output");
  p.launch([&] {
    Value keys = p.b.alloc(c.space, c.keys, c.shape), values;
    Value order = p.b.alloc(c.space, order_dtype, first);
    Value sorted = p.b.alloc(Space::Shared, c.keys, first);
    p.copy(x, keys);
    p.b.fill(1.0, sorted);
    if (c.has_values) {
      values = p.b.alloc(c.space, c.values, c.shape);
      p.copy(v, values);
    }
    Attrs attrs;
    attrs.set("dim", c.dim);
    std::vector<Value> operands = {keys, order};
    if (c.is_sorted || c.has_values) operands.push_back(c.is_sorted ? sorted : Value{});
    if (c.has_values) operands.push_back(values);
    p.b.emit(OpCode::Sort, operands, attrs);
    p.copy(order, o);
    p.copy(sorted, s);
  });
  return check_lowered(p.kernel, checks_of(false));
}

std::string check_cumsum(DType from, DType to, const Shape& shape, int64_t dim, bool reverse,
                         Space space) {
  Program p("cumsum");
  Value x = p.tensor("x", from, shape), y = p.tensor("y", to, shape, "output");
  p.launch([&] {
    Value tile = p.b.alloc(space, from, shape), sums = p.b.alloc(Space::Fragment, to, shape);
    p.copy(x, tile);
    Attrs attrs;
    attrs.set("dim", dim);
    attrs.set("reverse", reverse);
    p.b.emit(OpCode::Cumsum, {tile, sums}, attrs);
    p.copy(sums, y);
  });
  return check_lowered(p.kernel, checks_of(true));
}

std::string check_arg_reduce(const char* kind, DType dtype, const Shape& shape, int64_t dim,
                             bool keep, Space space) {
  Shape reduced = shape;
  if (keep) {
    reduced[static_cast<size_t>(dim)] = 1;
  } else {
    reduced.erase(reduced.begin() + dim);
  }
  Program p("arg_reduce");
  Value x = p.tensor("x", dtype, shape), y = p.tensor("y", I32, reduced, "output");
  p.launch([&] {
    Value tile = p.b.alloc(space, dtype, shape);
    Value index = p.b.alloc(Space::Shared, I32, reduced);
    p.copy(x, tile);
    Attrs attrs;
    attrs.set("kind", std::string(kind));
    attrs.set("dim", dim);
    p.b.emit(OpCode::ArgReduce, {tile, index}, attrs);
    p.copy(index, y);
  });
  std::vector<Check> checks = checks_of(false);
  checks.push_back(checks[0]);
  checks.back().options.specials = 0.95;  // lines of nothing but NaN, of −∞
  return check_lowered(p.kernel, checks);
}

}  // namespace

TEST_CASE("sort of every dtype, with values of every dtype", "[rows]") {
  for (DType dtype : kAllDTypes)
    for (Space space : kSpaces) {
      INFO(name(dtype));
      if (is_number(dtype))
        CHECK(check_sort({.keys = dtype, .shape = {3, 19}, .dim = 1, .kept = 19, .space = space}) ==
              "");
      CHECK(check_sort({.values = dtype,
                        .shape = {2, 13},
                        .dim = 1,
                        .kept = 5,
                        .has_values = true,
                        .space = space}) == "");
    }
}

TEST_CASE("sort and the first few of lines of every length", "[rows]") {
  for (int64_t length : {1, 2, 3, 5, 8, 17, 64, 129}) {
    INFO(length);
    CHECK(check_sort({.shape = {2, length}, .dim = 1, .kept = length}) == "");
    CHECK(check_sort({.keys = I32, .shape = {length, 3}, .kept = length}) == "");
    for (int64_t kept : {1, 3, 16}) {
      if (kept > length) continue;
      INFO(kept);
      CHECK(check_sort({.keys = F16, .shape = {3, length}, .dim = 1, .kept = kept}) == "");
      CHECK(check_sort({.shape = {length, 2}, .kept = kept, .has_values = true}) == "");
    }
  }
}

TEST_CASE("sort at random", "[rows]") {
  std::mt19937_64 random(random_seed());
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const DType keys[] = {F32, F16, BF16, I32, F64, U8, I64};
  for (int round = 0; round < 12; ++round) {
    SortCase c{.keys = keys[below(7)], .values = kAllDTypes[static_cast<size_t>(below(10))]};
    for (int64_t axes = 1 + below(3), axis = 0; axis < axes; ++axis)
      c.shape.push_back(1 + below(axis == 0 ? 60 : 9));
    c.dim = below(static_cast<int64_t>(c.shape.size()));
    c.kept = 1 + below(c.shape[static_cast<size_t>(c.dim)]);
    c.has_values = below(2), c.is_sorted = below(2), c.space = kSpaces[below(2)];
    INFO(name(c.keys) << " " << str(c.shape) << " dim " << c.dim << " kept " << c.kept);
    CHECK(check_sort(c) == "");
  }
}

TEST_CASE("infinities of e5m2 stay what they are", "[rows]") {
  const Shape shape{4, 200};
  CHECK(check_sort({.keys = E5M2, .shape = shape, .dim = 1, .kept = 200}) == "");
  CHECK(check_sort({.values = E5M2, .shape = shape, .dim = 1, .kept = 9, .has_values = true}) ==
        "");
  CHECK(check_arg_reduce("max", E5M2, shape, 0, false, Space::Fragment) == "");
  CHECK(check_arg_reduce("min", E5M2, shape, 1, false, Space::Shared) == "");
}

TEST_CASE("sort of a long row", "[rows]") {
  CHECK(check_sort({.shape = {1, 4096}, .dim = 1, .kept = 4096}) == "");
  CHECK(check_sort({.shape = {2, 3000}, .dim = 1, .kept = 32, .space = Space::Shared}) == "");
}

TEST_CASE("sort of a view that sticks out into views", "[rows]") {
  for (Space space : kSpaces) {
    Program p("views");
    Value x = p.tensor("x", F32, {8, 40}), y = p.tensor("y", I32, {8, 20}, "output");
    Value z = p.tensor("z", F32, {8, 20}, "output");
    p.launch([&] {
      Value tile = p.b.alloc(space, F32, {8, 40});
      Value order = p.b.alloc(space, I32, {8, 20}), sorted = p.b.alloc(space, F32, {8, 20});
      p.copy(x, tile);
      p.b.fill(-7.0, order);
      p.b.fill(-7.0, sorted);
      Attrs attrs;
      attrs.set("dim", int64_t{1});
      p.b.emit(OpCode::Sort,
               {p.b.slice(tile, {p.index(-1), p.index(25)}, {6, 30}),
                p.b.slice(order, {p.index(4), p.index(-3)}, {6, 9}),
                p.b.slice(sorted, {p.index(4), p.index(15)}, {6, 9})},
               attrs);
      p.copy(order, y);
      p.copy(sorted, z);
    });
    CHECK(check_lowered(p.kernel, checks_of(false)) == "");
  }
}

TEST_CASE("cumsum of every dtype along every axis", "[rows]") {
  for (DType dtype : kAllDTypes) {
    if (!is_number(dtype)) continue;
    INFO(name(dtype));
    const int64_t length = dtype == E4M3 || dtype == E5M2 ? 2 : 19;  // exact sums
    for (bool reverse : {false, true})
      for (Space space : kSpaces) {
        CHECK(check_cumsum(dtype, dtype, {3, length}, 1, reverse, space) == "");
        CHECK(check_cumsum(dtype, dtype, {length, 2, 3}, 0, reverse, space) == "");
      }
  }
  CHECK(check_cumsum(F16, F32, {5, 40}, 1, false, Space::Shared) == "");
  CHECK(check_cumsum(F32, F64, {40, 5}, 0, true, Space::Fragment) == "");
}

TEST_CASE("cumsum of every length", "[rows]") {
  for (int64_t length : {1, 2, 3, 8, 17, 63, 65, 1000}) {
    INFO(length);
    CHECK(check_cumsum(F32, F32, {2, length}, 1, false, Space::Shared) == "");
    CHECK(check_cumsum(I32, I32, {length}, 0, true, Space::Fragment) == "");
  }
}

TEST_CASE("arg_reduce of every dtype, axis and length", "[rows]") {
  for (const char* kind : {"max", "min"}) {
    for (DType dtype : kAllDTypes) {
      if (!is_number(dtype)) continue;
      INFO(kind << " " << name(dtype));
      CHECK(check_arg_reduce(kind, dtype, {5, 19}, 1, false, Space::Fragment) == "");
      CHECK(check_arg_reduce(kind, dtype, {7, 3, 5}, 0, true, Space::Shared) == "");
    }
    for (int64_t length : {1, 2, 17, 48, 97}) {
      INFO(kind << " " << length);
      CHECK(check_arg_reduce(kind, F32, {length}, 0, false, Space::Fragment) == "");
      CHECK(check_arg_reduce(kind, F16, {3, length}, 1, true, Space::Fragment) == "");
      CHECK(check_arg_reduce(kind, F32, {2, length, 3}, 1, false, Space::Shared) == "");
    }
  }
}

TEST_CASE("arg_reduce of a view of a fragment", "[rows]") {
  Program p("view");
  Value x = p.tensor("x", F32, {8, 40}), y = p.tensor("y", I32, {8}, "output");
  p.launch([&] {
    Value tile = p.b.alloc(Space::Fragment, F32, {8, 40});
    Value index = p.b.alloc(Space::Fragment, I32, {8});
    p.copy(x, tile);
    p.b.fill(7.0, index);
    Attrs attrs;
    attrs.set("dim", int64_t{1});
    attrs.set("kind", std::string("max"));
    Value from = p.b.slice(tile, {p.index(-1), p.index(25)}, {6, 30});
    p.b.emit(OpCode::ArgReduce, {from, p.b.slice(index, {p.index(5)}, {6})}, attrs);
    p.copy(index, y);
  });
  CHECK(check_lowered(p.kernel, checks_of(false)) == "");
}
