// copy and fill: every edge, dtype and stride; nothing outside a tensor is touched.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded() {
  Check check;
  check.options.seed = random_seed();
  check.options.odd_strides = true;
  return check;
}

// A window of [rows, columns] at every combination of starts, through a tile and back out.
std::string check_window(DType from, DType tile_type, DType to, Shape window, double pad = -3) {
  Program p("window");
  Value n = p.dim("n"), m = p.dim("m");
  Value x = p.tensor("x", from, {kDynamic, kDynamic}, "input", {n, m});
  Value starts = p.tensor("starts", I32, {2});
  Value y = p.tensor("y", to, {kDynamic, kDynamic}, "inout", {n, m});
  Value seen = p.tensor("seen", to, window, "output");
  p.launch([&] {
    Value tile = p.b.alloc(Space::Shared, tile_type, window);
    Value row = p.b.load(starts, {p.index(0)}), column = p.b.load(starts, {p.index(1)});
    p.copy(p.b.slice(x, {row, column}, window), tile, pad);
    p.copy(tile, seen);
    p.copy(tile, p.b.slice(y, {column, row}, window));
  });
  std::vector<Check> checks;
  for (int64_t rows : {1, 5, 40})
    for (int64_t columns : {1, 7, 16, 45})
      for (uint64_t again = 0; again < 4; ++again) {
        Check check = seeded();
        check.dims = {{"n", rows}, {"m", columns}};
        check.options.low = -12;  // also the starts
        check.options.high = 30;
        check.options.seed += again;
        checks.push_back(check);
      }
  return check_program(p.kernel, checks);
}

}  // namespace

TEST_CASE("a window over every edge", "[copy]") {
  CHECK(check_window(F16, F16, F16, {8, 32}) == "");
  CHECK(check_window(F32, F32, F32, {3, 21}) == "");
  CHECK(check_window(BF16, F32, F16, {5, 1}) == "");
}

TEST_CASE("rows that end one element after a whole vector", "[copy]") {
  for (DType dtype : {F16, BF16, F32, I8, E4M3, Bool, F64})
    for (int64_t width : {5, 9, 17, 33}) {
      Program p("one_more");
      Value x = p.tensor("x", dtype, {6, width}), y = p.tensor("y", dtype, {6, width}, "output");
      Value z = p.tensor("z", dtype, {6, width}, "inout");
      p.launch([&] {
        Value tile = p.b.alloc(Space::Shared, dtype, {6, width});
        p.copy(x, tile);
        p.copy(tile, y);
        p.b.parallel({6, width}, [&](std::span<const Value> at) {
          Value column = p.b.binary(OpCode::Sub, at[1], p.index(width - 1));
          p.b.store(p.b.load(tile, {at[0], at[1]}), z, {at[0], column});
        });
      });
      INFO(name(dtype) << " " << width);
      CHECK(check_program(p.kernel, seeded()) == "");
    }
}

TEST_CASE("copies convert between all dtypes", "[copy]") {
  for (DType from : kAllDTypes) {
    Program p("convert");
    Value x = p.tensor("x", from, {3, 21});
    std::vector<Value> out;
    for (DType to : kAllDTypes)
      out.push_back(p.tensor("y_" + std::string(name(to)), to, {3, 21}, "output"));
    p.launch([&] {
      for (size_t i = 0; i < out.size(); ++i) {
        Value tile = p.b.alloc(Space::Shared, kAllDTypes[i], {3, 21});
        p.copy(x, tile);
        p.copy(tile, out[i]);
      }
    });
    INFO(name(from));
    Check whole = seeded();
    whole.options.high = 300;
    whole.options.low = -300;
    whole.options.specials = 0.1;
    Check real = whole;
    real.options.integers = false;
    CHECK(check_program(p.kernel, {whole, real}) == "");
  }
}

