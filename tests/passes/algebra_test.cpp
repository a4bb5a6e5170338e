// Random scalar programs: what the exact passes leave must give the same bits.
#include <catch2/catch.hpp>
#include <random>

#include "ir/builder.h"
#include "ir/print.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

// Loads an element of each type, computes, stores every result.
class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed), kernel_("random"), build_(kernel_) {
    Attrs attrs;
    attrs.set("name", std::string("n"));
    Value n = kernel_.op(build_.emit(OpCode::Dim, {}, attrs, Type::scalar(I32))).result;
    for (DType dtype : kAllDTypes) {
      inputs_.push_back(tensor("in_", "input", dtype, n, {kDynamic}));
      outputs_.push_back(tensor("out_", "output", dtype, n, {kDynamic, kSteps}));
    }
    RegionId region = build_.add_region(build_.emit(OpCode::Launch, {n}));
    Value block = kernel_.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build_, region);
    for (Value input : inputs_) pool_.push_back(build_.load(input, {block}));
    for (int i = 0; i < kSteps; ++i) {
      pool_.push_back(step());
      Value output = outputs_[static_cast<size_t>(kernel_.type(pool_.back()).dtype)];
      build_.store(pool_.back(), output, {block, build_.constant(I32, i)});
    }
  }
  const Kernel& kernel() const { return kernel_; }

 private:
  static constexpr int kSteps = 60;

  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

  Value tensor(const char* prefix, const char* role, DType dtype, Value n, Shape shape) {
    Attrs attrs;
    attrs.set("name", prefix + std::string(name(dtype)));
    attrs.set("role", std::string(role));
    return kernel_
        .op(build_.emit(OpCode::Tensor, {n}, attrs, Type::tensor(dtype, std::move(shape))))
        .result;
  }

  DType any_type() { return kAllDTypes[below(std::size(kAllDTypes))]; }

  // The latest value of a type more often than not, so that chains grow.
  Value pick(DType dtype) {
    if (below(4) == 0) return constant(dtype);
    std::vector<Value> found;
    for (Value value : pool_)
      if (kernel_.type(value).dtype == dtype) found.push_back(value);
    return below(2) ? found.back() : found[below(found.size())];
  }

  Value constant(DType dtype) {
    if (dtype == Bool) return build_.constant(Bool, static_cast<int64_t>(below(2)));
    if (is_float(dtype)) {
      constexpr double kFloats[] = {0.0,  -0.0, 1.0,     -1.0,     2.0,      0.25,
                                    -4.0, 3.0,  0x1p-20, 0x1p-140, INFINITY, -INFINITY};
      return build_.constant(dtype, kFloats[below(std::size(kFloats))]);
    }
    const int64_t lowest = static_cast<int64_t>(1ull << (size_of(dtype) * 8 - 1));
    const int64_t ints[] = {0, 0, 1, 1, -1, 2, 3, 4, 8, 16, 7, 31, lowest, ~lowest};
    return build_.constant(dtype, ints[below(std::size(ints))]);
  }

  Value step() {
    const DType dtype = any_type();
    Value a = pick(dtype), b = pick(dtype);
    switch (below(5)) {
      case 0: {
        constexpr const char* kKinds[] = {"eq", "ne", "lt", "le", "gt", "ge"};
        return build_.compare(kKinds[below(6)], a, b);
      }
      case 1: return build_.select(pick(Bool), a, b);
      case 2: return build_.cast(build_.cast(a, any_type()), any_type());
      default: break;
    }
    using enum OpCode;
    if (dtype == Bool) {
      constexpr OpCode kBools[] = {And, Or, Xor, Not};
      OpCode code = kBools[below(4)];
      return code == Not ? build_.unary(Not, a) : build_.binary(code, a, b);
    }
    if (below(5) == 0) {
      constexpr OpCode kUnary[] = {Neg, Abs, Not};
      return build_.unary(kUnary[below(is_float(dtype) ? 2 : 3)], a);
    }
    constexpr OpCode kFloats[] = {Add, Sub, Mul, Div, Min, Max};
    constexpr OpCode kInts[] = {Add,      Sub,      Mul, Min, Max, FloorDiv, FloorMod,
                                FloorDiv, FloorMod, And, Or,  Xor, Shl,      Shr};
    auto code = [&] {
      return is_float(dtype) ? kFloats[below(6)] : kInts[below(std::size(kInts))];
    };
    // Half of them with constants on constants: that is where identities are.
    if (below(2)) return build_.binary(code(), a, b);
    const OpCode inner = code(), outer = below(2) ? inner : code();
    Value first = build_.binary(inner, a, constant(dtype));
    return build_.binary(outer, first, constant(dtype));
  }

  std::mt19937_64 random_;
  Kernel kernel_;
  Builder build_;
  std::vector<Value> inputs_, outputs_, pool_;
};

