// copy and fill on a GPU: what instructions move the elements, and random programs of copies.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "ir/print.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

const char* const kTargets[] = {"sm_80", "sm_90"};

// A window of x, at a block's rows, goes through tiles of these spaces and dtypes to y.
struct Route {
  DType from = F16;
  std::vector<std::pair<Space, DType>> tiles = {{Space::Shared, F16}};
  DType to = F16;
  Shape window = {64, 64};
  int64_t columns = kDynamic;  // of x and y; the window's if it has them all
  double pad = 0;
};

Kernel kernel_of(const Route& route) {
  Program p("route");
  Value n = p.dim("n");
  std::vector<Value> extents = {n};
  if (route.columns == kDynamic) extents.push_back(p.dim("m"));
  Value x = p.tensor("x", route.from, {kDynamic, route.columns}, "input", extents);
  Value y = p.tensor("y", route.to, {kDynamic, route.columns}, "inout", extents);
  const Value blocks = p.b.binary(OpCode::FloorDiv, n, p.index(route.window[0]));
  p.launch({blocks}, [&](std::span<const Value> block) {
    Value row = p.b.binary(OpCode::Mul, block[0], p.index(route.window[0]));
    const std::vector<Value> start = {row, p.index(0)};
    Value here = p.b.slice(x, start, route.window);
    double pad = route.pad;
    for (const auto& [space, dtype] : route.tiles) {
      Value tile = p.b.alloc(space, dtype, route.window);
      p.copy(here, tile, std::exchange(pad, 0));
      here = tile;
    }
    p.copy(here, p.b.slice(y, start, route.window));
  });
  return p.kernel;
}

std::string ptx_of(const Route& route, const std::string& target) {
  const std::string ptx = compile_for(kernel_of(route), target).ptx;
  CHECK(assembly_fault(ptx, target) == "");
  CHECK(occurrences(ptx, ".local") == 0);
  return ptx;
}

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t end) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(end)); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  std::mt19937_64 random_;
};

// A random chain of copies: windows of tensors and of shared tiles that may stick out anywhere,
// extents of 1 that come and go, dtypes that change, pads.
class Chain {
 public:
  explicit Chain(uint64_t seed) : r_(seed), p_("chain") {
    dtype_ = any_dtype();
    make_shape();
    for (int i = 0; i < 2; ++i) dims_.push_back(p_.dim(i == 0 ? "n" : "m"));
    Value x = tensor("x", "input");
    dtype_ = r_.chance(50) ? dtype_ : any_dtype();
    Value y = tensor("y", "inout"), seen = p_.tensor("seen", dtype_, shape_, "output");
    starts_ = p_.tensor("starts", I32, {8});
    p_.launch({p_.index(1 + r_.below(2))}, [&](std::span<const Value> block) {
      block_ = block[0];
      Value here = window(x, kernel().type(x).dtype);
      for (int64_t tiles = 1 + r_.below(3); tiles > 0; --tiles) {
        const DType dtype = r_.chance(60) ? kernel().type(here).dtype : any_dtype();
        here = through(here, dtype);
      }
      p_.copy(here, window(y, dtype_));
      p_.copy(here, seen);
    });
  }

  const Kernel& kernel() const { return p_.kernel; }

 private:
  DType any_dtype() { return kAllDTypes[r_.below(std::size(kAllDTypes))]; }

