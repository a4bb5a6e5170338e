// Sorting and scanning networks over shared tiles: in each step every iteration of a parallel has
// two places of a line to itself. Steps are rounds of loops, so that the code stays short.
//
//  - cumsum (Sklansky's network): in step s, of each block of 2^(s+1) places the second half gets
//    the sum of the first half added, which is at its end.
//  - sort (Batcher's bitonic network in the form that compares in one direction only): blocks of
//    2^s places in order become blocks of 2^(s+1): place i of the first is compared with place i
//    from the end of the second, then places 2^(s-1), …, 1 apart. The later one always goes to
//    the higher place. So a line that is not a power of two long needs no filling: what lies
//    beyond its end counts as last and stays there.
//    Of K first ones only, blocks of K places are sorted; then of two blocks the better half stays.
//    Each key goes with its position, which decides between equal keys. A NaN is replaced by −∞
//    with a position beyond all others.
//  - arg_reduce: the least position at which there is the largest element.
#include <bit>
#include <limits>
#include <optional>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

using Index = std::span<const Value>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Steps in which blocks of 1 grow to `extent` places, doubling.
int64_t doublings(int64_t extent) {
  return std::bit_width(static_cast<uint64_t>(extent - 1));
}

// The dtype that keys are compared in: fp8 has no arithmetic of its own, e4m3 no infinity, and an
// infinity that is converted to e5m2 is one no more.
DType compared_as(DType keys) {
  return keys == E4M3 || keys == E5M2 ? F16 : keys;
}

class Expansion {
 public:
  Expansion(Builder& build, const Op& op)
      : build_(build),
        kernel_(build.kernel()),
        in_(op.operands),
        shape_(kernel_.type(in_[0]).shape),
        dim_(static_cast<size_t>(op.integer("dim"))),
        extent_(shape_[dim_]) {}

  void arg_reduce(const std::string& kind);
  void cumsum(bool reverse);
  void sort();

 private:
  struct Pair {
    Value low, high;  // places
  };

  Value constant(int64_t value) { return build_.constant(I32, value); }
  Value binary(OpCode code, Value a, Value b) { return build_.binary(code, a, b); }
  Value add(Value a, Value b) { return binary(OpCode::Add, a, b); }
  Value sub(Value a, Value b) { return binary(OpCode::Sub, a, b); }
  Value plus(Value a, int64_t number) { return add(a, constant(number)); }
  Value power_of_two(Value log) { return binary(OpCode::Shl, constant(1), log); }
  Value remainder(Value a, Value log) {  // a mod 2^log
    Value mask = plus(power_of_two(log), -1);
    return binary(OpCode::And, a, mask);
  }
  // Where the pair of blocks begins in which the point is: 2^log points have one pair of blocks of
  // 2^stride places.
  Value start_of_blocks(Value point, Value log, Value stride) {
    Value number = binary(OpCode::Shr, point, log);
    Value blocks = binary(OpCode::Shl, number, constant(1));
    return binary(OpCode::Shl, blocks, stride);
  }

  // A shared tile of the keys' shape with the elements of `source`.
  Value staged(Value source, DType dtype) {
    Value tile = build_.alloc(Space::Shared, dtype, shape_);
    build_.emit(OpCode::Copy, {source, tile});
    return tile;
  }
  // A shared tile's first elements along the axis, as many as the destination has there.
  void hand_over(Value tile, Value destination) {
    const Shape part = kernel_.type(destination).shape;
    Value first = tile;
    if (part != kernel_.type(tile).shape)
      first = build_.slice(tile, std::vector<Value>(part.size(), constant(0)), part);
    build_.emit(OpCode::Copy, {first, destination});
  }
  void reduce(const char* kind, Value source, Value destination) {
    Attrs attrs;
    attrs.set("kind", std::string(kind));
    attrs.set("dim", static_cast<int64_t>(dim_));
    build_.emit(OpCode::Reduce, {source, destination}, std::move(attrs));
  }

