// Every scalar op on every dtype that it takes, against the interpreter.
#include <catch2/catch.hpp>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr int64_t kCount = 77;  // several vectors and a rest at every level

Check numbers(DType dtype) {
  Check check;
  check.options.seed = random_seed();
  check.options.low = is_unsigned_int(dtype) ? 0 : -7;
  check.options.high = 9;
  if (is_float(dtype)) check.options.specials = 0.3;
  return check;
}

// y[i] = op(a[i], b[i]) by vectors, and again one element at a time.
std::string check_op(OpCode code, DType dtype, size_t operands, Check check, Attrs attrs = {},
                     std::optional<DType> result = {}) {
  const DType out = result.value_or(dtype);
  Program p("op");
  Value a = p.tensor("a", dtype, {kCount}), b = p.tensor("b", dtype, {kCount});
  Value c = p.tensor("c", dtype, {kCount}), y = p.tensor("y", out, {kCount}, "output");
  Value z = p.tensor("z", out, {kCount}, "output");
  auto body = [&](Value i, Value to) {
    std::vector<Value> in;
    for (size_t k = 0; k < operands; ++k) in.push_back(p.b.load(std::vector{a, b, c}[k], {i}));
    OpId op = p.b.emit(code, in, attrs, Type::scalar(out));
    p.b.store(p.kernel.op(op).result, to, {i});
  };
  p.launch([&] {
    p.b.parallel({kCount}, [&](std::span<const Value> i) { body(i[0], y); });
    RegionId region =
        p.b.add_region(p.b.emit(OpCode::For, {p.index(0), p.index(kCount), p.index(1)}));
    Value i = p.kernel.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(p.b, region);
    body(i, z);
  });
  return check_program(p.kernel, check);
}

}  // namespace

TEST_CASE("arithmetic of every dtype", "[scalar]") {
  for (DType dtype : kAllDTypes) {
    if (dtype == Bool) continue;
    INFO(name(dtype));
    for (OpCode code : {OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::Min, OpCode::Max}) {
      INFO(info(code).name);
      Check check = numbers(dtype);
      // Of two zeros min and max may give either.
      if (code == OpCode::Min || code == OpCode::Max) check.tolerance = 0;
      CHECK(check_op(code, dtype, 2, check) == "");
    }
    CHECK(check_op(OpCode::Neg, dtype, 1, numbers(dtype)) == "");
    CHECK(check_op(OpCode::Abs, dtype, 1, numbers(dtype)) == "");
    if (is_float(dtype)) CHECK(check_op(OpCode::Div, dtype, 2, numbers(dtype)) == "");
    // Real numbers: each op rounds once.
    if (is_float(dtype)) {
      Check check = numbers(dtype);
      check.options.integers = false;
      for (OpCode code : {OpCode::Add, OpCode::Mul, OpCode::Div})
        CHECK(check_op(code, dtype, 2, check) == "");
    }
  }
}

TEST_CASE("integer division, shifts and bits", "[scalar]") {
  for (DType dtype : kAllDTypes) {
    if (is_float(dtype)) continue;
    INFO(name(dtype));
    Check check = numbers(dtype);
    if (dtype != Bool) {
      check.options.high = 70;  // shifts out of range
      for (OpCode code : {OpCode::FloorDiv, OpCode::FloorMod, OpCode::Shl, OpCode::Shr}) {
        INFO(info(code).name);
        CHECK(check_op(code, dtype, 2, check) == "");
      }
      check.options.low = -2;
      check.options.high = 2;
      CHECK(check_op(OpCode::FloorDiv, dtype, 2, check) == "");
    }
    for (OpCode code : {OpCode::And, OpCode::Or, OpCode::Xor})
      CHECK(check_op(code, dtype, 2, check) == "");
    CHECK(check_op(OpCode::Not, dtype, 1, check) == "");
  }
}

