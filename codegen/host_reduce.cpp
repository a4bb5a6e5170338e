// reduce: along the last axis several vectors are accumulated and folded at the end; along another
// one, vectors lie along the last axis and nothing is folded. Floats are accumulated in f32 (f64 if
// either side is) and rounded once.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"

namespace kiln::host {
namespace {

class Reducer {
 public:
  Reducer(Builder& builder, const std::string& kind, DType dtype)
      : b(builder), kind_(kind), dtype_(dtype) {}

  Val identity(int lanes) {
    llvm::Type* type = Builder::widen(b.value_type(dtype_), lanes);
    const uint64_t bits = 8 * size_of(dtype_);
    const double infinity = std::numeric_limits<double>::infinity();
    if (kind_ == "max" || kind_ == "min") {
      const bool low = kind_ == "max";
      if (is_float(dtype_)) return b.real(type, low ? -infinity : infinity);
      const uint64_t top = uint64_t{1} << (bits - 1);
      if (is_signed_int(dtype_)) return b.integer(type, low ? top : top - 1);
      return b.integer(type, low ? 0 : ~uint64_t{0});
    }
    if (kind_ == "and") return llvm::Constant::getAllOnesValue(type);
    return llvm::Constant::getNullValue(type);
  }
  Val element(Val x) { return kind_ == "absmax" ? absolute(b, x, dtype_) : x; }
  Val combine(Val sum, Val x) {
    if (kind_ == "max" || kind_ == "absmax") return maximum(b, sum, x, dtype_);
    if (kind_ == "min") return minimum(b, sum, x, dtype_);
    if (kind_ == "and") return b.ir.CreateAnd(sum, x);
    if (kind_ == "or") return b.ir.CreateOr(sum, x);
    if (kind_ == "xor") return b.ir.CreateXor(sum, x);
    return is_float(dtype_) ? b.ir.CreateFAdd(sum, x) : b.ir.CreateAdd(sum, x);
  }
  // The old value of the destination, which may be a NaN: then the other one counts.
  Val combine_old(Val old, Val x) {
    Val result = combine(old, x);
    const bool extremum = kind_ == "max" || kind_ == "min" || kind_ == "absmax";
    if (!extremum || !is_float(dtype_)) return result;
    return b.ir.CreateSelect(b.ir.CreateFCmpUNO(old, old), x, result);
  }
  Val fold(Val vector) {
    for (int lanes = Builder::lanes_of(vector); lanes > 1; lanes /= 2) {
      std::vector<int> low, high;
      for (int i = 0; i < lanes / 2; ++i) {
        low.push_back(i);
        high.push_back(lanes / 2 + i);
      }
      vector =
          combine(b.ir.CreateShuffleVector(vector, low), b.ir.CreateShuffleVector(vector, high));
    }
    return b.lane(vector, 0);
  }

 private:
  Builder& b;
  std::string kind_;
  DType dtype_;
};

int lanes_for(const Target& target, int64_t count) {
  if (count == 1) return 1;
  return static_cast<int>(std::clamp<uint64_t>(std::bit_ceil(static_cast<uint64_t>(count)), 4,
                                               static_cast<uint64_t>(target.lanes)));
}

}  // namespace

class ReduceEmitter {
 public:
  ReduceEmitter(Emitter& emitter, const Op& op, Place source, Place destination)
      : e(emitter),
        b(emitter.b),
        source_(std::move(source)),
        destination_(std::move(destination)),
        dim_(static_cast<size_t>(op.integer("dim"))),
        last_(source_.axes.size() - 1),
        clear_(op.flag("clear")),
        work_(work_type(source_.dtype, destination_.dtype)),
        width_(source_.axes[last_].size),
        lanes_(lanes_for(b.target, width_)),
        with_(b, op.word("kind"), work_),
        from_(source_.axes.size(), b.i64(0)),
        to_(destination_.axes.size(), b.i64(0)) {}

  // Loops over the axes from `axis` on that are neither reduced nor the last.
  void nest(size_t axis) {
    if (axis >= last_) return dim_ == last_ ? row() : columns();
    if (axis == dim_) return nest(axis + 1);
    b.loop(b.i64(0), source_.axes[axis].extent, b.i64(1), [&](Val index) {
      from_[axis] = to_[destination_axis(axis)] = index;
      nest(axis + 1);
    });
  }