  void make_shape() {
    shape_.assign(static_cast<size_t>(1 + r_.below(3)), 1);
    int64_t left = 2048;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      const int64_t extent = r_.of<int64_t>({1, 2, 3, 4, 5, 8, 16, 16, 24, 27, 32, 40, 64, 80, 128});
      shape_[axis] = std::min(extent, std::max<int64_t>(left, 1));
      left /= shape_[axis];
    }
  }

  // The shape with some extents of 1 more, or without its own.
  Shape varied() {
    Shape shape;
    for (const int64_t extent : r_.chance(50) ? shape_ : without_units(shape_)) {
      if (r_.chance(15)) shape.push_back(1);
      shape.push_back(extent);
    }
    if (r_.chance(10)) shape.push_back(1);
    return shape;
  }

  // Static or dynamic extents around the window's.
  Value tensor(const std::string& name, const char* role) {
    Shape shape;
    std::vector<Value> extents;
    windows_[name] = varied();
    for (const int64_t extent : windows_[name]) {
      const bool dynamic = r_.chance(40);
      shape.push_back(dynamic ? kDynamic : std::max<int64_t>(1, extent + r_.of<int64_t>({0, 0, 0, 16, -1, 3})));
      if (dynamic) extents.push_back(dims_[static_cast<size_t>(r_.below(2))]);
    }
    return p_.tensor(name, dtype_, shape, role, extents);
  }

  Value start(int64_t extent) {
    if (r_.chance(45)) return p_.index(0);
    if (r_.chance(30)) return p_.index(8 * (r_.below(5) - 2));
    if (r_.chance(30)) return p_.b.binary(OpCode::Mul, block_, p_.index(extent));
    return p_.b.load(starts_, {p_.index(r_.below(8))});
  }

  Value slice(Value base, const Shape& window) {
    std::vector<Value> starts;
    for (const int64_t extent : window) starts.push_back(start(extent));
    return p_.b.slice(base, starts, window);
  }

  Value window(Value tensor, DType) {
    const Op& op = kernel().op(kernel().def(tensor));
    Value view = slice(tensor, windows_.at(op.word("name")));
    return r_.chance(20) ? slice(view, windows_.at(op.word("name"))) : view;
  }

  double pad_of(DType dtype) {
    if (r_.chance(50)) return 0;
    return dtype == Bool ? 1 : is_float(dtype) && r_.chance(50) ? -1.5 : 3;
  }

  // A new tile that holds what is in `from`; maybe only a view of it.
  Value through(Value from, DType dtype) {
    const double pad = pad_of(kernel().type(from).dtype);
    const Shape shape = varied();
    if (r_.chance(40)) {
      Value tile = p_.b.alloc(Space::Fragment, dtype, shape);
      p_.copy(from, tile, pad);
      return tile;
    }
    if (r_.chance(60)) {
      Value tile = p_.b.alloc(Space::Shared, dtype, shape);
      p_.copy(from, tile, pad);
      return tile;
    }
    Shape larger = shape;
    for (int64_t& extent : larger)
      if (extent > 1) extent += r_.of<int64_t>({0, 0, 8, 5});
    Value tile = p_.b.alloc(Space::Shared, dtype, larger);
    p_.b.emit(OpCode::Fill, {p_.b.constant(I32, 7), tile});
    Value view = slice(tile, shape);
    p_.copy(from, view, pad);
    return r_.chance(50) ? view : slice(tile, shape);
  }

  Random r_;
  Program p_;
  DType dtype_ = F32;
  Shape shape_;
  std::vector<Value> dims_;
  std::map<std::string, Shape> windows_;
  Value starts_, block_;
};

}  // namespace

TEST_CASE("random chains of copies", "[copy]") {
  const uint64_t seed = random_seed();
  for (uint64_t i = 0; i < 60; ++i) {
    const Chain chain(seed + i);
    std::vector<Check> checks;
    for (const int64_t columns : {8, 21, 64}) {
      Check check;
      check.dims = {{"n", 5 + columns / 2}, {"m", columns}};
      check.options.seed = seed + i;
      check.options.low = -9;  // also the starts
      check.options.high = 40;
      check.options.padded = columns != 64;
      check.options.odd_strides = columns == 21;
      checks.push_back(check);
    }
    INFO("KILN_SEED=" << seed + i << "\n" << print(chain.kernel()));
    CHECK(check_program(chain.kernel(), checks) == "");
  }
}
