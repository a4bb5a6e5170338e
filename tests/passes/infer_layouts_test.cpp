// infer_layouts on random programs: the law of tests/passes/layout_law.h, and the results.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "ir/builder.h"
#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "tests/differential/generator.h"
#include "tests/passes/layout_law.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

using testing::broken_layout_law;
using testing::RandomBindings;

// The GPU tier's passes before infer_layouts.
void lower(Kernel& kernel) {
  kernel.target = "sm_90";
  for (const Pass& pass : pipeline_for(Tier::Sm80)) {
    if (pass.name == "infer_layouts") return;
    pass.run(kernel);
  }
}

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  bool chance(int64_t percent) { return pick(1, 100) <= percent; }
  template <class T>
  T of(const std::vector<T>& all) {
    return all[static_cast<size_t>(pick(0, static_cast<int64_t>(all.size()) - 1))];
  }
  template <class T>
  void shuffle(std::vector<T>& all) {
    std::shuffle(all.begin(), all.end(), engine_);
  }

 private:
  std::mt19937_64 engine_;
};

// Any layout of a fragment: those that the pass would choose itself, and others that it never
// would, with axes out of order, copies in registers, lanes and warps, and padding.
Layout any_layout(Random& random, const Shape& shape, int64_t warps) {
  const int rank = static_cast<int>(shape.size());
  Coordinate reversed(shape.rbegin(), shape.rend());
  std::vector<int> order;
  for (int axis = rank; axis-- > 0;) order.push_back(axis);
  const auto axis = [&] { return static_cast<int>(random.pick(0, rank - 1)); };
  switch (random.pick(0, 7)) {
    case 0: return blocked(shape, warps, 4);
    case 1: return permute_axes(blocked(reversed, warps, 4), order);
    case 2: {
      Coordinate wider = shape;
      wider.insert(wider.begin(), random.pick(2, 16));
      return reduce_axis(blocked(wider, warps, 4), 0);
    }
    case 3:
      if (count(shape) <= 64) return replicated(shape, warps);
      break;
    case 4:
      if (rank == 2) return mma_accumulator(shape[0], shape[1], {warps, 1, 1});
      break;
    case 5: return blocked(shape, warps, 4).repeat(Resource::Reg, 2, kNoAxis).crop(shape);
    case 6: {  // a register and a lane exchange elements: cannot be reduced as it is
      Layout::Parts parts = blocked(shape, warps, 4).parts();
      parts.atom[Resource::Reg].push_back(parts.atom[Resource::Lane].front());
      parts.extents[static_cast<size_t>(Resource::Reg)] *= 2;
      for (Digit& digit : parts.digits)
        if (digit.resource == Resource::Reg) digit.stride *= 2;
      return Layout(std::move(parts));
    }
    default: break;
  }
  Layout layout(rank);
  for (int lanes = 0; lanes < 5; ++lanes) layout = layout.repeat(Resource::Lane, 2, axis());
  layout = layout.repeat(Resource::Warp, warps, axis());
  for (int a = 0; a < rank; ++a) {
    const int64_t covered = layout.padded_shape()[static_cast<size_t>(a)];
    layout =
        layout.repeat(Resource::Reg, (shape[static_cast<size_t>(a)] + covered - 1) / covered, a);
  }
  return layout.crop(shape);
}

void give_any_layouts(Kernel& kernel, Random& random, int64_t warps) {
  walk(kernel, kernel.body, [&](OpId id) {
    Op& op = kernel.op(id);
    if (op.code == OpCode::Launch) op.attrs.set("warps", warps);
    if (op.code != OpCode::Alloc || random.pick(0, 3) == 0) return;
    const Type& type = kernel.type(op.result);
    if (type.space == Space::Fragment && !type.shape.empty())
      set_layout(op, any_layout(random, type.shape, warps));
  });
}

// Loops that reach fragments in every way that the language permits: axes in any order and left
// out, constant 0 on axes of 1, extents other than the loop's, one fragment in two ways, and
// memory that is read and written; then copies and reductions between the fragments.
class Loops {
 public:
  Loops(Random& random, int64_t warps) : random_(random), kernel_("loops"), build_(kernel_) {
    build_.loc = {"loops", 1};
    input_ = tensor("input", {kMost, kMost, kMost});
    output_ = tensor("output", {kTiles, kMost, kMost, kMost});
    Attrs attrs;
    attrs.set("warps", warps);
    OpId launch = build_.emit(OpCode::Launch, {build_.constant(I32, 1)}, std::move(attrs));
    RegionId body = build_.add_region(launch);
    kernel_.add_argument(body, Type::scalar(I32));
    Builder::Scope scope(build_, body);
    for (int i = 0; i < kTiles; ++i) make_tile();
    for (int i = 0; i < 3; ++i) add_loop();
    for (int i = 0; i < 3; ++i) add_copy();
    for (int i = 0; i < 2; ++i) add_reduce();
    for (int64_t i = 0; i < kTiles; ++i) copy_out(i);
  }
  Kernel take() { return std::move(kernel_); }