 private:
  static DType work_type(DType source, DType destination) {
    if (!is_float(source)) return source;
    return source == F64 || destination == F64 ? F64 : F32;
  }
  size_t destination_axis(size_t axis) const {
    const bool kept = to_.size() == from_.size();
    return kept || axis < dim_ ? axis : axis - 1;
  }
  Val element(Val column, Val mask) {
    from_[last_] = column;
    Val zero = llvm::Constant::getNullValue(Builder::widen(b.value_type(source_.dtype), lanes_));
    Val x = e.read(source_, e.address(source_, from_), lanes_, mask, zero);
    return with_.element(cast(b, x, source_.dtype, work_));
  }
  void finish(Val sum, int count, Val mask) {
    Val pointer = e.address(destination_, to_);
    if (!clear_) {
      const DType dtype = destination_.dtype;
      Val zero = llvm::Constant::getNullValue(Builder::widen(b.value_type(dtype), count));
      Val old = e.read(destination_, pointer, count, mask, zero);
      sum = with_.combine_old(cast(b, old, dtype, work_), sum);
    }
    e.write(destination_, pointer, cast(b, sum, work_, destination_.dtype), count, mask);
  }

  void columns() {
    e.vector_loop(b.i64(0), b.i64(width_), lanes_, [&](Val column, Val mask) {
      Builder::Values sums =
          b.loop(b.i64(0), source_.axes[dim_].extent, b.i64(1), {with_.identity(lanes_)},
                 [&](Val k, const Builder::Values& sum) {
                   from_[dim_] = k;
                   Val x = element(column, mask);
                   return Builder::Values{with_.combine(sum[0], x)};
                 });
      to_[destination_axis(last_)] = column;
      finish(sums[0], lanes_, mask);
    });
  }

  void row() {
    // Chains that do not wait for each other hide the latency of the operation.
    const int64_t vectors = width_ / lanes_, rest = width_ % lanes_;
    const int64_t chains = std::clamp<int64_t>(vectors, 1, 4);
    const int64_t whole = vectors / chains * chains;
    Val identity = with_.identity(lanes_);
    Builder::Values sums(static_cast<size_t>(chains), identity);
    auto add = [&](Val& sum, Val column) { sum = with_.combine(sum, element(column, nullptr)); };
    sums =
        b.loop(b.i64(0), b.i64(whole * lanes_), b.i64(chains * lanes_), sums,
               [&](Val column, Builder::Values current) {
                 for (int64_t c = 0; c < chains; ++c)
                   add(current[static_cast<size_t>(c)], b.ir.CreateAdd(column, b.i64(c * lanes_)));
                 return current;
               });
    for (int64_t v = whole; v < vectors; ++v)
      add(sums[static_cast<size_t>(v - whole)], b.i64(v * lanes_));
    if (rest) {
      Val mask = b.first(static_cast<int>(rest), lanes_);
      Val x = element(b.i64(vectors * lanes_), mask);
      sums.back() = with_.combine(sums.back(), b.ir.CreateSelect(mask, x, identity));
    }
    for (size_t stride = 1; stride < sums.size(); stride *= 2)
      for (size_t i = 0; i + stride < sums.size(); i += 2 * stride)
        sums[i] = with_.combine(sums[i], sums[i + stride]);
    finish(with_.fold(sums[0]), 1, nullptr);
  }

  Emitter& e;
  Builder& b;
  Place source_, destination_;
  size_t dim_, last_;
  bool clear_;
  DType work_;
  int64_t width_;  // of the last axis
  int lanes_;
  Reducer with_;
  std::vector<Val> from_, to_;
};

void Emitter::emit_reduce(const Op& op) {
  const Place target = place(op.operands[1]);
  const Place destination = inside_copy(target);
  ReduceEmitter(*this, op, inside_copy(place(op.operands[0])), destination).nest(0);
  if (destination.pointer != target.pointer) emit_copy(destination, target, 0.0);
}

}  // namespace kiln::host