TEST_CASE("the smallest integer divided by -1 wraps", "[scalar]") {
  for (DType dtype : {I8, I16, I32, I64})
    for (OpCode code : {OpCode::FloorDiv, OpCode::FloorMod}) {
      Program p("wrap");
      Value a = p.tensor("a", dtype, {20}), y = p.tensor("y", dtype, {20}, "output");
      const int64_t smallest = INT64_MIN >> (64 - 8 * size_of(dtype));
      p.launch([&] {
        p.b.parallel({20}, [&](std::span<const Value> i) {
          Value x = p.b.load(a, {i[0]});
          Value zero = p.b.constant(dtype, 0);
          Value dividend = p.b.binary(OpCode::Add, p.b.binary(OpCode::And, x, zero),
                                      p.b.constant(dtype, smallest));
          p.b.store(p.b.binary(code, dividend, x), y, {i[0]});
        });
      });
      Check check;
      check.options.low = -2;
      check.options.high = 1;
      CHECK(check_program(p.kernel, check) == "");
    }
}

// What LLVM knows to be 0 for some of a vector's elements, and to be no 0 for the others.
TEST_CASE("a divisor whose bits were shifted away", "[scalar]") {
  for (DType dtype : {I8, U8, I16, U16, I32, U32, I64, U64})
    for (OpCode code : {OpCode::FloorDiv, OpCode::FloorMod}) {
      INFO(name(dtype) << " " << info(code).name);
      Program p("shifted");
      Value a = p.tensor("a", dtype, {kCount}), b = p.tensor("b", dtype, {kCount});
      Value y = p.tensor("y", dtype, {kCount}, "output");
      p.launch([&] {
        p.b.parallel({kCount}, [&](std::span<const Value> i) {
          Value ones = p.b.constant(dtype, is_signed_int(dtype) ? -1 : (INT64_C(1) << 7) - 1);
          Value divisor = p.b.binary(OpCode::Shl, ones, p.b.load(b, {i[0]}));
          p.b.store(p.b.binary(code, p.b.load(a, {i[0]}), divisor), y, {i[0]});
        });
      });
      Check check;
      check.options.low = is_signed_int(dtype) ? -70 : 0;
      check.options.high = 70;
      CHECK(check_program(p.kernel, check) == "");
    }
}

TEST_CASE("compare and select", "[scalar]") {
  for (DType dtype : kAllDTypes) {
    INFO(name(dtype));
    for (const char* kind : {"eq", "ne", "lt", "le", "gt", "ge"}) {
      Attrs attrs;
      attrs.set("kind", std::string(kind));
      Check check = numbers(dtype);
      check.options.high = 2;
      check.options.low = -2;
      CHECK(check_op(OpCode::Compare, dtype, 2, check, attrs, Bool) == "");
    }
    Program p("select");
    Value a = p.tensor("a", dtype, {kCount}), b = p.tensor("b", dtype, {kCount});
    Value c = p.tensor("c", Bool, {kCount}), y = p.tensor("y", dtype, {kCount}, "output");
    p.launch([&] {
      p.b.parallel({kCount}, [&](std::span<const Value> i) {
        Value chosen = p.b.select(p.b.load(c, {i[0]}), p.b.load(a, {i[0]}), p.b.load(b, {i[0]}));
        p.b.store(chosen, y, {i[0]});
      });
    });
    CHECK(check_program(p.kernel, numbers(dtype)) == "");
  }
}

TEST_CASE("fma, floor, ceil, sqrt and the transcendental functions", "[scalar]") {
  for (DType dtype : {F16, BF16, F32, F64}) {
    INFO(name(dtype));
    Check real = numbers(dtype);
    real.options.integers = false;
    if (size_of(dtype) >= 4) CHECK(check_op(OpCode::Fma, dtype, 3, real) == "");
    for (OpCode code : {OpCode::Floor, OpCode::Ceil, OpCode::Sqrt})
      CHECK(check_op(code, dtype, 1, real) == "");
    // Within 2 ulp of f32; a value at the edge of two f16 may fall to the other side.
    real.tolerance = dtype == F64 ? 1e-15 : dtype == F32 ? 3e-7 : dtype == F16 ? 1e-3 : 8e-3;
    for (OpCode code :
         {OpCode::Exp, OpCode::Exp2, OpCode::Log, OpCode::Log2, OpCode::Rsqrt, OpCode::Tanh})
      for (bool fast : {false, true}) {
        INFO(info(code).name);
        Attrs attrs;
        attrs.set("fast", fast);
        CHECK(check_op(code, dtype, 1, real, attrs) == "");
      }
  }
}

