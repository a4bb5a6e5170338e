// What a GPU thread computes for every scalar op on every dtype, bit for bit against the
// interpreter, without a GPU: straight_line.h runs the LLVM code that we emit.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "codegen/nvptx_ops_impl.h"
#include "ir/error.h"
#include "tests/codegen/device_ops.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"
#include "tests/codegen/straight_line.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

std::string text(const Scalar& value) {
  return is_float(value.dtype) ? fmt::format("{} ({:#x})", value.f, testing::to_bits(value))
                               : fmt::format("{}", value.i);
}

bool same(OpCode code, const Scalar& expected, const Scalar& got) {
  if (!is_float(expected.dtype)) return expected.i == got.i;
  if (std::isnan(expected.f)) return std::isnan(got.f);
  const bool any_zero = code == OpCode::Min || code == OpCode::Max;
  return expected.f == got.f && (any_zero || std::signbit(expected.f) == std::signbit(got.f));
}

// What fast kernels may take for 0.
bool is_flushed(const Scalar& value) {
  return is_float(value.dtype) && value.f != 0 && std::fabs(value.f) < 0x1p-126;
}

// The smallest normal number can be what a subnormal f32 rounds to, as 2^-126 (1 - 2^-8) does to
// bf16: flushed before it is rounded, it is 0.
bool may_round_from_flushed(const Scalar& value) {
  return is_float(value.dtype) && std::fabs(value.f) == 0x1p-126;
}

// The first value for which the code and the interpreter differ; empty if none.
std::string difference(const Operation& operation, StraightLine& code,
                       const std::vector<Scalar>& in, bool fast) {
  std::vector<uint64_t> arguments;
  for (const Scalar& value : in) arguments.push_back(testing::to_bits(value));
  const Scalar expected = operation.expected(in);
  if (fast && (is_flushed(expected) || std::any_of(in.begin(), in.end(), is_flushed))) return "";
  const Scalar got = testing::from_bits(operation.result(), code(arguments));
  if (same(operation.code(), expected, got)) return "";
  if (fast && may_round_from_flushed(expected) && got.f == 0) return "";
  std::string operands;
  for (const Scalar& value : in) operands += fmt::format(" {}", text(value));
  return fmt::format("{} of{}: expected {}, got {}", operation.name(), operands, text(expected),
                     text(got));
}

// All operands of 8 bits, and the single ones of 16; else random ones.
template <class Try>
void for_all_operands(const Operation& operation, Values& values, Try&& attempt) {
  const std::vector<DType>& types = operation.operands();
  const size_t bits = 8 * size_of(types[0]) * types.size();
  if (types[0] != Bool && bits <= 16) {
    for (uint64_t i = 0; i < uint64_t{1} << bits; ++i) {
      std::vector<Scalar> in = {testing::from_bits(types[0], i)};
      if (types.size() == 2) in.push_back(testing::from_bits(types[1], i >> 8));
      if (!attempt(in)) return;
    }
    return;
  }
  const bool rounds = operation.code() == OpCode::Cast && is_float(operation.result());
  for (int i = 0; i < 4000; ++i) {
    std::vector<Scalar> in;
    for (DType dtype : types) in.push_back(values.draw(dtype));
    if (rounds && i % 2 && types[0] != Bool) in[0] = values.near_tie(types[0], operation.result());
    if (!attempt(in)) return;
  }
}

// Of the code as we emit it, and after LLVM has cleaned it up.
void check_exact(const std::vector<Operation>& operations, const std::string& target,
                 bool fast = false) {
  DeviceCode device(target, fast);
  std::vector<llvm::Function*> functions;
  for (const Operation& operation : operations)
    functions.push_back(&device.function(operation.computation()));
  for (const char* stage : {"emitted", "cleaned up"}) {
    Values values(random_seed());
    for (size_t i = 0; i < operations.size(); ++i) {
      StraightLine code(*functions[i]);
      std::string found;
      for_all_operands(operations[i], values, [&](const std::vector<Scalar>& in) {
        found = difference(operations[i], code, in, fast);
        return found.empty();
      });
      INFO(target << (fast ? ", fast, " : ", ") << stage);
      CHECK(found == "");
    }
    device.clean_up();
  }
}

}  // namespace

TEST_CASE("a GPU thread's arithmetic is the interpreter's", "[nvptx]") {
  for (DType dtype : kAllDTypes) {
    check_exact(exact_operations(dtype), "sm_80");
    if (size_of(dtype) == 1 && is_float(dtype)) check_exact(exact_operations(dtype), "sm_90");
  }
}

