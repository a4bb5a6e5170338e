// gemm_async, the softmax between two of them and the way out of their accumulators: what PTX they
// become, that ptxas keeps it in registers and the products under way, and on a GPU what they give.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/layout/shared.h"
#include "ir/layout/text.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr const char* kTarget = "sm_90a";

std::string panels(int64_t rows, int64_t columns, int panel) {
  return layout_text(swizzled({rows, columns}, 2, panel));
}
std::string accumulator(int64_t m, int64_t n, int64_t groups) {
  return layout_text(wgmma_accumulator(m, n, groups));
}
int64_t bytes_of(const std::string& layout) {
  return (parse_layout(layout).extent(Resource::Offset) * 2 + 1023) / 1024 * 1024;
}

// y = a · b, added to c or not.
struct Product {
  int64_t m, n, k;
  int64_t groups = 1;
  DType dtype = F16;
  bool transpose_a = false, transpose_b = true, registers = false;
  int panel_a = 128, panel_b = 128;
  std::string clear;  // none; "yes": always; "fresh": as the parameter says

  std::string about() const {
    return fmt::format("{}x{}x{} {}, {} groups{}{}{}, panels of {} and {} {}", m, n, k, name(dtype),
                       groups, transpose_a ? ", a transposed" : "",
                       transpose_b ? ", b transposed" : "", registers ? ", a in registers" : "",
                       panel_a, panel_b, clear);
  }
  std::string text() const {
    const int64_t ar = transpose_a ? k : m, ac = transpose_a ? m : k;
    const int64_t br = transpose_b ? n : k, bc = transpose_b ? k : n;
    const std::string a = panels(ar, ac, panel_a), b = panels(br, bc, panel_b);
    const std::string of_c = accumulator(m, n, groups);
    const std::string tile =
        registers ? fmt::format("alloc {{layout = \"{}\"}} : fragment", accumulator(m, k, groups))
                  : fmt::format("alloc {{layout = \"{}\", offset = 0}} : shared", a);
    return fmt::format(
        R"(kernel @product {{target = "sm_90a"}} {{
  %a = tensor {{name = "a"}} : tensor {0}[{1}, {2}]
  %b = tensor {{name = "b"}} : tensor {0}[{3}, {4}]
  %c = tensor {{name = "c"}} : tensor f32[{5}, {6}]
  %y = tensor {{name = "y", role = output}} : tensor f32[{5}, {6}]
  %flag = param {{name = "fresh"}} : i32
  %zero = const {{value = 0}} : i32
  %blocks = const {{value = 1}} : i32
  launch %blocks {{warps = {7}, shared = {8}}} do |%block: i32| {{
    %yes = const {{value = true}} : bool
    %fresh = compare %flag, %zero {{kind = ne}} : bool
    %ta = {9} {0}[{1}, {2}]
    %tb = alloc {{layout = "{10}", offset = {11}}} : shared {0}[{3}, {4}]
    %acc = alloc {{layout = "{12}"}} : fragment f32[{5}, {6}]
    copy %a, %ta
    copy %b, %tb
    copy %c, %acc
    barrier
    %token = gemm_async %ta, %tb, %acc{13} {{transpose_a = {14}, transpose_b = {15}}} : token
    await %token
    copy %acc, %y
  }}
}}
)",
        name(dtype), ar, ac, br, bc, m, n, 4 * groups, bytes_of(a) + bytes_of(b), tile, b,
        bytes_of(a), of_c, clear.empty() ? "" : ", %" + clear, transpose_a, transpose_b);
  }
};

std::string compiled(const std::string& text) {
  const Kernel kernel = parse(text);
  verify(kernel);
  return compile_ptx(kernel).ptx;
}

// From what the interpreter gives: on a GPU if that is the device; else on the host, and of the PTX
// in the emulator.
std::string difference(const std::string& text, std::map<std::string, Scalar> params) {
  Kernel kernel = parse(text);
  Check check;
  check.params = std::move(params);
  check.tolerance = 2e-2;
  if (!on_host()) return check_program(kernel, check);
  if (std::string fault = emulation_fault(kernel, kTarget, check); !fault.empty()) return fault;
  run_passes(kernel, passes_for(kernel, Tier::Host));
  return check_program(kernel, check);
}

