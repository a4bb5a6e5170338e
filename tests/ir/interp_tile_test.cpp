// Tile ops of the interpreter: gemm, reduce, softmax.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>
#include <random>

#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Contains;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

std::string tile_of(const std::string& dtype, const Shape& shape) {
  return dtype + str(shape);
}

struct Gemm {
  std::string in = "f16", acc = "f32";
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, clear = false;
};

Run gemm_run(const Gemm& g, const Numbers& a, const Numbers& b, const Numbers& c) {
  Shape a_shape = g.transpose_a ? Shape{g.k, g.m} : Shape{g.m, g.k};
  Shape b_shape = g.transpose_b ? Shape{g.n, g.k} : Shape{g.k, g.n};
  auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  Run run(one_block(
      "%a = tensor {name = \"a\"} : tensor " + tile_of(g.in, a_shape) +
          "\n%b = tensor {name = \"b\"} : tensor " + tile_of(g.in, b_shape) +
          "\n%c = tensor {name = \"c\", role = inout} : tensor " + tile_of(g.acc, {g.m, g.n}),
      "%x = alloc : shared " + tile_of(g.in, a_shape) + "\ncopy %a, %x\n" +
          "%y = alloc : fragment " + tile_of(g.in, b_shape) + "\ncopy %b, %y\n" +
          "%z = alloc : fragment " + tile_of(g.acc, {g.m, g.n}) + "\ncopy %c, %z\n" +
          "gemm %x, %y, %z {transpose_a = " + flag(g.transpose_a) + ", transpose_b = " +
          flag(g.transpose_b) + ", clear = " + flag(g.clear) + "}\ncopy %z, %c"));
  run.tensor("a", *dtype_from_name(g.in), a_shape, a);
  run.tensor("b", *dtype_from_name(g.in), b_shape, b);
  run.tensor("c", *dtype_from_name(g.acc), {g.m, g.n}, c);
  return run;
}

Numbers reduced(const std::string& from, const std::string& to, const std::string& attrs,
                const Numbers& source, const Numbers& old = {}) {
  Run run(one_block("%s = tensor {name = \"s\"} : tensor " + from +
                        "\n%d = tensor {name = \"d\", role = inout} : tensor " + to,
                    "%x = alloc : fragment " + from + "\ncopy %s, %x\n%y = alloc : fragment " + to +
                        "\ncopy %d, %y\nreduce %x, %y {" + attrs + "}\ncopy %y, %d"));
  auto bind = [&](const char* name, const std::string& text, const Numbers& values) {
    size_t bracket = text.find('[');
    Type type{Kind::Tensor, *dtype_from_name(text.substr(0, bracket)), Space::Global, {}};
    std::string extents = text.substr(bracket + 1);
    for (size_t at = 0; extents[at] != ']';) {
      size_t used = 0;
      type.shape.push_back(std::stoll(extents.substr(at), &used));
      at += used;
      while (extents[at] == ',' || extents[at] == ' ') ++at;
    }
    run.tensor(name, type.dtype, type.shape, values);
  };
  bind("s", from, source);
  bind("d", to, old);
  return run().values("d");
}

}  // namespace

TEST_CASE("gemm of ones gives K everywhere", "[interp][gemm]") {
  struct Size {
    int64_t m, n, k;
  };
  for (Size s : {Size{16, 104, 16}, Size{64, 24, 64}, Size{64, 40, 64}, Size{64, 72, 64},
                 Size{64, 64, 24}, Size{1, 1, 1}, Size{3, 5, 7}, Size{17, 1, 33}}) {
    Numbers a(static_cast<size_t>(s.m * s.k), 1), b(static_cast<size_t>(s.k * s.n), 1);
    Numbers expected(static_cast<size_t>(s.m * s.n), static_cast<double>(s.k));
    CHECK(gemm_run({.m = s.m, .n = s.n, .k = s.k}, a, b, {})().values("c") == expected);
  }
}

