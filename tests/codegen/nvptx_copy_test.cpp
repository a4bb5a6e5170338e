// copy and fill on a GPU: what instructions move the elements, and random programs of copies.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <numeric>
#include <sstream>

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
    Value y = tensor("y", "inout", kBlocks);
    Shape whole = shape_;
    whole.insert(whole.begin(), kBlocks);
    Value seen = p_.tensor("seen", dtype_, whole, "output");
    starts_ = p_.tensor("starts", I32, {8});
    p_.launch({p_.index(kBlocks)}, [&](std::span<const Value> block) {
      block_ = block[0];
      Value here = window(x);
      for (int64_t tiles = 1 + r_.below(3); tiles > 0; --tiles) {
        const DType dtype = r_.chance(60) ? kernel().type(here).dtype : any_dtype();
        here = through(here, dtype);
      }
      p_.copy(here, window(y, block_));
      Shape part = whole;
      part[0] = 1;
      std::vector<Value> start(whole.size(), p_.index(0));
      start[0] = block_;
      p_.copy(here, p_.b.slice(seen, start, part));
    });
  }

  const Kernel& kernel() const { return p_.kernel; }

 private:
  DType any_dtype() { return kAllDTypes[r_.below(std::size(kAllDTypes))]; }

  void make_shape() {
    shape_.assign(static_cast<size_t>(1 + r_.below(3)), 1);
    int64_t left = 2048;
    for (size_t axis = shape_.size(); axis-- > 0;) {
      const int64_t extent =
          r_.of<int64_t>({1, 2, 3, 4, 5, 8, 16, 16, 24, 27, 32, 40, 64, 80, 128});
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

  static constexpr int64_t kBlocks = 2;

  // Static or dynamic extents around the window's; of `parts` as many, one behind the other.
  Value tensor(const std::string& name, const char* role, int64_t parts = 0) {
    Shape shape;
    std::vector<Value> extents;
    if (parts > 0) shape.push_back(parts);
    windows_[name] = varied();
    for (const int64_t extent : windows_[name]) {
      // Extents of 1 stay small, lest there be millions of elements.
      const bool dynamic = extents.size() < (extent > 1 ? 2 : 1) && r_.chance(40);
      const int64_t more = extent > 1 ? r_.of<int64_t>({0, 0, 0, 16, -1, 3}) : r_.below(2);
      shape.push_back(dynamic ? kDynamic : extent + more);
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

  // Of the base's last axes; of a part, if it is made of parts.
  Value slice(Value base, Shape window, Value part = {}) {
    std::vector<Value> starts;
    for (const int64_t extent : window) starts.push_back(start(extent));
    if (part) {
      starts.insert(starts.begin(), part);
      window.insert(window.begin(), 1);
    }
    return p_.b.slice(base, starts, window);
  }

  Value window(Value tensor, Value part = {}) {
    const Op& op = kernel().op(kernel().def(tensor));
    const Shape& window = windows_.at(op.word("name"));
    Value view = slice(tensor, window, part);
    if (r_.chance(80)) return view;
    return slice(view, window, part ? p_.index(0) : part);
  }

  double pad_of(DType dtype) {
    if (r_.chance(50)) return 0;
    return dtype == Bool ? 1 : is_float(dtype) && r_.chance(50) ? -1.5 : 3;
  }

  // A new tile that holds what is in `from`; maybe only a view of it.
  Value through(Value from, DType dtype) {
    const double pad = pad_of(kernel().type(from).dtype);
    Shape shape = varied();
    if (r_.chance(40)) {
      Value tile = p_.b.alloc(Space::Fragment, dtype, shape);
      p_.copy(from, tile, pad);
      return tile;
    }
    // One row would be stored as eight.
    if (shape.size() > 1 && shape[shape.size() - 2] == 1) shape = without_units(shape_);
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

TEST_CASE("rows of tensors move to shared tiles in chunks of 16 bytes", "[copy]") {
  for (const char* target : kTargets)
    for (const auto& [dtype, columns] : {std::pair(F16, 64), {F16, 80}, {F32, 32}, {E4M3, 128}}) {
      INFO(target << " " << name(dtype) << " " << columns);
      const Route route{dtype, {{Space::Shared, dtype}}, dtype, {64, columns}, columns};
      const GpuCode code = compile_for(kernel_of(route), target);
      CHECK(assembly_fault(code.ptx, target) == "");
      const auto chunks = static_cast<size_t>(64 * columns) * size_of(dtype) / 16;
      const size_t each = chunks / static_cast<size_t>(code.launches[0].threads);
      CHECK(occurrences(code.ptx, "cp.async.cg.shared.global") == each);
      CHECK(occurrences(code.ptx, "cp.async.commit_group") == 1);
      CHECK(occurrences(code.ptx, "ld.shared.v4.b32") + occurrences(code.ptx, "ld.shared.v2.b64") ==
            each);
      CHECK(occurrences(code.ptx, "st.global.v4.b32") + occurrences(code.ptx, "st.global.v2.b64") ==
            each);
      // One address a row, from the one before; the rest are constants.
      CHECK(occurrences(code.ptx, "mul.lo.s64") + occurrences(code.ptx, "mad.lo.s64") < 20);
    }
}

TEST_CASE("rows that are not made of 16-byte chunks move as they can", "[copy]") {
  for (const char* target : kTargets) {
    INFO(target);
    const Route odd{F32, {{Space::Shared, F32}}, F32, {64, 27}, 27};
    const std::string single = ptx_of(odd, target);
    CHECK(occurrences(single, ".v4") + occurrences(single, ".v2") == 0);
    CHECK(occurrences(single, "cp.async.c") == 0);  // of copies; groups may be committed
    const Route halves{F16, {{Space::Shared, F16}}, F16, {64, 36}, 36};
    const std::string narrow = ptx_of(halves, target);  // 72 bytes
    CHECK(occurrences(narrow, "cp.async.cg.shared.global") == 0);
    CHECK(occurrences(narrow, "st.global.b32") > 0);
    CHECK(occurrences(narrow, "st.global.v4.b32") == 0);
  }
}

TEST_CASE("the wider dtype of a conversion decides the vectors", "[copy]") {
  const std::string ptx = ptx_of({F32, {{Space::Shared, F16}}, F16, {64, 64}, 64}, "sm_80");
  CHECK(occurrences(ptx, "ld.global.nc.v4.b32") == 8);
  CHECK(occurrences(ptx, "cp.async.c") == 0);
  CHECK(occurrences(ptx, "cvt.rn.f16x2.f32") > 0);
}

TEST_CASE("registers move in vectors that their layout holds", "[copy]") {
  for (const char* target : kTargets) {
    INFO(target);
    const std::vector<std::pair<Space, DType>> tiles = {{Space::Fragment, F32}};
    const std::string ptx = ptx_of({F32, tiles, F32, {64, 64}, 64}, target);
    CHECK(occurrences(ptx, "ld.global.nc.v4.b32") == 8);
    CHECK(occurrences(ptx, "st.global.v4.b32") == 8);
    CHECK(occurrences(ptx, "ld.global.nc.b32") == 32);  // the other way, unrolled
  }
}

// Of such registers ptxas 13.0 takes one round's value for another's.
TEST_CASE("registers that a loop moves on were written before it", "[copy]") {
  const std::vector<std::pair<Space, DType>> tiles = {{Space::Fragment, F16}, {Space::Shared, F16}};
  const Kernel kernel = kernel_of({I64, tiles, F32, {64, 128}});
  for (const char* target : kTargets) {
    INFO(target);
    CHECK(occurrences(compile_for(kernel, target).ptx, ".pragma \"nounroll\"") > 0);
    std::istringstream lines(gpu_llvm_ir(lowered(kernel, target)));
    for (std::string line; std::getline(lines, line);)
      if (line.find(" = phi ") != line.npos) CHECK(line.find("[ poison,") == line.npos);
  }
}

TEST_CASE("what is surely inside is not checked", "[copy]") {
  Program p("whole");
  Value x = p.tensor("x", F16, {64, 64}), y = p.tensor("y", F16, {128, 64}, "output");
  p.launch([&] {
    Value tile = p.b.alloc(Space::Shared, F16, {64, 64});
    p.copy(x, tile);
    p.copy(tile, p.b.slice(y, {p.index(64), p.index(0)}, {64, 64}));
  });
  const std::string ptx = compile_for(p.kernel, "sm_80").ptx;
  CHECK(occurrences(ptx, "kiln_zeros") == 0);
  CHECK(occurrences(ptx, "selp") == 0);
  CHECK(assembly_fault(ptx, "sm_80") == "");
}

TEST_CASE("what may be outside is read as zeros, or as the pad", "[copy]") {
  const Route edge{F16, {{Space::Shared, F16}}, F16, {64, 64}};
  const std::string zero = ptx_of(edge, "sm_80");
  CHECK(occurrences(zero, "cp.async.cg.shared.global") == 4);
  CHECK(occurrences(zero, ", 16, %r") == 4);  // the size is 0 outside
  Route padded = edge;
  padded.pad = -2;
  const std::string other = ptx_of(padded, "sm_80");
  CHECK(occurrences(other, "cp.async.c") == 0);
  CHECK(occurrences(other, "kiln_zeros") > 1);
}

TEST_CASE("a view of a shared tile that begins anywhere has no vectors", "[copy]") {
  const auto ptx = [](bool known) {
    Program p("anywhere");
    Value n = p.dim("n");
    Value x = p.tensor("x", F32, {64, 32}), y = p.tensor("y", F32, {64, 32}, "output");
    p.launch([&] {
      Value tile = p.b.alloc(Space::Shared, F32, {64, 64});
      p.b.emit(OpCode::Fill, {p.b.constant(F32, 0), tile});
      Value first = known ? p.b.binary(OpCode::Mul, n, p.index(4)) : n;
      Value part = p.b.slice(tile, {p.index(0), first}, {64, 32});
      p.copy(x, part);
      p.copy(part, y);
    });
    const std::string text = compile_for(p.kernel, "sm_80").ptx;
    CHECK(assembly_fault(text, "sm_80") == "");
    return text;
  };
  CHECK(occurrences(ptx(true), "ld.shared.v4.b32") > 0);
  CHECK(occurrences(ptx(false), "ld.shared.v4.b32") == 0);
}

TEST_CASE("random chains of copies", "[copy]") {
  const uint64_t seed = random_seed();
  for (uint64_t i = 0; i < 20; ++i) {
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
