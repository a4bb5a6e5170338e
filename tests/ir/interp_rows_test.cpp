// arg_reduce, cumsum and sort of the interpreter, on numbers worked out by hand.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

// One op on a tile of the tensor x, into a tile that becomes the tensor y.
Numbers row_op(const std::string& op, const std::string& dtype, const Shape& shape,
               const std::string& to, const Shape& to_shape, const Numbers& x) {
  auto tensor = [](const char* name, const std::string& type, const char* role) {
    return std::string("%") + name + " = tensor {name = \"" + name + "\", role = " + role +
           "} : tensor " + type + "\n";
  };
  const std::string from = dtype + str(shape), result = to + str(to_shape);
  Run run(one_block(tensor("x", from, "input") + tensor("y", result, "output"),
                    "%t = alloc : shared " + from + "\n%u = alloc : fragment " + result +
                        "\ncopy %x, %t\n" + op + "\ncopy %u, %y"));
  run.tensor("x", *dtype_from_name(dtype), shape, x);
  run.tensor("y", *dtype_from_name(to), to_shape);
  return run().values("y");
}

Numbers order_of(const std::string& dtype, const Numbers& keys, int64_t kept) {
  return row_op("sort %t, %u {dim = 0}", dtype, {static_cast<int64_t>(keys.size())}, "i32", {kept},
                keys);
}

}  // namespace

TEST_CASE("sort: larger first, NaN last, equal ones by position", "[interp][rows]") {
  CHECK(order_of("f32", {1, kNan, -kInf, kInf, 1, 2, kNan, -kInf}, 8) ==
        Numbers{3, 5, 0, 4, 2, 7, 1, 6});
  CHECK(order_of("f16", {-0.0, 0.0, -0.0, 1}, 4) == Numbers{3, 0, 1, 2});
  CHECK(order_of("i32", {-5, 7, 7, -2147483648.0, 2147483647.0}, 3) == Numbers{4, 1, 2});
  CHECK(order_of("u8", {200, 3, 255}, 2) == Numbers{2, 0});
  CHECK(order_of("f32", {kNan}, 1) == Numbers{0});
}

TEST_CASE("sort: keys and values, along any axis", "[interp][rows]") {
  const Numbers x{3, 1,  //
                  1, 2,  //
                  2, 1};
  CHECK(row_op("%v = alloc : shared i32[2, 2]\nsort %t, %v, %u {dim = 0}", "f32", {3, 2}, "f32",
               {2, 2}, x) == Numbers{3, 2, 2, 1});
  CHECK(row_op("sort %t, %u {dim = 0}", "f32", {3, 2}, "i32", {2, 2}, x) == Numbers{0, 1, 2, 0});
  CHECK(row_op("sort %t, %u {dim = 1}", "f32", {3, 2}, "i32", {3, 2}, x) ==
        Numbers{0, 1, 1, 0, 0, 1});
  // The values are the keys themselves, halved.
  CHECK(row_op("%h = alloc : fragment f16[3, 2]\n%half = const {value = 0.5} : f32\n"
               "parallel {extents = [3, 2]} do |%i: i32, %j: i32| {\n%e = load %t, %i, %j : f32\n"
               "%d = mul %e, %half : f32\nstore %d, %h, %i, %j\n}\n"
               "sort %t, %u, _, %h {dim = 0}",
               "f32", {3, 2}, "f16", {3, 2}, x) == Numbers{1.5, 1, 1, 0.5, 0.5, 0.5});
}

TEST_CASE("cumsum: both directions, axes, wrapping, NaN from where it is on", "[interp][rows]") {
  const Numbers x{1, 2, 3, 4, 5, 6};
  CHECK(row_op("cumsum %t, %u {dim = 1}", "f32", {2, 3}, "f32", {2, 3}, x) ==
        Numbers{1, 3, 6, 4, 9, 15});
  CHECK(row_op("cumsum %t, %u {dim = 1, reverse = true}", "f16", {2, 3}, "f64", {2, 3}, x) ==
        Numbers{6, 5, 3, 15, 11, 6});
  CHECK(row_op("cumsum %t, %u {dim = 0}", "i32", {2, 3}, "i32", {2, 3}, x) ==
        Numbers{1, 2, 3, 5, 7, 9});
  CHECK(row_op("cumsum %t, %u {dim = 0}", "i8", {3}, "i8", {3}, {100, 100, 100}) ==
        Numbers{100, -56, 44});
  const Numbers nan = row_op("cumsum %t, %u {dim = 0}", "f32", {3}, "f32", {3}, {1, kNan, 1});
  CHECK((nan[0] == 1 && std::isnan(nan[1]) && std::isnan(nan[2])));
  // 2^11 + 1 is no f16; the sum before it is rounded is.
  CHECK(row_op("cumsum %t, %u {dim = 0}", "f16", {3}, "f16", {3}, {2048, 1, 1}) ==
        Numbers{2048, 2048, 2050});
}

TEST_CASE("arg_reduce: the first of the largest, without NaN", "[interp][rows]") {
  const Numbers x{1,    7,     7,    kNan,  2,     //
                  kNan, kNan,  kNan, kNan,  kNan,  //
                  kNan, -kInf, kNan, -kInf, kNan};
  CHECK(row_op("arg_reduce %t, %u {kind = max, dim = 1}", "f32", {3, 5}, "i32", {3}, x) ==
        Numbers{1, -1, 1});
  CHECK(row_op("arg_reduce %t, %u {kind = min, dim = 1}", "f32", {3, 5}, "i32", {3, 1}, x) ==
        Numbers{0, -1, 1});
  CHECK(row_op("arg_reduce %t, %u {kind = max, dim = 0}", "f32", {3, 5}, "i32", {5}, x) ==
        Numbers{0, 0, 0, 2, 0});
  CHECK(row_op("arg_reduce %t, %u {kind = min, dim = 0}", "u8", {4}, "i32", {}, {3, 2, 2, 9}) ==
        Numbers{1});
  CHECK(row_op("arg_reduce %t, %u {kind = max, dim = 0}", "f32", {2}, "i32", {}, {-0.0, 0.0}) ==
        Numbers{0});
}