TEST_CASE("gemm: transposes, clear, accumulators", "[interp][gemm]") {
  const Numbers a{1, 2, 3, 4, 5, 6}, b{1, 0, 2, -1, 0, 3};  // 2x3, 3x2
  const Numbers product{5, 7, 14, 13};
  const Numbers at{1, 4, 2, 5, 3, 6}, bt{1, 2, 0, 0, -1, 3};
  const Numbers old{10, 20, 30, 40};
  for (const char* in : {"f16", "bf16", "f32", "e4m3", "e5m2"})
    for (bool ta : {false, true})
      for (bool tb : {false, true})
        for (bool clear : {false, true}) {
          Gemm g{in, "f32", 2, 2, 3, ta, tb, clear};
          Numbers expected = product;
          for (size_t i = 0; !clear && i < 4; ++i) expected[i] += old[i];
          CHECK(gemm_run(g, ta ? at : a, tb ? bt : b, old)().values("c") == expected);
        }
  CHECK(gemm_run({"f64", "f64", 2, 2, 3}, a, b, {})().values("c") == product);
  CHECK(gemm_run({"i8", "i32", 2, 2, 3}, a, b, {})().values("c") == product);
  CHECK(gemm_run({"u8", "i32", 1, 1, 2}, {255, 255}, {255, 255}, {2147483647})().values("c") ==
        Numbers{-2147483648.0 - 1 + 2 * 255 * 255});
}

TEST_CASE("gemm rounds as fma with k ascending", "[interp][gemm]") {
  // 2^24 + 1 rounds back to 2^24, so the order of the ones matters; an fma keeps e² of (1+e)(1−e).
  CHECK(gemm_run({"f32", "f32", 1, 1, 3}, {1, 1, -1}, {16777216, 1, 16777216}, {})().values("c") ==
        Numbers{0});
  const double e = std::ldexp(1, -20);
  CHECK(gemm_run({"f32", "f32", 1, 1, 1}, {1 + e}, {1 - e}, {-1})().values("c") == Numbers{-e * e});
}

TEST_CASE("gemm keeps an infinity or NaN of its accumulator", "[interp][gemm]") {
  Numbers c =
      gemm_run({.m = 2, .n = 2, .k = 2}, {1, 2, 3, 4}, {1, 1, 1, 1}, {-kInf, 1, kInf, kNan})()
          .values("c");
  CHECK(c[0] == -kInf);
  CHECK(c[1] == 4);
  CHECK(c[2] == kInf);
  CHECK(std::isnan(c[3]));
  // Zero times NaN is NaN, as everywhere.
  CHECK(std::isnan(gemm_run({.m = 1, .n = 1, .k = 1}, {0}, {kNan}, {})().values("c")[0]));
}