TEST_CASE("extents of 1 are dropped wherever they are", "[copy]") {
  Program p("units");
  Value x = p.tensor("x", F16, {4, 6, 5, 20});
  Value y = p.tensor("y", F32, {5, 20}, "output"), z = p.tensor("z", F32, {6}, "output");
  Value w = p.tensor("w", F32, {7, 3, 9}, "inout"), one = p.tensor("one", F32, {}, "output");
  p.launch([&] {
    Value tile = p.b.alloc(Space::Shared, F32, {5, 20});
    p.copy(p.b.slice(x, {p.index(3), p.index(2), p.index(0), p.index(0)}, {1, 1, 5, 20}), tile);
    p.copy(tile, y);
    // A column: no axis is contiguous. A unit axis may lie outside: then all is pad.
    p.copy(p.b.slice(x, {p.index(1), p.index(0), p.index(2), p.index(19)}, {1, 6, 1, 1}), z);
    p.copy(p.b.slice(x, {p.index(4), p.index(0), p.index(0), p.index(0)}, {1, 1, 1, 3}),
           p.b.slice(w, {p.index(6), p.index(0), p.index(8)}, {1, 3, 1}), 5);
    p.copy(p.b.slice(x, {p.index(0), p.index(0), p.index(0), p.index(0)}, {1, 1, 1, 3}),
           p.b.slice(w, {p.index(7), p.index(0), p.index(0)}, {1, 3, 1}));
    p.copy(p.b.slice(x, {p.index(0), p.index(1), p.index(2), p.index(3)}, {1, 1, 1, 1}), one);
  });
  CHECK(check_program(p.kernel, seeded()) == "");
}

TEST_CASE("a slice of a slice does not see past the outer one", "[copy]") {
  Program p("nested");
  Value x = p.tensor("x", F32, {40}), y = p.tensor("y", F32, {24}, "output");
  Value z = p.tensor("z", F32, {40}, "inout");
  p.launch([&] {
    Value outer = p.b.slice(x, {p.index(5)}, {10});
    p.copy(p.b.slice(outer, {p.index(-4)}, {24}), y, 9);
    Value target = p.b.slice(p.b.slice(z, {p.index(8)}, {kDynamic}), {p.index(-3)}, {24});
    p.copy(p.b.slice(x, {p.index(0)}, {24}), target);
  });
  CHECK(check_program(p.kernel, seeded()) == "");
}

TEST_CASE("fill of tiles, views and tensors", "[copy]") {
  for (DType dtype : kAllDTypes) {
    Program p("fill");
    Value y = p.tensor("y", dtype, {5, 37}, "inout");
    Value z = p.tensor("z", dtype, {5, 37}, "output");
    p.launch([&] {
      Value tile = p.b.alloc(Space::Shared, dtype, {5, 37});
      p.b.emit(OpCode::Fill, {p.b.constant(F32, 1.0), tile});
      Value view = p.b.slice(tile, {p.index(3), p.index(30)}, {4, 20});
      p.b.emit(OpCode::Fill, {p.b.constant(I32, 3), view});
      p.copy(tile, z);
      Value part = p.b.slice(y, {p.index(-2), p.index(-3)}, {4, 20});
      p.b.emit(OpCode::Fill, {p.b.constant(F32, 2.5), part});
    });
    INFO(name(dtype));
    CHECK(check_program(p.kernel, seeded()) == "");
  }
}

TEST_CASE("no byte outside a tensor is touched, whatever lies there", "[copy]") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* memory =
      static_cast<char*>(mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  REQUIRE(mprotect(memory + page, page, PROT_READ | PROT_WRITE) == 0);
  for (DType dtype : {F16, F32, I8, F64}) {
    const int64_t width = static_cast<int64_t>(size_of(dtype));
    Program p("pages");
    Value n = p.dim("n");
    Value x = p.tensor("x", dtype, {kDynamic}, "inout", {n});
    p.launch([&] {
      Value tile = p.b.alloc(Space::Shared, dtype, {64});
      Value window = p.b.slice(x, {p.index(-7)}, {64});
      p.copy(window, tile);
      p.copy(tile, window);
      p.b.parallel({80}, [&](std::span<const Value> i) {
        Value at = p.b.binary(OpCode::Sub, i[0], p.index(9));
        p.b.store(p.b.load(x, {at}), x, {at});
      });
    });
    for (const Level& level : levels())
      for (int64_t count : {1, 3, 17, 50})
        for (bool at_end : {false, true}) {
          char* data = memory + page + (at_end ? page - static_cast<size_t>(count * width) : 0);
          Bindings bindings;
          bindings.tensors["x"] = Memory::contiguous(data, dtype, {count});
          bindings.dims["n"] = count;
          level.compile(p.kernel)(bindings);
        }
  }
  munmap(memory, 3 * page);
}
