// The tables of legal dtypes (ir/dtype_rules.h), walked: what they hold compiles on every tier, and
// what they do not is refused by a message that lists what they hold.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "ir/dtype_rules.h"
#include "ir/parse.h"
#include "passes/passes.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Kernel product(DType operands, DType accumulator, int m, int n, int k) {
  return trace("product", [&] {
    Tensor x = input("x", operands, {m, k}), w = input("w", operands, {k, n});
    Tensor y = output("y", accumulator, {m, n});
    launch({1});
    Tile a = alloc_shared({m, k}, operands), b = alloc_shared({k, n}, operands);
    Tile c = alloc_fragment({m, n}, accumulator);
    copy(x, a);
    copy(w, b);
    gemm(a, b, c, {.clear = true});
    copy(c, y);
  });
}

std::string refusal(const std::function<void()>& program) {
  try {
    program();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

// Every tier and every GPU that has its own code.
void check_everywhere(const Kernel& kernel, const Check& check) {
  CHECK(check_lowered(kernel, {check}) == "");
  for (const char* target : {"sm_80", "sm_89", "sm_90"}) {
    INFO(target);
    CHECK(emulation_fault(kernel, target, check) == "");
  }
}

}  // namespace

TEST_CASE("gemm: every pair of dtypes is legal or refused with the list", "[legal]") {
  size_t legal = 0;
  for (DType a : kAllDTypes)
    for (DType c : kAllDTypes) {
      INFO("a, b of " << name(a) << ", c of " << name(c));
      if (!gemm_dtypes(a, c)) {
        const std::string text = refusal([&] { product(a, c, 16, 8, 32); });
        CHECK(text.find(gemm_dtypes_text()) != std::string::npos);
        continue;
      }
      ++legal;
      Check check;
      check.options.seed = random_seed();
      check.options.integers = true;                      // exact in any order
      check_everywhere(product(a, c, 16, 8, 32), check);  // tensor cores, where there are
      check_everywhere(product(a, c, 5, 3, 7), check);    // any extents
    }
  CHECK(legal == gemm_dtypes().size());
}

TEST_CASE("gemm: what says that tensor cores do it is the table", "[legal]") {
  for (const GemmDTypes& row : gemm_dtypes()) {
    const Kernel made = lowered(product(row.operands, row.accumulator, 16, 8, 32), "sm_90");
    const std::string text = compile_ptx(made).ptx;
    INFO(name(row.operands) << " to " << name(row.accumulator));
    CHECK((text.find("mma.sync") != std::string::npos) == row.mma);
  }
}

TEST_CASE("copy: from and to every dtype, through every space", "[legal]") {
  for (DType from : kAllDTypes) {
    const Kernel kernel = trace("convert", [&] {
      Tensor x = input("x", from, {4, 16});
      std::vector<Tensor> y;
      for (DType to : kAllDTypes) y.push_back(output("y_" + std::string(name(to)), to, {3, 4, 16}));
      launch({1});
      for (size_t i = 0; i < std::size(kAllDTypes); ++i) {
        const DType to = kAllDTypes[i];
        Tile shared = alloc_shared({4, 16}, to), fragment = alloc_fragment({4, 16}, to);
        Tile same = alloc_shared({4, 16}, from), own = alloc_fragment({4, 16}, from);
        copy(x, shared);
        copy(shared, y[i](0, all, all));
        copy(x, same);
        copy(same, fragment);
        copy(fragment, y[i](1, all, all));
        copy(same, own);
        copy(own, fragment);
        copy(own, y[i](2, all, all));
      }
    });
    INFO("from " << name(from));
    Check check;
    check.options.seed = random_seed();
    CHECK(check_lowered(kernel, {check}) == "");
    CHECK(emulation_fault(kernel, "sm_80", check) == "");
  }
}

TEST_CASE("atomics: every kind of every dtype is legal or refused with the list", "[legal]") {
  using Atomic = Expr (*)(const Element&, Arg, Loc);
  const std::pair<const char*, Atomic> kinds[] = {
      {"add", atomic_add}, {"max", atomic_max}, {"min", atomic_min},          {"and", atomic_and},
      {"or", atomic_or},   {"xor", atomic_xor}, {"exchange", atomic_exchange}};
  for (const auto& [kind, function] : kinds)
    for (DType dtype : kAllDTypes) {
      const auto program = [&, function = function] {
        return trace("update", [&] {
          Tensor x = input("x", dtype, {8}), y = inout("y", dtype, {8});
          launch({1});
          Tile t = alloc_shared({8}, dtype);
          copy(x, t);
          for (auto i : parallel(8)) {
            const Expr value = t(i);
            function(y(i), value, Loc::here());
          }
        });
      };
      INFO(kind << " of " << name(dtype));
      if (atomic_takes(kind, dtype)) {
        Check check;
        check.options.seed = random_seed();

        CHECK(check_lowered(program(), {check}) == "");
        CHECK(emulation_fault(program(), "sm_80", check) == "");
      } else {
        const std::string list =
            dtypes_text([&, kind = kind](DType other) { return atomic_takes(kind, other); });
        CHECK(refusal(program).find(list) != std::string::npos);
      }
    }
}

TEST_CASE("an instruction that cannot do it says all that it needs", "[legal]") {
  const auto refused = [](const char* text) {
    return refusal([&] {
      Kernel kernel = parse(text, "refused");
      kernel.target = "sm_90";
      choose_instructions(kernel);
    });
  };
  const std::string mma = refused(R"(kernel @k {
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %a = alloc : shared f32[16, 16]
    %c = alloc : fragment f32[16, 16]
    gemm %a, %a, %c {instruction = mma}
  }
})");
  CHECK(mma.find("f32 keeps its precision") != std::string::npos);
  CHECK(mma.find("mma takes a, b of " + mma_dtypes_text()) != std::string::npos);
  const std::string copy = refused(R"(kernel @k {
  %one = const {value = 1} : i32
  %x = tensor {name = "x"} : tensor f32[4, 4]
  launch %one do |%b: i32| {
    %a = alloc : shared f16[4, 4]
    copy %x, %a {instruction = cp_async}
  }
})");
  CHECK(copy.find("converts f32 to f16") != std::string::npos);
  CHECK(copy.find("from a tensor to a shared tile, of one dtype, padded with 0, in rows of whole "
                  "chunks of 16 bytes") != std::string::npos);
}