  template <class Body>
  void serial(int64_t rounds, Body&& body) {
    serial(constant(rounds), body);
  }
  template <class Body>
  void serial(Value rounds, Body&& body) {
    Value zero = constant(0), one = constant(1);
    RegionId region = build_.add_region(build_.emit(OpCode::For, {zero, rounds, one}));
    Value round = kernel_.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build_, region);
    body(round);
  }
  Shape with_extent(int64_t extent) const {
    Shape shape = shape_;
    shape[dim_] = extent;
    return shape;
  }
  // For `points` of every line: body(at, point), where at(place) is the index of a place of it.
  template <class Body>
  void each(int64_t points, Body&& body) {
    build_.parallel(with_extent(points), [&](Index i) {
      auto at = [&](Value place) {
        std::vector<Value> index(i.begin(), i.end());
        index[dim_] = place;
        return index;
      };
      body(at, i[dim_]);
    });
  }

  void number_places();
  void meet(int64_t pairs, Value run, Value stride);
  void settle(int64_t pairs, Value half, Value stride, Value rounds);
  template <class Place>
  void exchange(int64_t pairs, Place&& place);
  void pick();

  Builder& build_;
  Kernel& kernel_;
  const std::vector<Value> in_;
  const Shape shape_;
  const size_t dim_;
  const int64_t extent_;
  Value keys_, positions_;  // of sort
};

void Expansion::arg_reduce(const std::string& kind) {
  const DType own = kernel_.type(in_[0]).dtype, dtype = compared_as(own);
  Value source = in_[0];
  // A parallel reads no fragment through a view; a reduction of e5m2 would saturate infinities.
  if (kernel_.type(source).kind == Kind::View || own != dtype) {
    source = build_.alloc(Space::Fragment, dtype, shape_);
    build_.emit(OpCode::Copy, {in_[0], source});
  }
  Value best = build_.alloc(Space::Fragment, dtype, with_extent(1));
  Value candidates = build_.alloc(Space::Fragment, I32, shape_);
  Value found = build_.alloc(Space::Fragment, I32, with_extent(1));
  reduce(kind.c_str(), source, best);
  each(extent_, [&](auto at, Value i) {
    Value extreme = build_.load(best, at(constant(0)));
    Value hit = build_.compare("eq", build_.load(source, at(i)), extreme);
    build_.store(build_.select(hit, i, constant(extent_)), candidates, at(i));
  });
  reduce("min", candidates, found);
  each(1, [&](auto at, Value i) {
    Value position = build_.load(found, at(i));
    Value none = build_.compare("eq", position, constant(extent_));
    build_.store(build_.select(none, constant(-1), position), found, at(i));
  });
  build_.emit(OpCode::Copy, {found, in_[1]});
}

void Expansion::cumsum(bool reverse) {
  const DType from = kernel_.type(in_[0]).dtype, to = kernel_.type(in_[1]).dtype;
  const DType dtype = !is_float(from) ? from : from == F64 || to == F64 ? F64 : F32;
  Value sums = staged(in_[0], dtype);
  if (const int64_t steps = doublings(extent_))
    serial(steps, [&](Value step) {
      each(int64_t{1} << (steps - 1), [&](auto at, Value point) {
        Value first = start_of_blocks(point, step, step);
        Value second = add(first, power_of_two(step));
        Value low = plus(second, -1), high = add(second, remainder(point, step));
        if (reverse) {
          Value last = constant(extent_ - 1);
          low = sub(last, low), high = sub(last, high);
        }
        Value before = build_.load(sums, at(low)), sum = build_.load(sums, at(high));
        build_.store(add(before, sum), sums, at(high));
      });
    });
  hand_over(sums, in_[1]);
}

void Expansion::sort() {
  const int64_t all = doublings(extent_), kept = doublings(kernel_.type(in_[1]).shape[dim_]);
  keys_ = staged(in_[0], compared_as(kernel_.type(in_[0]).dtype));
  positions_ = build_.alloc(Space::Shared, I32, shape_);
  number_places();
  if (kept > 0)
    serial(kept, [&](Value run) {
      const int64_t pairs = int64_t{1} << (all - 1);
      meet(pairs, run, run);
      settle(pairs, run, run, run);
    });
  for (int64_t stride = kept; stride < all; ++stride) {
    const int64_t pairs = int64_t{1} << (all - 1 - stride + kept);
    Value run = constant(kept), apart = constant(stride);
    meet(pairs, run, apart);
    if (kept > 0) settle(pairs / 2, plus(run, -1), apart, run);
  }
  pick();
}

// Positions, those of NaNs behind all others.
void Expansion::number_places() {
  const int64_t behind = int64_t{1} << doublings(extent_);
  const DType dtype = kernel_.type(keys_).dtype;
  each(extent_, [&](auto at, Value i) {
    if (!is_float(dtype)) return build_.store(i, positions_, at(i));
    Value key = build_.load(keys_, at(i));
    Value is_nan = build_.compare("ne", key, key);
    build_.store(build_.select(is_nan, build_.constant(dtype, -kInfinity), key), keys_, at(i));
    build_.store(build_.select(is_nan, add(i, constant(behind)), i), positions_, at(i));
  });
}

