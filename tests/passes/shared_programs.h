// Random launches whose threads share much memory: tiles of several sizes made anywhere, written,
// read and copied in nested loops and branches, cp_async copies, tensors written and read back,
// reductions through scratch. For the passes that place tiles and insert barriers; not to be run,
// as some read what was never written.
#pragma once

#include <random>
#include <vector>

#include "ir/builder.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"

namespace kiln::testing {

class SharedProgram {
 public:
  static Kernel make(uint64_t seed) {
    SharedProgram program(seed);
    return std::move(program.kernel_);
  }

 private:
  static constexpr int64_t kRow = 16;

  explicit SharedProgram(uint64_t seed) : kernel_("shared"), build_(kernel_), random_(seed) {
    kernel_.target = "sm_90";
    input_ = tensor("x", "input");
    memory_ = {tensor("w", "workspace"), tensor("z", "inout")};
    output_ = tensor("y", "output");
    const Value one = build_.constant(I32, 1);
    const RegionId body = build_.add_region(build_.emit(OpCode::Launch, {one}));
    index_ = {kernel_.add_argument(body, Type::scalar(I32))};
    Builder::Scope scope(build_, body);
    fragment_ = build_.alloc(Space::Fragment, F32, {kRow});
    square_ = build_.alloc(Space::Fragment, F32, {kRow, kRow});
    condition_ = build_.compare("lt", index_[0], build_.constant(I32, 3));
    add_tile();
    statements(3, between(4, 12));
  }

  int between(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<unsigned>(high - low + 1));
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(between(0, static_cast<int>(from.size()) - 1))];
  }

  Value tensor(const char* name, const char* role) {
    Attrs attrs;
    attrs.set("name", std::string(name));
    attrs.set("role", std::string(role));
    return build_.kernel()
        .op(build_.emit(OpCode::Tensor, {}, std::move(attrs), Type::tensor(F32, {1024, 1024})))
        .result;
  }
  Value shared(const Shape& shape, const Layout& layout) {
    const Value tile = build_.alloc(Space::Shared, F32, shape);
    set_layout(kernel_.op(kernel_.def(tile)), layout);
    return tile;
  }
  void add_tile() {
    const int64_t rows = between(1, 5);
    tiles_.push_back(shared(
        {rows, kRow}, between(0, 1) ? row_major({rows, kRow}) : shared_tile({rows, kRow}, 4)));
  }

  Value zero() { return build_.constant(I32, 0); }
  Value row(Value storage) {
    Value at = build_.constant(I32, between(0, 3));
    if (between(0, 1)) at = build_.binary(OpCode::Add, at, pick(index_));
    Value column = zero();
    if (between(0, 1))
      column = build_.binary(OpCode::Mul, pick(index_), build_.constant(I32, 8 * between(0, 4)));
    return build_.slice(storage, {at, column}, {1, kRow});
  }
  Value row_of_tile() { return build_.slice(pick(tiles_), {zero(), zero()}, {1, kRow}); }
  void copy(Value from, Value to, bool async = false) {
    Attrs attrs;
    if (async) attrs.set("instruction", std::string("cp_async"));
    build_.emit(OpCode::Copy, {from, to}, std::move(attrs));
  }

  void statements(int depth, int count) {
    const size_t tiles = tiles_.size(), indices = index_.size();
    for (int i = 0; i < count; ++i) statement(depth);
    tiles_.resize(tiles);
    index_.resize(indices);
  }

  void statement(int depth) {
    switch (between(0, depth > 0 ? 13 : 10)) {
      case 0: return add_tile();
      case 1:
      case 2:
      case 3: return copy(row(input_), row_of_tile(), true);
      case 4: return copy(row(pick(memory_)), row_of_tile(), between(0, 1));
      case 5:
      case 6: return copy(row_of_tile(), fragment_);
      case 7: return copy(fragment_, row_of_tile());
      case 8: return copy(fragment_, row(between(0, 1) ? output_ : pick(memory_)));
      case 9: return store_elements();
      case 10: return reduce();
      case 11: return branch(depth);
      case 12: return loop(depth);
      default: return between(0, 1) ? loop(depth) : loop_with_exits(depth);
    }
  }

  void store_elements() {
    const Value base = between(0, 1) ? pick(tiles_) : between(0, 1) ? output_ : pick(memory_);
    const Value at = pick(index_);
    const bool atomic = base != output_ && between(0, 3) == 0;
    build_.parallel({kRow}, [&](std::span<const Value> index) {
      Value column = index[0];
      if (between(0, 1)) column = build_.binary(OpCode::Add, column, at);
      const Value value = build_.load(fragment_, {index[0]});
      if (atomic)
        build_.atomic("add", value, base, {at, column});
      else
        build_.store(value, base, {at, column});
    });
  }

  void reduce() {
    Attrs attrs;
    attrs.set("kind", std::string("sum"));
    attrs.set("dim", int64_t{0});
    const Value scratch = shared({2, kRow}, row_major({2, kRow}));
    build_.emit(OpCode::Reduce, {square_, fragment_, scratch}, std::move(attrs));
  }

  void branch(int depth) {
    const OpId op = build_.emit(OpCode::If, {condition_});
    for (int side = between(1, 2); side > 0; --side) {
      Builder::Scope scope(build_, build_.add_region(op));
      statements(depth - 1, between(1, 5));
    }
  }

  void loop(int depth) {
    const Value begin = zero(), end = pick(index_), step = build_.constant(I32, between(1, 2));
    const RegionId body = build_.add_region(build_.emit(OpCode::For, {begin, end, step}));
    index_.push_back(kernel_.add_argument(body, Type::scalar(I32)));
    {
      Builder::Scope scope(build_, body);
      statements(depth - 1, between(1, 6));
    }
    index_.pop_back();
  }

  void loop_with_exits(int depth) {
    const RegionId body = build_.add_region(build_.emit(OpCode::Loop, {}));
    Builder::Scope scope(build_, body);
    statements(depth - 1, between(0, 2));
    for (int exit = between(1, 2); exit > 0; --exit) {
      {
        const OpId op = build_.emit(OpCode::ExitIf, {condition_});
        Builder::Scope tail(build_, build_.add_region(op));
        statements(depth - 1, between(0, 1));
      }
      statements(depth - 1, between(0, 1));
    }
  }

  Kernel kernel_;
  Builder build_;
  std::mt19937_64 random_;
  Value input_, output_, fragment_, square_, condition_;
  std::vector<Value> memory_, tiles_, index_;
};

}  // namespace kiln::testing