 private:
  static constexpr int64_t kMost = 9, kTiles = 6;

  Value tensor(const char* name, Shape shape) {
    Attrs attrs;
    attrs.set("name", std::string(name));
    attrs.set("role", std::string(name));
    return kernel_.op(build_.emit(OpCode::Tensor, {}, attrs, Type::tensor(I32, shape))).result;
  }
  const Shape& shape(Value tile) const { return kernel_.type(tile).shape; }
  Value zero() { return build_.constant(I32, 0); }

  void make_tile() {
    Shape extents;
    for (int64_t rank = random_.pick(0, 3); rank > 0; --rank)
      extents.push_back(random_.of<int64_t>({1, 1, 2, 3, 3, 8, 8, 9}));
    const Space space = random_.chance(80) ? Space::Fragment : Space::Shared;
    Value tile = build_.alloc(space, random_.of<DType>({I32, I16, F32, F16}), extents);
    Shape sizes = extents;
    sizes.insert(sizes.begin(), 3 - extents.size(), 1);
    Value from = build_.slice(input_, {zero(), zero(), zero()}, sizes);
    build_.emit(OpCode::Copy, {from, tile});
    tiles_.push_back(tile);
  }

  void copy_out(int64_t i) {
    Value tile = tiles_[static_cast<size_t>(i)];
    Shape sizes = shape(tile);
    sizes.insert(sizes.begin(), 4 - sizes.size(), 1);
    Value to = build_.slice(output_, {build_.constant(I32, i), zero(), zero(), zero()}, sizes);
    build_.emit(OpCode::Copy, {tile, to});
  }

  // An index for each axis of the tile: for a store, one that no other iteration has.
  std::optional<std::vector<Value>> index(const Shape& extents, std::span<const Value> own,
                                          Value tile, bool stores) {
    std::vector<size_t> free;
    for (size_t axis = 0; axis < own.size(); ++axis) free.push_back(axis);
    random_.shuffle(free);
    std::vector<Value> at;
    for (const int64_t extent : shape(tile)) {
      const auto fits = [&](size_t axis) { return !stores || extents[axis] == extent; };
      const auto axis = std::find_if(free.begin(), free.end(), fits);
      if (extent == 1 && random_.chance(60)) {
        at.push_back(zero());
      } else if (axis != free.end()) {
        at.push_back(own[*axis]);
        free.erase(axis);
      } else if (extent == 1) {
        at.push_back(zero());
      } else {
        return std::nullopt;
      }
    }
    const bool all =
        std::all_of(free.begin(), free.end(), [&](size_t a) { return extents[a] == 1; });
    if (stores && !all) return std::nullopt;
    return at;
  }

  void add_loop() {
    Shape extents = shape(random_.of(tiles_));
    random_.shuffle(extents);
    if (extents.size() < 3 && random_.chance(30)) extents.push_back(random_.of<int64_t>({1, 2, 5}));
    build_.parallel(extents, [&](std::span<const Value> own) {
      Value sum = build_.constant(F32, 1);
      Value stored;
      std::vector<Value> at;
      for (int i = 0; i < 4 && !stored; ++i) {
        Value tile = random_.of(tiles_);
        if (auto place = index(extents, own, tile, true)) at = *place, stored = tile;
      }
      std::vector<Value> others;  // any of these iterations reads it, so none writes it
      for (Value tile : tiles_)
        if (tile != stored && random_.chance(50)) others.push_back(tile);
      for (Value tile : others)
        for (int times = static_cast<int>(random_.pick(1, 2)); times > 0; --times)
          if (auto place = index(extents, own, tile, false))
            sum = build_.binary(OpCode::Add, sum, build_.cast(build_.load(tile, *place), F32));
      if (!stored) return;
      // The same element, its axes of 1 indexed as before or by 0.
      std::vector<Value> again = at;
      for (size_t axis = 0; axis < again.size(); ++axis)
        if (shape(stored)[axis] == 1 && random_.chance(50)) again[axis] = zero();
      const auto changed = [&](OpCode code) {
        Value old = build_.cast(build_.load(stored, again), F32);
        return build_.binary(code, sum, old);
      };
      if (random_.chance(50)) sum = changed(OpCode::Sub);
      build_.store(sum, stored, at);
      if (random_.chance(30)) build_.store(changed(OpCode::Add), stored, again);
    });
  }