// Runs of 2^run places in order begin 2^stride apart: of every two the first gets the better half.
void Expansion::meet(int64_t pairs, Value run, Value stride) {
  exchange(pairs, [&](Value pair) {
    Value first = start_of_blocks(pair, run, stride), place = remainder(pair, run);
    Value second = add(first, power_of_two(stride));
    Value last = plus(add(second, power_of_two(run)), -1);
    return Pair{add(first, place), sub(last, place)};
  });
}

// Puts runs of 2^(half+1) places, 2^(stride+1) apart, in order, that only lack comparisons at
// distances 2^(rounds-1), …, 2, 1.
void Expansion::settle(int64_t pairs, Value half, Value stride, Value rounds) {
  serial(rounds, [&](Value round) {
    Value log = sub(plus(rounds, -1), round);
    exchange(pairs, [&](Value pair) {
      Value first = start_of_blocks(pair, half, stride), inside = remainder(pair, half);
      Value block = add(first, start_of_blocks(inside, log, log));
      Value low = add(block, remainder(inside, log));
      return Pair{low, add(low, power_of_two(log))};
    });
  });
}

// Of each pair of places, the element that comes first goes to the low one. What is stored beyond
// the end of the line is dropped, so the low one must keep its own there.
template <class Place>
void Expansion::exchange(int64_t pairs, Place&& place) {
  each(pairs, [&](auto at, Value pair) {
    const auto [low, high] = place(pair);
    Value a = build_.load(keys_, at(low)), b = build_.load(keys_, at(high));
    Value a_at = build_.load(positions_, at(low)), b_at = build_.load(positions_, at(high));
    Value larger = build_.compare("gt", b, a), equal = build_.compare("eq", a, b);
    Value earlier = binary(OpCode::And, equal, build_.compare("lt", b_at, a_at));
    Value swap = binary(OpCode::Or, larger, earlier);
    swap = binary(OpCode::And, swap, build_.compare("lt", high, constant(extent_)));
    build_.store(build_.select(swap, b, a), keys_, at(low));
    build_.store(build_.select(swap, a, b), keys_, at(high));
    build_.store(build_.select(swap, b_at, a_at), positions_, at(low));
    build_.store(build_.select(swap, a_at, b_at), positions_, at(high));
  });
}

// What stands at the first places goes to the results: picked from the values and, where they were
// converted to be compared, from the keys themselves.
void Expansion::pick() {
  Value order = in_[1], sorted = in_.size() > 2 ? in_[2] : Value{};
  const int64_t kept = kernel_.type(order).shape[dim_];
  const int64_t behind = int64_t{1} << doublings(extent_);
  const DType dtype = kernel_.type(keys_).dtype;
  struct Picked {
    Value from, to;
  };
  auto picked_from = [&](Value source) {
    const DType own = kernel_.type(source).dtype;
    Value from = staged(source, own);
    return Picked{from, build_.alloc(Space::Shared, own, with_extent(kept))};
  };
  std::optional<Picked> values, own_keys;
  if (in_.size() > 3) values = picked_from(in_[3]);
  if (sorted && kernel_.type(in_[0]).dtype != dtype) own_keys = picked_from(in_[0]);
  each(kept, [&](auto at, Value i) {
    Value place = build_.load(positions_, at(i)), position = place;
    if (is_float(dtype)) position = binary(OpCode::And, place, constant(behind - 1));
    for (const auto& picked : {values, own_keys})
      if (picked) build_.store(build_.load(picked->from, at(position)), picked->to, at(i));
    if (!values) build_.store(position, positions_, at(i));
    if (!is_float(dtype) || own_keys) return;
    Value is_nan = build_.compare("ge", place, constant(behind));
    Value nan = build_.constant(dtype, std::numeric_limits<double>::quiet_NaN());
    build_.store(build_.select(is_nan, nan, build_.load(keys_, at(i))), keys_, at(i));
  });
  hand_over(values ? values->to : positions_, order);
  if (sorted) hand_over(own_keys ? own_keys->to : keys_, sorted);
}

}  // namespace

void expand_row_ops(Kernel& kernel) {
  ValueMap names;  // none of the three has a result
  rewrite(kernel, kernel.body, names, [&](Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    switch (op.code) {
      case OpCode::ArgReduce:
        Expansion(build, op).arg_reduce(std::string(op.word("kind")));
        return true;
      case OpCode::Cumsum: Expansion(build, op).cumsum(op.flag("reverse")); return true;
      case OpCode::Sort: Expansion(build, op).sort(); return true;
      default: return false;
    }
  });
}

}  // namespace kiln