void check_product(const Product& product) {
  INFO(product.about());
  const std::string ptx = compiled(product.text());
  INFO(ptx);
  const int64_t wide = product.n / 256, rest = product.n % 256;
  const int64_t times = product.m / 64 / product.groups * (product.k / 16);
  const std::string type(name(product.dtype));
  const auto instructions = [&](int64_t n) {
    return static_cast<int64_t>(occurrences(
        ptx, fmt::format("wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} ", n, type, type)));
  };
  CHECK(instructions(256) == wide * times);
  if (rest) CHECK(instructions(rest) == times);
  const std::string majors = (product.registers     ? ""
                              : product.transpose_a ? ", 1"
                                                    : ", 0") +
                             std::string(product.transpose_b ? ", 0;" : ", 1;");
  CHECK(static_cast<int64_t>(occurrences(ptx, "p, 1, 1" + majors)) == (wide + (rest != 0)) * times);
  // Tiles of c with a first instruction each that does not add, or decides.
  const auto tiles = static_cast<size_t>(product.m / 64 / product.groups * (wide + (rest != 0)));
  CHECK(occurrences(ptx, "setp.ne.b32 p, 0, 0;") == (product.clear == "yes" ? tiles : 0));
  CHECK(occurrences(ptx, "setp.ne.b32 p, %r") == (product.clear == "fresh" ? tiles : 0));
  CHECK(occurrences(ptx, "wgmma.fence") == 1);
  CHECK(occurrences(ptx, "wgmma.commit_group") == 1);
  CHECK(occurrences(ptx, "redux.sync.max") == (product.groups > 1 && !product.registers));
  CHECK(assembly_fault(ptx, kTarget) == "");
  for (int fresh : {0, 1})
    CHECK(difference(product.text(), {{"fresh", Scalar::of_int(I32, fresh)}}) == "");
}

// Attention of one tile over blocks of 64 keys, as a late program has it: scores, the step, and the
// weights in registers times the values.
std::string attention(int64_t groups, DType dtype, const std::string& exact,
                      const std::string& l_shape, const std::string& l_layout) {
  const int64_t rows = 64 * groups;
  const std::string of_rows = layout_text(
      parse_layout(groups == 1 ? "[64] reg (8) lane (0) (0) (1) (2) (4) warp (16) (32)"
                               : "[128] reg (8) lane (0) (0) (1) (2) (4) warp (16) (32) (64)"));
  const std::string reduced = l_shape.find(',') == std::string::npos
                                  ? "copy %l, %sum"
                                  : "reduce %l, %sum {kind = sum, dim = 1}";
  return fmt::format(
      R"(kernel @attention {{fast_math = true, target = "sm_90a"}} {{
  %q = tensor {{name = "q"}} : tensor {0}[{1}, 64]
  %k = tensor {{name = "k"}} : tensor {0}[256, 64]
  %v = tensor {{name = "v"}} : tensor {0}[256, 64]
  %y = tensor {{name = "y", role = output}} : tensor {0}[{1}, 64]
  %scale = param {{name = "scale"}} : f32
  %when = param {{name = "exact"}} : i32
  %zero = const {{value = 0}} : i32
  %one = const {{value = 1}} : i32
  launch %one {{warps = {2}, shared = {3}}} do |%block: i32| {{
    %edge = const {{value = 64}} : i32
    %end = const {{value = 256}} : i32
    %yes = const {{value = true}} : bool
    %none = const {{value = 0.0}} : f32
    %low = const {{value = -inf}} : f32
    %asked = compare %when, %zero {{kind = ne}} : bool
    %sq = alloc {{layout = "{4}", offset = 0}} : shared {0}[{1}, 64]
    %sk = alloc {{layout = "{5}", offset = {6}}} : shared {0}[64, 64]
    %sv = alloc {{layout = "{5}", offset = {7}}} : shared {0}[64, 64]
    %s = alloc {{layout = "{8}"}} : fragment f32[{1}, 64]
    %p = alloc {{layout = "{8}"}} : fragment {0}[{1}, 64]
    %acc = alloc {{layout = "{8}"}} : fragment f32[{1}, 64]
    %m = alloc {{layout = "{9}"}} : fragment f32[{1}]
    %alpha = alloc {{layout = "{9}"}} : fragment f32[{1}]
    %sum = alloc {{layout = "{9}"}} : fragment f32[{1}]
    %l = alloc {{layout = "{11}"}} : fragment f32[{10}]
    copy %q, %sq
    fill %low, %m
    fill %none, %l
    fill %none, %acc
    for %zero, %end, %edge do |%at: i32| {{
      %kb = slice %k, %at, %zero : view global {0}[64, 64]
      %vb = slice %v, %at, %zero : view global {0}[64, 64]
      barrier
      copy %kb, %sk
      copy %vb, %sv
      barrier
      %first = compare %at, %zero {{kind = eq}} : bool
      %exact = or %asked, %first : bool
      %qk = gemm_async %sq, %sk, %s, %yes {{transpose_b = true}} : token
      await %qk
      softmax_step %s, %m, %l, %p, %alpha, %scale{12}
      scale_rows %acc, %alpha
      %pv = gemm_async %p, %sv, %acc : token
      await %pv
    }}
    {13}
    parallel {{extents = [{1}, 64], layout = "{8}"}} do |%i: i32, %j: i32| {{
      %e = load %acc, %i, %j : f32
      %d = load %sum, %i : f32
      %n = div %e, %d {{fast = true}} : f32
      store %n, %acc, %i, %j
    }}
    copy %acc, %sq
    barrier
    copy %sq, %y
  }}
}}
)",
      name(dtype), rows, 4 * groups, rows * 128 + 2 * 64 * 128, panels(rows, 64, 128),
      panels(64, 64, 128), rows * 128, rows * 128 + 64 * 128, accumulator(rows, 64, groups),
      of_rows, l_shape, l_layout, exact, reduced);
}
std::string attention(int64_t groups, DType dtype, const std::string& exact) {
  return attention(groups, dtype, exact, fmt::format("{}, 4", 64 * groups),
                   groups == 1 ? "[64, 4] reg (8, 0) lane (0, 1) (0, 2) (1, 0) (2, 0) (4, 0) "
                                 "warp (16, 0) (32, 0)"
                               : "[128, 4] reg (8, 0) lane (0, 1) (0, 2) (1, 0) (2, 0) (4, 0) "
                                 "warp (16, 0) (32, 0) (64, 0)");
}