  void add_copy() {
    Value from = random_.of(tiles_), to = random_.of(tiles_);
    if (from != to && without_units(shape(from)) == without_units(shape(to)))
      build_.emit(OpCode::Copy, {from, to});
  }

  void add_reduce() {
    Value from = random_.of(tiles_), to = random_.of(tiles_);
    if (from == to || is_float(kernel_.type(from).dtype) != is_float(kernel_.type(to).dtype))
      return;
    if (!is_float(kernel_.type(from).dtype) && kernel_.type(from).dtype != kernel_.type(to).dtype)
      return;
    for (size_t dim = 0; dim < shape(from).size(); ++dim) {
      Shape removed = shape(from), kept = shape(from);
      removed.erase(removed.begin() + static_cast<std::ptrdiff_t>(dim));
      kept[dim] = 1;
      if (shape(to) != removed && shape(to) != kept) continue;
      Attrs attrs;
      attrs.set("kind", std::string("max"));
      attrs.set("dim", static_cast<int64_t>(dim));
      attrs.set("clear", random_.chance(50));
      build_.emit(OpCode::Reduce, {from, to}, std::move(attrs));
      return;
    }
  }

  Random& random_;
  Kernel kernel_;
  Builder build_;
  Value input_, output_;
  std::vector<Value> tiles_;
};

struct Inputs {
  std::map<std::string, int64_t> dims;
  bool any_bits = false;
};

void expect_legal(const Kernel& before, const Inputs& inputs, uint64_t seed) {
  Kernel after = before;
  infer_layouts(after);
  verify(after);
  const std::string broken = broken_layout_law(after);
  if (!broken.empty()) FAIL_CHECK(broken << print(before) << "\nbecame\n" << print(after));
  testing::RandomOptions options;
  options.seed = seed;
  options.any_bits = inputs.any_bits;
  RandomBindings expected(before, inputs.dims, {}, options), actual = expected;
  interpret(before, expected.bindings());
  interpret(after, actual.bindings());
  CHECK(actual.difference(expected, std::nullopt) == "");
}

TEST_CASE("infer_layouts: random programs become legal and keep their results", "[long]") {
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 500; ++seed) {
    INFO("seed " << seed);
    const differential::Program program = differential::generate(seed);
    Kernel kernel = program.kernel;
    differential::drop_watches(kernel);
    lower(kernel);
    expect_legal(kernel, {program.dims, program.any_bits}, seed);
  }
}

TEST_CASE("infer_layouts: whatever layouts tiles have, ops find their elements", "[long]") {
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 300; ++seed) {
    INFO("seed " << seed);
    const differential::Program program = differential::generate(seed);
    Kernel kernel = program.kernel;
    differential::drop_watches(kernel);
    lower(kernel);
    Random random(seed);
    give_any_layouts(kernel, random, random.of<int64_t>({1, 2, 3, 4, 8}));
    expect_legal(kernel, {program.dims, program.any_bits}, seed);
  }
}

TEST_CASE("infer_layouts: its tile files become legal") {
  int checked = 0;
  const auto folder = std::filesystem::path(KILN_TESTS_DIR) / "files" / "infer_layouts";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    if (text.str().find("ERROR:") != std::string::npos) continue;
    Kernel kernel = parse(text.str());
    kernel.target = "sm_90";
    infer_layouts(kernel);
    INFO(entry.path().filename());
    CHECK(broken_layout_law(kernel) == "");
    ++checked;
  }
  CHECK(checked >= 8);
}

TEST_CASE("infer_layouts: loops that reach fragments in every way", "[long]") {
  const uint64_t first = std::random_device{}();
  for (uint64_t seed = first; seed < first + 1500; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    const int64_t warps = random.of<int64_t>({1, 2, 3, 4});
    Kernel kernel = Loops(random, warps).take();
    verify(kernel);
    if (random.chance(70)) give_any_layouts(kernel, random, warps);
    expect_legal(kernel, {}, seed);
  }
}

}  // namespace
}  // namespace kiln
