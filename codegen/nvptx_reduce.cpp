// reduce: within a thread as a balanced tree, across the lanes of a warp by exchanges with lane ^
// mask, across warps through shared memory; always in the same order. Floats are accumulated in f32
// (f64 if either side is) and rounded once.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/error.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

DType work_type(DType source, DType destination) {
  if (!is_float(source)) return source;
  return source == F64 || destination == F64 ? F64 : F32;
}

Scalar smallest(DType dtype) {
  if (is_float(dtype)) return Scalar::of_float(dtype, -std::numeric_limits<double>::infinity());
  if (!is_signed_int(dtype)) return Scalar::of_int(dtype, 0);
  return Scalar::of_int(dtype, INT64_MIN >> (64 - 8 * size_of(dtype)));
}

Scalar largest(DType dtype) {
  if (is_float(dtype)) return Scalar::of_float(dtype, std::numeric_limits<double>::infinity());
  return Scalar::of_int(dtype, ~smallest(dtype).i);
}

// What a reduction does to values of one dtype.
class Reduction {
 public:
  Reduction(Builder& builder, const std::string& kind, DType dtype)
      : b(builder), dtype_(dtype), absolute_(kind == "absmax") {
    const Scalar zero = is_float(dtype) ? Scalar::of_float(dtype, 0) : Scalar::of_int(dtype, 0);
    identity_ = b.constant(zero);
    extremum_ = kind == "max" || kind == "min" || absolute_;
    if (kind == "max" || absolute_) code_ = OpCode::Max;
    if (kind == "max") identity_ = b.constant(smallest(dtype));
    if (kind == "min") code_ = OpCode::Min, identity_ = b.constant(largest(dtype));
    if (kind == "and") code_ = OpCode::And, identity_ = llvm::Constant::getAllOnesValue(type());
    if (kind == "or") code_ = OpCode::Or;
    if (kind == "xor") code_ = OpCode::Xor;
  }

  Val identity() const { return identity_; }
  Val element(Val x) { return absolute_ ? absolute(b, dtype_, x) : x; }
  Val combine(Val x, Val y) { return binary(b, code_, dtype_, x, y); }
  // Neighbours in pairs, so that no operation waits for all before it.
  Val combine(Values values) {
    while (values.size() > 1) {
      Values halves;
      for (size_t i = 0; i + 1 < values.size(); i += 2)
        halves.push_back(combine(values[i], values[i + 1]));
      if (values.size() % 2) halves.push_back(values.back());
      values = std::move(halves);
    }
    return values.empty() ? identity_ : values[0];
  }
  // Of nothing but NaNs, or of absolute values that wrapped, the extremum is the identity.
  Val finish(Val x) { return extremum_ ? combine(identity_, x) : x; }

 private:
  llvm::Type* type() { return b.value_type(dtype_); }

  Builder& b;
  DType dtype_;
  OpCode code_ = OpCode::Add;
  bool absolute_, extremum_;
  Val identity_;
};

// Bit w: is warp w the first of those that hold the same part of the same lines?
uint64_t first_warps(const ReducePlan& plan) {
  std::set<std::pair<int64_t, Coordinate>> seen;
  uint64_t first = 0;
  for (int64_t warp = 0; warp < plan.result.warps(); ++warp) {
    const Owner owner{.warp = warp};
    if (seen.insert({plan.part(owner), plan.result.coordinate(owner)}).second)
      first |= uint64_t{1} << warp;
  }
  return first;
}

// The lanes that are the first of those that hold the same lines.
int first_lane_mask(const Layout& result) {
  int copies = 0;
  const Images& lanes = result.atom()[Resource::Lane];
  for (size_t bit = 0; bit < lanes.size(); ++bit)
    if (std::ranges::all_of(lanes[bit], [](int64_t image) { return image == 0; }))
      copies |= 1 << bit;
  return copies;
}

}  // namespace

class ReduceEmitter {
 public:
  ReduceEmitter(Emitter& emitter, const Op& op, const Fragment& source, Fragment& destination)
      : e(emitter),
        b(emitter.b),
        op_(op),
        source_(source),
        destination_(destination),
        work_(work_type(source.dtype, destination.dtype)),
        with_(b, op.word("kind"), work_) {}

  void emit() {
    const auto dim = static_cast<int>(op_.integer("dim"));
    std::optional<ReducePlan> plan = plan_reduction(*source_.layout, dim);
    const bool kept = destination_.layout->rank() == source_.layout->rank();
    if (!plan || (kept ? insert_axis(plan->result, dim) : plan->result) != *destination_.layout)
      throw InternalError(op_.loc, "reduce: the destination's layout is not that of the result");
    Values results;
    for (const std::vector<int>& sources : plan->sources) results.push_back(in_thread(sources));
    for (const int mask : plan->lane_masks)
      for (Val& result : results) result = with_.combine(result, shuffle_xor(b, result, mask));
    if (plan->parts > 1) across_warps(*plan, results);
    for (size_t reg = 0; reg < results.size(); ++reg) store(with_.finish(results[reg]), reg);
  }