TEST_CASE("gemm reads 0 where an operand sticks out", "[interp][gemm]") {
  Run run(
      one_block("%c = tensor {name = \"c\", role = output} : tensor f32[2, 2]\n"
                "%at = param {name = \"at\"} : i32",
                R"(%one16 = const {value = 1.0} : f16
    %stages = alloc : shared f16[2, 3, 4]
    fill %one16, %stages
    %a = slice %stages, %c1, %at, %c0 : view shared f16[1, 2, 4]
    %b = alloc : shared f16[4, 2]
    fill %one16, %b
    %x = alloc : fragment f32[2, 2]
    gemm %a, %b, %x {clear = true}
    copy %x, %c)"));
  run.tensor("c", F32, {2, 2}).param("at", Scalar::of_int(I32, 2));
  CHECK(run().values("c") == Numbers{4, 4, 0, 0});
}

TEST_CASE("reduce: any width, any dim", "[interp][reduce]") {
  Numbers upto48, arange96;
  for (int i = 1; i <= 48; ++i) upto48.push_back(i);
  for (int i = 0; i < 96; ++i) arange96.push_back(i);
  CHECK(reduced("f32[48]", "f32[1]", "kind = sum, dim = 0", upto48) == Numbers{1176});
  CHECK(reduced("f32[48]", "f32[]", "kind = sum, dim = 0", upto48) == Numbers{1176});
  CHECK(reduced("f32[32, 3]", "f32[3]", "kind = max, dim = 0", arange96) == Numbers{93, 94, 95});
  CHECK(reduced("i32[2, 3, 2]", "i32[2, 2]", "kind = sum, dim = 1",
                {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}) == Numbers{9, 12, 27, 30});
  CHECK(reduced("i32[2, 3, 2]", "i32[2, 1, 2]", "kind = min, dim = 1",
                {1, 2, 3, 0, 5, 6, 7, 8, 9, 10, -11, 12}) == Numbers{1, 0, -11, 8});
  for (int64_t width : {1, 2, 3, 7, 31, 64, 100})
    for (int dim : {0, 1}) {
      Numbers source;
      for (int64_t i = 0; i < 3 * width; ++i) source.push_back(static_cast<double>(i * 7 % 5 - 2));
      Shape shape = dim == 0 ? Shape{width, 3} : Shape{3, width};
      Numbers expected(3, 100);  // the old values
      for (int64_t i = 0; i < 3 * width; ++i)
        expected[static_cast<size_t>(dim == 0 ? i % 3 : i / width)] +=
            source[static_cast<size_t>(i)];
      CHECK(reduced(tile_of("f32", shape), "f32[3]",
                    "kind = sum, clear = false, dim = " + std::to_string(dim), source,
                    {100, 100, 100}) == expected);
    }
}

TEST_CASE("reduce: kinds, identities and old values", "[interp][reduce]") {
  const Numbers source{3, -9, 4};
  auto kind = [&](const std::string& name, bool clear, double old) {
    return reduced("i8[3]", "i8[]",
                   "kind = " + name + ", dim = 0, clear = " + (clear ? "true" : "false"), source,
                   {old})[0];
  };
  CHECK(kind("max", true, 50) == 4);
  CHECK(kind("max", false, 50) == 50);
  CHECK(kind("min", true, -50) == -9);
  CHECK(kind("min", false, -50) == -50);
  CHECK(kind("sum", true, 50) == -2);
  CHECK(kind("sum", false, 50) == 48);
  CHECK(kind("absmax", true, 50) == 9);
  CHECK(kind("absmax", false, -50) == 9);
  CHECK(kind("and", true, 0) == (3 & -9 & 4));
  CHECK(kind("or", false, 64) == (3 | -9 | 4 | 64));
  CHECK(kind("xor", false, 1) == (3 ^ -9 ^ 4 ^ 1));
  CHECK(reduced("u8[2]", "u8[]", "kind = max, dim = 0", {200, 100}) == Numbers{200});
  CHECK(reduced("u8[2]", "u8[]", "kind = min, dim = 0", {200, 100}) == Numbers{100});
  CHECK(reduced("i8[2]", "i8[]", "kind = sum, dim = 0", {100, 100}) == Numbers{-56});
  CHECK(reduced("bool[3]", "bool[]", "kind = and, dim = 0", {1, 1, 1}) == Numbers{1});
  CHECK(reduced("bool[3]", "bool[]", "kind = or, dim = 0", {0, 0, 1}) == Numbers{1});
  CHECK(reduced("f32[2]", "f32[]", "kind = max, dim = 0", {-kInf, -kInf}) == Numbers{-kInf});
  CHECK(reduced("f16[3]", "f32[]", "kind = sum, dim = 0", {2048, 1, 1}) == Numbers{2050});
}

TEST_CASE("reduce: NaN is ignored by max, min, absmax and spreads through sum",
          "[interp][reduce]") {
  const Numbers source{1, kNan, -3};
  CHECK(reduced("f32[3]", "f32[]", "kind = max, dim = 0", source) == Numbers{1});
  CHECK(reduced("f32[3]", "f32[]", "kind = min, dim = 0", source) == Numbers{-3});
  CHECK(reduced("f32[3]", "f32[]", "kind = absmax, dim = 0", source) == Numbers{3});
  CHECK(std::isnan(reduced("f32[3]", "f32[]", "kind = sum, dim = 0", source)[0]));
  CHECK(reduced("f32[3]", "f32[]", "kind = max, dim = 0, clear = false", source, {kNan}) ==
        Numbers{1});
  CHECK(reduced("f32[1]", "f32[]", "kind = max, dim = 0", {kNan}) == Numbers{-kInf});
}

namespace {

// Attention of 128 queries and keys in 64-blocks, only the blocks set in a 2x2 mask.
constexpr const char* kAttention = R"(kernel @attention {
  %mask = tensor {name = "mask"} : tensor bool[2, 2]
  %q = tensor {name = "q"} : tensor f16[128, 32]
  %k = tensor {name = "k"} : tensor f16[128, 32]
  %v = tensor {name = "v"} : tensor f16[128, 32]
  %o = tensor {name = "o", role = output} : tensor f32[128, 32]
  %lse = tensor {name = "lse", role = output} : tensor f32[128]
  %scale = param {name = "scale"} : f32
  %two = const {value = 2} : i32
  launch %two do |%b: i32| {
    %c0 = const {value = 0} : i32
    %size = const {value = 64} : i32
    %zero = const {value = 0.0} : f32
    %minus = const {value = -inf} : f32
    %row = mul %b, %size : i32
    %qs = alloc : shared f16[64, 32]
    %ks = alloc : shared f16[64, 32]
    %vs = alloc : shared f16[64, 32]
    %s = alloc : fragment f32[64, 64]
    %p = alloc : fragment f16[64, 64]
    %acc = alloc : fragment f32[64, 32]
    %m = alloc : fragment f32[64]
    %l = alloc : fragment f32[64]
    %alpha = alloc : fragment f32[64]
    %out = alloc : fragment f32[64]
    fill %minus, %m
    fill %zero, %l
    fill %zero, %acc
    %from = slice %q, %row, %c0 : view global f16[64, 32]
    copy %from, %qs
    %set = slice %mask, %b, %c0 : view global bool[1, 2]
    selected %set do |%j: i32| {
      %at = mul %j, %size : i32
      %kv = slice %k, %at, %c0 : view global f16[64, 32]
      copy %kv, %ks
      %vv = slice %v, %at, %c0 : view global f16[64, 32]
      copy %vv, %vs
      gemm %qs, %ks, %s {transpose_b = true, clear = true}
      softmax_step %s, %m, %l, %p, %alpha, %scale
      scale_rows %acc, %alpha
      gemm %p, %vs, %acc
    }
    softmax_finish %acc, %m, %l, %out, %scale
    %to = slice %o, %row, %c0 : view global f32[64, 32]
    copy %acc, %to
    %to_lse = slice %lse, %row : view global f32[64]
    copy %out, %to_lse
  }
})";

}  // namespace