void check_values(const std::string& text) {
  for (int exact : {0, 1})
    for (double scale : {0.125, 8.0})
      CHECK(difference(text, {{"exact", Scalar::of_int(I32, exact)},
                              {"scale", Scalar::of_float(F32, scale)}}) == "");
}

}  // namespace

TEST_CASE("wgmma: every major, in panels of every width", "[wgmma]") {
  for (int panel : {128, 64, 32})
    for (int transposes = 0; transposes < 4; ++transposes)
      check_product({64, 128, 64, 1, F16, transposes % 2 != 0, transposes / 2 != 0, false, panel,
                     panel == 128 ? 32 : panel * 2});
}

TEST_CASE("wgmma: widths, depths and rows", "[wgmma]") {
  for (int64_t n : {8, 24, 200, 256, 320})
    check_product({64, n, 32, 1, BF16, false, true, false, 64, 64});
  check_product({64, 80, 16, 1, BF16, false, false, false, 32, 32, "yes"});
  check_product({128, 96, 144, 1, F16, false, true, false, 32, 32, "fresh"});
  check_product({128, 64, 128, 2, F16, true, false, false, 128, 128, "fresh"});
  check_product({256, 64, 64, 2, F16, false, true, false, 128, 128, "yes"});
  check_product({128, 128, 128, 2, F16, false, true, false, 128, 128, "yes"});
}

TEST_CASE("wgmma: a in registers", "[wgmma]") {
  for (bool transpose : {false, true}) {
    check_product({64, 64, 96, 1, F16, false, transpose, true, 64, 64});
    check_product({128, 128, 128, 2, BF16, false, transpose, true, 128, 128, "fresh"});
    check_product({128, 64, 32, 1, F16, false, transpose, true, 64, 64, "yes"});
  }
}