TEST_CASE("exact passes keep every bit of random scalar programs") {
  const uint64_t first = std::random_device{}();
  const auto passes =
      std::vector<Pass>{pass_named("simplify"), pass_named("hoist_invariants"),
                        pass_named("common_subexpressions"), pass_named("dead_code")};
  for (uint64_t seed = first; seed < first + 100; ++seed) {
    const Kernel before = Program(seed).kernel();
    Kernel after = before;
    run_passes(after, passes, {.verify_each = true, .after_each = {}});
    for (bool integers : {true, false}) {
      testing::RandomOptions options;
      options.seed = seed;
      options.integers = integers;
      options.specials = 0.2;
      options.low = integers ? -4 : INT32_MIN;
      options.high = integers ? 4 : INT32_MAX;
      testing::RandomBindings expected(before, {{"n", 20}}, {}, options), actual = expected;
      interpret(before, expected.bindings());
      interpret(after, actual.bindings());
      const std::string found = actual.difference(expected) + actual.damage();
      if (!found.empty()) FAIL(found << "\n" << print(before) << print(after));
    }
  }
}

// (x ∘ c) ∙ d for all pairs of constants, as extents of launches, where the host computes them.
Kernel nested(OpCode inner, OpCode outer, DType dtype, std::span<const int64_t> constants) {
  Kernel kernel("nested");
  Builder build(kernel);
  Attrs attrs;
  attrs.set("name", std::string("x"));
  Value x = kernel.op(build.emit(OpCode::Param, {}, attrs, Type::scalar(dtype))).result;
  for (int64_t c : constants)
    for (int64_t d : constants) {
      Value first = build.binary(inner, x, build.constant(dtype, c));
      Value second = build.binary(outer, first, build.constant(dtype, d));
      RegionId region = build.add_region(build.emit(OpCode::Launch, {build.cast(second, I32)}));
      kernel.add_argument(region, Type::scalar(I32));
    }
  return kernel;
}

std::vector<Scalar> extents(const Kernel& kernel, const Scalar& x) {
  TopLevel top(kernel, {}, {{"x", x}});
  std::vector<Scalar> values;
  for (OpId id : kernel.region(kernel.body).ops)
    if (kernel.op(id).code == OpCode::Launch)
      values.push_back(top.scalar(kernel.op(id).operands[0]));
  return values;
}

TEST_CASE("simplify keeps every pair of integer ops on constants") {
  using enum OpCode;
  constexpr OpCode kOps[] = {Add, Sub, Mul, Min, Max, FloorDiv, FloorMod, And, Or, Xor, Shl, Shr};
  constexpr int64_t kConstants[] = {0, 1, -1, 3, 4, 16, -6, -128, 127};
  for (DType dtype : {I8, U8})
    for (OpCode inner : kOps)
      for (OpCode outer : kOps) {
        const Kernel before = nested(inner, outer, dtype, kConstants);
        Kernel after = before;
        simplify(after);
        for (int64_t x = -128; x < 128; x += 17) {
          Scalar input = Scalar::of_int(dtype, x);
          std::vector<Scalar> expected = extents(before, input), actual = extents(after, input);
          for (size_t i = 0; i < expected.size(); ++i) {
            if (actual[i].i != expected[i].i)
              FAIL(name(dtype) << " " << info(inner).name << " " << kConstants[i / 9] << " "
                               << info(outer).name << " " << kConstants[i % 9] << " of " << input.i
                               << ": " << actual[i].i << ", not " << expected[i].i);
          }
        }
      }
}

TEST_CASE("simplify reaches a state that it leaves alone") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Kernel kernel = Program(seed).kernel();
    simplify(kernel);
    dead_code(kernel);
    const std::string once = print(kernel);
    simplify(kernel);
    dead_code(kernel);
    INFO("seed " << seed);
    REQUIRE(print(kernel) == once);
  }
}

}  // namespace
}  // namespace kiln