TEST_CASE("a GPU thread's casts are the interpreter's", "[nvptx]") {
  for (DType from : kAllDTypes) {
    check_exact(casts(from), "sm_80");
    check_exact(casts(from), "sm_89");
  }
}

TEST_CASE("what flushes subnormals changes nothing else", "[nvptx]") {
  for (DType dtype : {BF16, F32, F64, E5M2}) {
    check_exact(exact_operations(dtype), "sm_80", true);
    check_exact(casts(dtype), "sm_80", true);
  }
}

TEST_CASE("two f32 are rounded and packed, the first in the low half", "[nvptx]") {
  for (DType to : {F16, BF16}) {
    DeviceCode device("sm_80");
    const Computation pack = {"pack", {F32, F32}, I32, [&](auto& b, auto in) {
                                return nvptx::pack_rounded(b, in[0], in[1], to);
                              }};
    StraightLine code(device.function(pack));
    const uint64_t in[] = {testing::to_bits(Scalar::of_float(F32, 1.5)),
                           testing::to_bits(Scalar::of_float(F32, -3e38))};
    CHECK(code(in) == (to_bits16(to, 1.5) | uint64_t{to_bits16(to, round_to(to, -3e38))} << 16));
    device.kernel("kernel", std::span(&pack, 1));
    CHECK(occurrences(device.ptx(), to == F16 ? "cvt.rn.f16x2.f32" : "cvt.rn.bf16x2.f32") >= 1);
  }
}

TEST_CASE("every scalar op is PTX that ptxas takes, without calls and local memory", "[nvptx]") {
  for (const char* target : {"sm_80", "sm_89", "sm_90", "sm_120"}) {
    DeviceCode device(target);
    for (DType dtype : kAllDTypes) {
      std::vector<Computation> all;
      for (const Operation& operation : exact_operations(dtype))
        all.push_back(operation.computation());
      for (const Operation& operation : casts(dtype)) all.push_back(operation.computation());
      for (bool fast : {false, true})
        if (dtype <= F64)
          for (const Operation& operation : functions(dtype, fast))
            all.push_back(operation.computation());
      device.kernel(fmt::format("ops_{}", name(dtype)), all);
    }
    const std::string ptx = device.ptx();
    INFO(target);
    CHECK(ptx.find("call") == std::string::npos);
    CHECK(ptx.find(".local") == std::string::npos);
    const bool has_fp8 = std::string_view(target) != "sm_80";
    CHECK((ptx.find("cvt.rn.satfinite.e4m3x2.f32") != std::string::npos) == has_fp8);
    CHECK(assembly_fault(ptx, target) == "");
  }
}

TEST_CASE("a softmax element costs one fma and one ex2", "[nvptx]") {
  DeviceCode device("sm_80", true);
  Attrs fast;
  fast.set("fast", true);
  const Operation mul(OpCode::Mul, {F32, F32}, F32, fast), sub(OpCode::Sub, {F32, F32}, F32, fast);
  const Operation exp2(OpCode::Exp2, {F32}, F32, fast);
  const Computation element = {
      "element", {F32, F32, F32}, F32, [&](auto& b, auto in) {
        const nvptx::Val product[] = {mul.computation().emit(b, in.first(2)), in[2]};
        const nvptx::Val difference[] = {sub.computation().emit(b, product)};
        return exp2.computation().emit(b, difference);
      }};
  device.kernel("softmax", std::span(&element, 1));
  const std::string ptx = device.ptx();
  INFO(ptx);
  CHECK(occurrences(ptx, "fma.rn.ftz.f32") == 1);
  CHECK(occurrences(ptx, "ex2.approx.ftz.f32") == 1);
  CHECK(occurrences(ptx, "mul") + occurrences(ptx, "sub.") + occurrences(ptx, "select") == 0);
}

TEST_CASE("intrinsics that a target lacks, or that are not listed, are named", "[nvptx]") {
  auto message = [](const char* target, llvm::Intrinsic::ID id) {
    llvm::LLVMContext context;
    llvm::Module module("m", context);
    nvptx::Builder b(module, gpu_target(target), false);
    try {
      b.call(id, {});
    } catch (const InternalError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using Catch::Contains;
  CHECK_THAT(message("sm_80", llvm::Intrinsic::nvvm_ff_to_e4m3x2_rn),
             Contains("llvm.nvvm.ff.to.e4m3x2.rn") && Contains("sm_89") && Contains("sm_80"));
  CHECK_THAT(message("sm_90", llvm::Intrinsic::exp), Contains("llvm.exp") && Contains("list"));
}
