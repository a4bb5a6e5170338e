// parallel on a GPU: the code of its points, and random programs of fragments, tiles and tensors.
#include <catch2/catch.hpp>

#include "ir/print.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

std::string assembled(const Kernel& kernel, const std::string& target) {
  const std::string ptx = compile_for(kernel, target).ptx;
  CHECK(assembly_fault(ptx, target) == "");
  CHECK(occurrences(ptx, ".local") == 0);
  return ptx;
}

// y = x + x over a box at a block's rows.
Kernel elementwise(int64_t rows, int64_t columns) {
  Program p("elementwise");
  Value n = p.dim("n");
  Value x = p.tensor("x", F32, {kDynamic, columns}, "input", {n});
  Value y = p.tensor("y", F32, {kDynamic, columns}, "output", {n});
  p.launch({n}, [&](std::span<const Value> block) {
    p.b.parallel({rows, columns}, [&](std::span<const Value> at) {
      Value row = p.b.binary(OpCode::Add, block[0], at[0]);
      Value element = p.b.load(x, {row, at[1]});
      p.b.store(p.b.binary(OpCode::Add, element, element), y, {row, at[1]});
    });
  });
  return p.kernel;
}

// Loops over fragments of all ranks, shared tiles and tensors, at indices that the language allows;
// loops may be larger than the fragments that they read.
class Loops {
 public:
  explicit Loops(uint64_t seed) : r_(seed), p_("loops") {
    rows_ = r_.of<int64_t>({1, 3, 8, 16, 17, 32, 64});
    columns_ = r_.of<int64_t>({1, 2, 8, 20, 27, 32, 64});
    Value n = p_.dim("n");
    x_ = p_.tensor("x", F32, {kDynamic, columns_}, "input", {n});
    y_ = p_.tensor("y", F32, {rows_, columns_}, "output");
    z_ = p_.tensor("z", F32, {kDynamic, kDynamic}, "inout", {n, n});
    wide_ = p_.tensor("wide", F32, {rows_ + 9, columns_ + 5}, "inout");
    p_.launch({p_.index(1)}, [&](std::span<const Value>) { body(); });
  }

  const Kernel& kernel() const { return p_.kernel; }

 private:
  Value add(Value a, Value b) { return p_.b.binary(OpCode::Add, a, b); }
  Value shifted(Value index) { return add(index, p_.index(r_.below(9) - 4)); }

  void body() {
    const Space any[] = {Space::Fragment, Space::Shared};
    Value tile = p_.b.alloc(any[r_.below(2)], F32, {rows_, columns_});
    Value line = p_.b.alloc(Space::Fragment, F32, {rows_});
    Value across = p_.b.alloc(Space::Fragment, F32, {1, columns_});
    Value one = p_.b.alloc(Space::Fragment, F32, {});
    Value result = p_.b.alloc(Space::Fragment, F32, {rows_, columns_});
    Value memory = p_.b.alloc(Space::Shared, F32, {rows_, columns_});
    p_.copy(p_.b.slice(x_, {p_.index(r_.below(4) - 1), p_.index(0)}, {rows_, columns_}), tile, 2);
    p_.copy(tile, memory);
    p_.copy(p_.b.slice(x_, {p_.index(0), p_.index(0)}, {rows_, 1}), line);
    p_.copy(p_.b.slice(x_, {p_.index(2), p_.index(0)}, {1, columns_}), across);
    p_.b.store(p_.b.load(x_, {p_.index(1), p_.index(0)}), one, {});

    p_.b.parallel({rows_, columns_}, [&](std::span<const Value> at) {
      Value sum = p_.b.load(tile, {at[0], at[1]});
      if (r_.chance(60)) sum = add(sum, p_.b.load(line, {at[0]}));
      if (r_.chance(60)) sum = add(sum, p_.b.load(across, {p_.index(0), at[1]}));
      if (r_.chance(60)) sum = add(sum, p_.b.load(one, {}));
      if (r_.chance(60)) sum = add(sum, p_.b.load(memory, {shifted(at[0]), shifted(at[1])}));
      if (r_.chance(60)) sum = add(sum, p_.b.load(x_, {shifted(at[0]), shifted(at[1])}));
      p_.b.store(sum, result, {at[0], at[1]});
      Value again = p_.b.load(result, {at[0], at[1]});
      if (r_.chance(50)) p_.b.store(add(again, again), z_, {shifted(at[1]), shifted(at[0])});
      if (r_.chance(50)) p_.b.store(add(sum, again), result, {at[0], at[1]});
    });
    if (r_.chance(50))
      p_.b.parallel({rows_}, [&](std::span<const Value> at) {
        Value value = p_.b.load(line, {at[0]});
        p_.b.store(add(value, p_.b.load(one, {})), line, {at[0]});
      });
    // Beyond the ends of what it reads: 0.
    p_.b.parallel({rows_ + 7, columns_ + 3}, [&](std::span<const Value> at) {
      Value sum = add(p_.b.load(line, {at[0]}), p_.b.load(result, {at[0], at[1]}));
      p_.b.store(sum, wide_, {at[0], at[1]});
    });
    if (r_.chance(50)) p_.b.store(p_.b.load(one, {}), wide_, {p_.index(rows_ + 8), p_.index(0)});
    p_.copy(result, y_);
  }

  Random r_;
  Program p_;
  int64_t rows_, columns_;
  Value x_, y_, z_, wide_;
};

}  // namespace

TEST_CASE("loads of several points come before their stores", "[parallel]") {
  for (const char* target : {"sm_80", "sm_90"}) {
    const std::string ptx = assembled(elementwise(16, 64), target);
    const size_t load = ptx.rfind("ld.global", ptx.find("st.global"));
    REQUIRE(load != std::string::npos);
    CHECK(occurrences(ptx.substr(0, load), "ld.global") >= 7);
    CHECK(occurrences(ptx, "pragma") == 0);  // no loop
  }
}

TEST_CASE("many points without fragments are a loop", "[parallel]") {
  const std::string ptx = assembled(elementwise(1024, 1024), "sm_80");
  CHECK(occurrences(ptx, "ld.global") == 8);
  CHECK(occurrences(ptx, "st.global") == 8);
}

TEST_CASE("one thread writes what is the same in many", "[parallel]") {
  Program p("once");
  Value x = p.tensor("x", F32, {4}), y = p.tensor("y", F32, {5}, "output");
  p.launch([&] {
    Value row = p.b.alloc(Space::Fragment, F32, {4});
    p.copy(x, row);
    p.b.parallel({4},
                 [&](std::span<const Value> at) { p.b.store(p.b.load(row, {at[0]}), y, {at[0]}); });
    p.b.store(p.b.constant(F32, 7), y, {p.index(4)});
  });
  const std::string ptx = assembled(p.kernel, "sm_80");
  CHECK(occurrences(ptx, "st.global") == 2);
  CHECK(occurrences(ptx, "@%p") >= 2);
  Check check;
  check.options.seed = random_seed();
  CHECK(check_program(p.kernel, check) == "");
}

TEST_CASE("random loops", "[parallel]") {
  const uint64_t seed = random_seed();
  for (uint64_t i = 0; i < 12; ++i) {
    const Loops loops(seed + i);
    std::vector<Check> checks;
    for (const int64_t n : {3, 16, 70}) {
      Check check;
      check.dims = {{"n", n}};
      check.options.seed = seed + i;
      check.options.padded = n != 16;
      checks.push_back(check);
    }
    INFO("KILN_SEED=" << seed + i << "\n" << print(loops.kernel()));
    CHECK(check_program(loops.kernel(), checks) == "");
  }
}
