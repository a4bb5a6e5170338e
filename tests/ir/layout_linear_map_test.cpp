#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "ir/error.h"
#include "ir/layout/linear_map.h"

using namespace kiln;

namespace {

// Every map of `in` to `out` bits, by the images' digits in base 2^out.
template <typename Visit>
void for_each_map(int in, int out, Visit visit) {
  const uint64_t count = uint64_t{1} << (in * out), mask = (uint64_t{1} << out) - 1;
  for (uint64_t code = 0; code < count; ++code) {
    std::vector<uint64_t> images;
    for (int i = 0; i < in; ++i) images.push_back(code >> (i * out) & mask);
    visit(LinearMap(out, images));
  }
}

std::set<uint64_t> image_of(const LinearMap& f) {
  std::set<uint64_t> image;
  for (uint64_t x = 0; x < uint64_t{1} << f.in_bits(); ++x) image.insert(f(x));
  return image;
}

// All queries of one map against their definitions.
bool holds_for(const LinearMap& f) {
  const uint64_t in = uint64_t{1} << f.in_bits(), out = uint64_t{1} << f.out_bits();
  const std::set<uint64_t> image = image_of(f);
  const LinearMap g = f.inverse();
  bool ok = image.size() == uint64_t{1} << f.rank();
  ok = ok && f.is_injective() == (image.size() == in) && f.is_surjective() == (image.size() == out);

  const std::vector<uint64_t> kernel = f.kernel();
  ok = ok && static_cast<int>(kernel.size()) == f.in_bits() - f.rank();
  const LinearMap span(f.in_bits(), kernel);
  ok = ok && span.is_injective();
  for (uint64_t k = 0; k < uint64_t{1} << kernel.size(); ++k) ok = ok && f(span(k)) == 0;

  for (uint64_t x = 0; x < in; ++x) {
    for (uint64_t y = 0; y < in; ++y) ok = ok && f(x ^ y) == (f(x) ^ f(y));
    ok = ok && f(g(f(x))) == f(x) && (!f.is_injective() || g(f(x)) == x);
  }
  for (uint64_t y = 0; y < out; ++y) {
    const auto x = f.solve(y);
    ok = ok && x.has_value() == (image.count(y) == 1) && (!x || f(*x) == y);
    ok = ok && (!f.is_surjective() || f(g(y)) == y);
  }
  return ok;
}

}  // namespace

TEST_CASE("layout: linear maps up to 3 x 3 bits have their post-conditions") {
  for (int in = 0; in <= 3; ++in)
    for (int out = 0; out <= 3; ++out)
      for_each_map(in, out, [](const LinearMap& f) {
        if (!holds_for(f)) FAIL(str(f));
      });
}

TEST_CASE("layout: random linear maps of up to 7 bits have their post-conditions") {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    const int in = static_cast<int>(random() % 8), out = static_cast<int>(random() % 8);
    std::vector<uint64_t> images;
    for (int i = 0; i < in; ++i) images.push_back(random() % (1u << out));
    const LinearMap f(out, images);
    if (!holds_for(f)) FAIL(str(f));
  }
}

TEST_CASE("layout: composition is application in turn, and associative") {
  for_each_map(2, 2, [](const LinearMap& f) {
    CHECK(compose(f, LinearMap::identity(2)) == f);
    CHECK(compose(LinearMap::identity(2), f) == f);
    for_each_map(2, 2, [&](const LinearMap& g) {
      for (uint64_t x = 0; x < 4; ++x)
        if (compose(g, f)(x) != g(f(x))) FAIL(str(f) << " | " << str(g));
      for_each_map(2, 2, [&](const LinearMap& h) {
        if (compose(h, compose(g, f)) != compose(compose(h, g), f)) FAIL(str(h));
      });
    });
  });
}

TEST_CASE("layout: a product acts on each side's bits") {
  for_each_map(2, 2, [](const LinearMap& low) {
    for_each_map(2, 1, [&](const LinearMap& high) {
      const LinearMap both = product(low, high);
      CHECK(both.rank() == low.rank() + high.rank());
      for (uint64_t x = 0; x < 16; ++x)
        if (both(x) != (low(x & 3) | high(x >> 2) << 2)) FAIL(str(both));
    });
  });
}

TEST_CASE("layout: the linear map of the header's table") {
  const LinearMap f(2, {1, 2, 3});
  const uint64_t expected[] = {0, 1, 2, 3, 3, 2, 1, 0};
  for (uint64_t x = 0; x < 8; ++x) CHECK(f(x) == expected[x]);
  CHECK(f.kernel() == std::vector<uint64_t>{7});
  CHECK(str(f) == "3 -> 2 bits: 1 2 3");
}

TEST_CASE("layout: images outside the range, and maps that do not meet, are defects") {
  CHECK_THROWS_AS(LinearMap(2, {4}), InternalError);
  CHECK_THROWS_AS(LinearMap(65, {}), InternalError);
  CHECK_THROWS_AS(compose(LinearMap(2, {1}), LinearMap(2, {1})), InternalError);
}