TEST_CASE("wgmma: operands in parts of one tile, products that share an accumulator", "[wgmma]") {
  const std::string text = fmt::format(
      R"(kernel @parts {{target = "sm_90a"}} {{
  %ab = tensor {{name = "ab"}} : tensor f16[192, 128]
  %y = tensor {{name = "y", role = output}} : tensor f32[64, 64]
  %zero = const {{value = 0}} : i32
  %one = const {{value = 1}} : i32
  launch %one {{warps = 4, shared = 49152}} do |%block: i32| {{
    %tile = alloc {{layout = "{}", offset = 0}} : shared f16[192, 128]
    %acc = alloc {{layout = "{}"}} : fragment f32[64, 64]
    copy %ab, %tile
    barrier
    %yes = const {{value = true}} : bool
    %middle = const {{value = 64}} : i32
    %low = const {{value = 128}} : i32
    %quarter = const {{value = 32}} : i32
    %a0 = slice %tile, %zero, %quarter : view shared f16[64, 32]
    %a1 = slice %tile, %zero, %middle : view shared f16[64, 64]
    %b0 = slice %tile, %middle, %quarter : view shared f16[64, 32]
    %b1 = slice %tile, %low, %middle : view shared f16[64, 64]
    %t0 = gemm_async %a0, %b0, %acc, %yes {{transpose_b = true}} : token
    %t1 = gemm_async %a1, %b1, %acc : token
    await %t0
    await %t1
    copy %acc, %y
  }}
}}
)",
      panels(192, 128, 128), accumulator(64, 64, 1));
  const std::string ptx = compiled(text);
  INFO(ptx);
  CHECK(occurrences(ptx, "wgmma.mma_async") == 6);
  CHECK(occurrences(ptx, "wgmma.wait_group.sync.aligned") == 2);
  CHECK(assembly_fault(ptx, kTarget) == "");
  CHECK(difference(text, {}) == "");
}

TEST_CASE("wgmma: a product awaited under a condition while another is under way", "[wgmma]") {
  const std::string text = fmt::format(
      R"(kernel @nested {{target = "sm_90a"}} {{
  %ab = tensor {{name = "ab"}} : tensor f16[64, 64]
  %y = tensor {{name = "y", role = output}} : tensor f32[64, 64]
  %z = tensor {{name = "z", role = output}} : tensor f32[64, 64]
  %flag = param {{name = "more"}} : i32
  %zero = const {{value = 0}} : i32
  %one = const {{value = 1}} : i32
  launch %one {{warps = 4, shared = 8192}} do |%block: i32| {{
    %tile = alloc {{layout = "{0}", offset = 0}} : shared f16[64, 64]
    %first = alloc {{layout = "{1}"}} : fragment f32[64, 64]
    %second = alloc {{layout = "{1}"}} : fragment f32[64, 64]
    %half = const {{value = 0.5}} : f32
    fill %half, %first
    fill %half, %second
    copy %ab, %tile
    barrier
    %more = compare %flag, %zero {{kind = ne}} : bool
    %t0 = gemm_async %tile, %tile, %first : token
    if %more do {{
      %t1 = gemm_async %tile, %tile, %second {{transpose_b = true}} : token
      await %t1
    }}
    await %t0
    copy %first, %y
    copy %second, %z
  }}
}}
)",
      panels(64, 64, 128), accumulator(64, 64, 1));
  const std::string ptx = compiled(text);
  INFO(ptx);
  CHECK(occurrences(ptx, "wgmma.wait_group.sync.aligned") == 2);
  CHECK(assembly_fault(ptx, kTarget) == "");
  for (int64_t more : {0, 1}) CHECK(difference(text, {{"more", Scalar::of_int(I32, more)}}) == "");
}

TEST_CASE("wgmma: instructions are as wide as a thread's registers allow", "[wgmma]") {
  const Product product{256, 256, 16, 4, F16, false, false, false, 32, 32};
  const std::string ptx = compiled(product.text());
  INFO(ptx);
  CHECK(occurrences(ptx, "m64n192k16") == 1);
  CHECK(occurrences(ptx, "m64n64k16") == 1);
  CHECK(difference(product.text(), {{"fresh", Scalar::of_int(I32, 0)}}) == "");

  // Two blocks would fit a multiprocessor, but begin with 128 registers a thread.
  const std::string role = compiled(fmt::format(
      R"(kernel @role {{target = "sm_90a"}} {{
  %y = tensor {{name = "y", role = output}} : tensor f32[64, 240]
  %one = const {{value = 1}} : i32
  launch %one {{warps = 8, shared = 12288}} do |%block: i32| {{
    roles {{names = "idle work", warps = [4, 4], registers = [24, 168]}} do {{
    }} do {{
      %zero = const {{value = 0.0}} : f32
      %a = alloc {{layout = "{}", offset = 0}} : shared f16[64, 16]
      %b = alloc {{layout = "{}", offset = 2048}} : shared f16[240, 16]
      %acc = alloc {{layout = "{}"}} : fragment f32[64, 240]
      fill %zero, %a
      fill %zero, %b
      fill %zero, %acc
      barrier
      %token = gemm_async %a, %b, %acc {{transpose_b = true}} : token
      await %token
      copy %acc, %y
    }}
  }}
}}
)",
      panels(64, 16, 32), panels(240, 16, 32), accumulator(64, 240, 1)));
  INFO(role);
  CHECK(occurrences(role, ".minnctapersm 1") == 1);
  CHECK(assembly_fault(role, kTarget) == "");
}