TEST_CASE("casts between all dtypes", "[scalar]") {
  for (DType from : kAllDTypes) {
    Program p("casts");
    Value a = p.tensor("a", from, {kCount});
    std::vector<Value> outputs;
    for (DType to : kAllDTypes)
      outputs.push_back(p.tensor("y_" + std::string(name(to)), to, {kCount}, "output"));
    p.launch([&] {
      p.b.parallel({kCount}, [&](std::span<const Value> i) {
        Value x = p.b.load(a, {i[0]});
        for (size_t k = 0; k < outputs.size(); ++k)
          p.b.store(p.b.cast(x, kAllDTypes[k]), outputs[k], {i[0]});
      });
    });
    // Small integers, real numbers, and the whole range: rounding, saturation, wrapping, values
    // that are right only if rounded in one step.
    std::vector<Check> checks(8, numbers(from));
    checks[1].options.integers = false;
    for (size_t i = 2; i < checks.size(); ++i) {
      constexpr int kBits[] = {9, 16, 18, 31, 40, 62};
      checks[i].options.high = (int64_t{1} << kBits[i - 2]) + 1;
      checks[i].options.low = -checks[i].options.high;
    }
    INFO(name(from));
    CHECK(check_program(p.kernel, checks) == "");
  }
}

TEST_CASE("every bit pattern of the small floats survives a load and a store", "[scalar]") {
  for (DType dtype : {F16, BF16, E4M3, E5M2}) {
    const int64_t count = size_of(dtype) == 2 ? 65536 : 256;
    Program p("bits");
    Value x = p.tensor("x", dtype, {count}), y = p.tensor("y", dtype, {count}, "output");
    Value wide = p.tensor("wide", F32, {count}, "output");
    p.launch({p.index(count / 256)}, [&](std::span<const Value> block) {
      Value first = p.b.binary(OpCode::Mul, block[0], p.index(256));
      p.copy(p.b.slice(x, {first}, {256}), p.b.slice(y, {first}, {256}));
      p.copy(p.b.slice(x, {first}, {256}), p.b.slice(wide, {first}, {256}));
    });
    for (const Level& level : levels()) {
      std::vector<uint16_t> in16(65536), out16(65536);
      std::vector<uint8_t> in8(256), out8(256);
      std::vector<float> values(static_cast<size_t>(count));
      for (size_t i = 0; i < in16.size(); ++i) in16[i] = static_cast<uint16_t>(i);
      for (size_t i = 0; i < in8.size(); ++i) in8[i] = static_cast<uint8_t>(i);
      const bool wide_bits = size_of(dtype) == 2;
      Bindings bindings;
      void* source = wide_bits ? static_cast<void*>(in16.data()) : in8.data();
      void* result = wide_bits ? static_cast<void*>(out16.data()) : out8.data();
      bindings.tensors["x"] = Memory::contiguous(source, dtype, {count});
      bindings.tensors["y"] = Memory::contiguous(result, dtype, {count});
      bindings.tensors["wide"] = Memory::contiguous(values.data(), F32, {count});
      level.compile(p.kernel)(bindings);
      int64_t wrong = 0;
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const double expected = wide_bits ? from_bits16(dtype, in16[i]) : from_bits8(dtype, in8[i]);
        const double got = wide_bits ? from_bits16(dtype, out16[i]) : from_bits8(dtype, out8[i]);
        auto same = [&](double value) {
          return std::isnan(expected)
                     ? std::isnan(value)
                     : value == expected && std::signbit(value) == std::signbit(expected);
        };
        wrong += !same(got) || !same(values[i]);
      }
      INFO(name(dtype) << " " << level.name);
      CHECK(wrong == 0);
    }
  }
}