TEST_CASE("online softmax: rows that see nothing give 0 and -inf", "[interp][softmax]") {
  Run run(kAttention);
  run.tensor("mask", Bool, {2, 2}, {0, 0, 1, 0}).tensor("q", F16, {128, 32});
  run.tensor("k", F16, {128, 32}).tensor("v", F16, {128, 32}, Numbers(128 * 32, 1));
  run.tensor("o", F32, {128, 32}, Numbers(128 * 32, 7)).tensor("lse", F32, {128});
  run.param("scale", Scalar::of_float(F32, 0.125))();
  Numbers o = run.values("o"), lse = run.values("lse");
  for (size_t row = 0; row < 128; ++row) {
    REQUIRE(o[row * 32 + 5] == (row < 64 ? 0 : 1));
    REQUIRE(lse[row] == (row < 64 ? -kInf : round_to(F32, std::log(64.0))));
  }
}

TEST_CASE("online softmax agrees with the plain one, in any order", "[interp][softmax]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  auto numbers = [&] {
    Numbers values(128 * 32);
    for (double& value : values) value = round_to(F16, normal(random));
    return values;
  };
  const Numbers q = numbers(), k = numbers(), v = numbers();
  const double scale = 0.25;
  for (bool reverse : {false, true}) {
    Run run(kAttention);
    run.tensor("mask", Bool, {2, 2}, {1, 1, 1, 0}).tensor("q", F16, {128, 32}, q);
    run.tensor("k", F16, {128, 32}, k).tensor("v", F16, {128, 32}, v);
    run.tensor("o", F32, {128, 32}).tensor("lse", F32, {128});
    run.param("scale", Scalar::of_float(F32, scale));
    run({.reverse_blocks = reverse, .reverse_selected = reverse});
    Numbers o = run.values("o"), lse = run.values("lse");
    for (size_t i = 0; i < 128; ++i) {
      const size_t keys = i < 64 ? 128 : 64;
      double total = 0;
      Numbers expected(32, 0);
      for (size_t j = 0; j < keys; ++j) {
        double s = 0;
        for (size_t d = 0; d < 32; ++d) s += q[i * 32 + d] * k[j * 32 + d];
        const double weight = std::exp(s * scale);
        total += weight;
        for (size_t d = 0; d < 32; ++d) expected[d] += weight * v[j * 32 + d];
      }
      REQUIRE(lse[i] == Approx(std::log(total)).epsilon(1e-5));
      for (size_t d = 0; d < 32; ++d)
        REQUIRE(o[i * 32 + d] == Approx(expected[d] / total).margin(2e-3));
    }
  }
}