 private:
  Val in_thread(const std::vector<int>& sources) {
    Values values;
    for (const int reg : sources) {
      Val x = cast(b, source_.registers[static_cast<size_t>(reg)], source_.dtype, work_);
      Val valid = e.in_tile(*source_.layout, int64_t{reg});
      x = with_.element(x);
      values.push_back(valid ? b.ir.CreateSelect(valid, x, with_.identity()) : x);
    }
    return with_.combine(std::move(values));
  }

  // One thread of those that hold a part of a line writes it; all read the parts of theirs.
  void across_warps(const ReducePlan& plan, Values& results) {
    Coordinate expected = destination_.layout->shape();
    expected.insert(expected.begin(), plan.parts);
    const bool given = static_cast<bool>(op_.operand(2));
    if (!given || e.kernel().type(op_.operand(2)).shape != expected)
      throw InternalError(
          op_.loc,
          fmt::format("reduce: warps have parts of the result: expected a scratch "
                      "tile of extents {}, got {}",
                      tuple_text(expected), given ? str(e.kernel().type(op_.operand(2))) : "none"));
    Place scratch = e.place(op_.operand(2));
    if (is_float(work_) ? size_of(scratch.dtype) < size_of(work_) : scratch.dtype != work_)
      throw InternalError(op_.loc, "reduce: the scratch tile cannot hold a partial result");
    const Layout walk = insert_axis(*destination_.layout, 0);
    llvm::Type* stored = b.memory_type(scratch.dtype);
    const auto part = [&](Val index) {
      Place of = scratch;
      of.axes[0].start = index;
      of.axes[0].size = 1;
      of.axes[0].extent = b.i32(1);
      of.axes[0].sure_begin = 0, of.axes[0].sure_end = 1;
      return SharedAddresses(e, of, walk);
    };
    const Val sources[] = {b.i32(0), e.lane(), e.warp(), b.i32(0)};
    SharedAddresses own = part(e.evaluate(plan.part, sources));
    b.when(is_first(plan), [&] {
      for (size_t reg = 0; reg < results.size(); ++reg) {
        const auto r = static_cast<int64_t>(reg);
        b.when(e.in_tile(walk, r), [&] {
          Val value = cast(b, results[reg], work_, scratch.dtype);
          b.ir.CreateStore(b.to_memory(value, scratch.dtype), own(r));
        });
      }
    });
    e.barrier();
    std::vector<Values> parts(results.size());
    for (int64_t p = 0; p < plan.parts; ++p) {
      SharedAddresses from = part(b.i32(p));
      for (size_t reg = 0; reg < results.size(); ++reg) {
        Val value = b.ir.CreateLoad(stored, from(static_cast<int64_t>(reg)));
        parts[reg].push_back(cast(b, b.from_memory(value, scratch.dtype), scratch.dtype, work_));
      }
    }
    for (size_t reg = 0; reg < results.size(); ++reg)
      results[reg] = with_.combine(std::move(parts[reg]));
  }

  // Null: every thread is.
  Val is_first(const ReducePlan& plan) {
    Val first = nullptr;
    if (const int copies = first_lane_mask(plan.result))
      first = b.ir.CreateICmpEQ(b.ir.CreateAnd(e.lane(), b.i32(copies)), b.i32(0));
    const uint64_t warps = first_warps(plan);
    const auto all = static_cast<unsigned>(plan.result.warps());
    if (warps == (all == 64 ? ~uint64_t{0} : (uint64_t{1} << all) - 1)) return first;
    Val warp = b.ir.CreateLShr(b.i64(static_cast<int64_t>(warps)),
                               b.ir.CreateZExt(e.warp(), b.ir.getInt64Ty()));
    return b.both(first, b.ir.CreateTrunc(warp, b.ir.getInt1Ty()));
  }

  void store(Val result, size_t reg) {
    Val& to = destination_.registers[reg];
    if (!op_.flag("clear")) result = with_.combine(cast(b, to, destination_.dtype, work_), result);
    to = cast(b, result, work_, destination_.dtype);
  }

  Emitter& e;
  Builder& b;
  const Op& op_;
  const Fragment& source_;
  Fragment& destination_;
  DType work_;
  Reduction with_;
};

void Emitter::emit_reduce(const Op& op) {
  ReduceEmitter(*this, op, fragment(op.operands[0]), fragment(op.operands[1])).emit();
}

}  // namespace kiln::nvptx