TEST_CASE("wgmma: what cannot be an operand is refused with what it must be", "[wgmma]") {
  const auto refused = [](Product product, const std::string& from, const std::string& to,
                          const std::string& message) {
    std::string text = product.text();
    if (!from.empty()) {
      REQUIRE(text.find(from) != std::string::npos);
      text.replace(text.find(from), from.size(), to);
    }
    INFO(text);
    CHECK_THROWS_WITH(compile_ptx(parse(text)), Catch::Contains(message));
  };
  const Product good{64, 64, 64};
  refused(good, panels(64, 64, 128), layout_text(row_major({64, 64})), "in swizzled panels");
  refused(good, "offset = 8192", "offset = 8320", "a multiple of 1024");
  refused(good, "target = \"sm_90a\"", "target = \"sm_90\"", "only sm_90a");
  refused(good, accumulator(64, 64, 1), layout_text(blocked({64, 64}, 4, 4)), "accumulators");
  refused(good, "await %token", "", "not awaited");
  Product registers = good;
  registers.registers = true;
  refused(registers, accumulator(64, 64, 1), layout_text(blocked({64, 64}, 4, 2)), "operand A");
}

TEST_CASE("softmax_step: a guess in one piece, the weights packed for the next product",
          "[wgmma]") {
  for (DType dtype : {F16, BF16}) {
    for (int64_t groups : {1, 2}) {
      INFO(name(dtype) << ", " << groups << " groups");
      const std::string text = attention(groups, dtype, ", %exact");
      const std::string ptx = compiled(text);
      INFO(ptx);
      // 32 elements a thread, by the guess and by the full step, which has two more for alpha.
      CHECK(occurrences(ptx, "ex2.approx.ftz.f32") == 66);
      CHECK(occurrences(ptx, fmt::format("cvt.rn.{}x2.f32", name(dtype))) == 48);
      CHECK(occurrences(ptx, "vote.sync.any.pred") == 2);
      CHECK(occurrences(ptx, "shfl.sync.bfly") == 8);
      CHECK(occurrences(ptx, "prmt") == 0);
      CHECK(occurrences(ptx, "stmatrix.sync.aligned.m8n8.x4") == 4);
      CHECK(assembly_fault(ptx, kTarget) == "");
      check_values(text);
    }
  }
}

TEST_CASE("softmax_step: without a guess, and with sums of whole rows", "[wgmma]") {
  const std::string exact = attention(1, F16, "");
  const std::string ptx = compiled(exact);
  CHECK(occurrences(ptx, "ex2.approx.ftz.f32") == 34);
  CHECK(assembly_fault(ptx, kTarget) == "");
  check_values(exact);
  const std::string rows =
      attention(1, F16, ", %exact", "64", "[64] reg (8) lane (0) (0) (1) (2) (4) warp (16) (32)");
  CHECK(assembly_fault(compiled(rows), kTarget) == "");
  check_values(rows);
}

TEST_CASE("packed weights are elements to other ops", "[wgmma]") {
  std::string text = attention(1, F16, ", %exact");
  const std::string before = "%pv = gemm_async";
  text.insert(
      text.find(before),
      fmt::format(R"(parallel {{extents = [64, 64], layout = "{}"}} do |%pi: i32, %pj: i32| {{
        %w = load %p, %pi, %pj : f16
        %twice = add %w, %w : f16
        store %twice, %p, %pi, %pj
      }}
      )",
                  accumulator(64, 64, 1)));
  CHECK(assembly_fault(compiled(text), kTarget) == "");
  check_values(text);
}

TEST_CASE("wgmma: whole kernels of the last stage stay in registers, nothing serialised",
          "[wgmma][late]") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(late_folder(KILN_TESTS_DIR))) {
    const std::string name = entry.path().filename();
    INFO(name);
    const Kernel kernel = late_kernel(KILN_TESTS_DIR, name);
    verify(kernel);
    CHECK(assembly_fault(compile_ptx(kernel).ptx, kTarget) == "");
    ++files;
  }
  CHECK(files >= 6);
}