TEST_CASE("softmax ops: infinities, NaN, scales", "[interp][softmax]") {
  Run run(one_block(R"(%scale = param {name = "scale"} : f32
    %s = tensor {name = "s"} : tensor f32[4, 2]
    %m = tensor {name = "m", role = inout} : tensor f32[4]
    %l = tensor {name = "l", role = inout} : tensor f32[4]
    %p = tensor {name = "p", role = output} : tensor f32[4, 2]
    %alpha = tensor {name = "alpha", role = output} : tensor f32[4]
    %acc = tensor {name = "acc", role = inout} : tensor f32[4, 1])",
                    R"(%ts = alloc : fragment f32[4, 2]
    %tm = alloc : fragment f32[4]
    %tl = alloc : fragment f32[4]
    %tp = alloc : fragment f32[4, 2]
    %ta = alloc : fragment f32[4]
    %tc = alloc : fragment f32[4, 1]
    copy %s, %ts
    copy %m, %tm
    copy %l, %tl
    copy %acc, %tc
    softmax_step %ts, %tm, %tl, %tp, %ta, %scale
    scale_rows %tc, %ta
    copy %tm, %m
    copy %tl, %l
    copy %tp, %p
    copy %ta, %alpha
    copy %tc, %acc)"));
  run.tensor("s", F32, {4, 2}, {-kInf, -kInf, 1, 3, -kInf, 2, -kInf, -kInf});
  run.tensor("m", F32, {4}, {-kInf, -kInf, 3, 5}).tensor("l", F32, {4}, {0, 0, 2, 4});
  run.tensor("p", F32, {4, 2})
      .tensor("alpha", F32, {4})
      .tensor("acc", F32, {4, 1}, {kNan, kNan, 6, 8});
  run.param("scale", Scalar::of_float(F32, 1))();
  auto f32 = [](double value) { return round_to(F32, value); };
  CHECK(run.values("m") == Numbers{-kInf, 3, 3, 5});
  CHECK(run.values("alpha") == Numbers{0, 0, 1, 1});
  CHECK(run.values("p") == Numbers{0, 0, f32(std::exp(-2.0)), 1, 0, f32(std::exp(-1.0)), 0, 0});
  CHECK(run.values("l") == Numbers{0, f32(1 + std::exp(-2.0)), f32(2 + std::exp(-1.0)), 4});
  CHECK(run.values("acc") == Numbers{0, 0, 6, 8});
  for (double scale : {0.0, -1.0, kInf, kNan}) {
    run.param("scale", Scalar::of_float(F32, scale));
    CHECK_THAT(run.error(), Contains("softmax_step: expected a finite scale above 0"));
  }
}
