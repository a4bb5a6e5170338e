// copy and fill. The elements to write are a box, those of them that the source has a smaller box
// inside it: rows run over the first, and each is at most three runs, pad, copied, pad. Nothing
// outside a tensor is touched, not even by a vector's unused lanes.
#include <algorithm>
#include <bit>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"
#include "ir/error.h"

namespace kiln::host {

struct Emitter::Transfer {
  const Place* source;  // null: a fill
  const Place* destination;
  Val fill;  // the destination's value where there is no source element
  // Axes of extent other than 1, in order, paired.
  std::vector<size_t> source_axes, destination_axes;
};

namespace {

std::vector<size_t> wide_axes(const Place& place) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < place.axes.size(); ++i)
    if (place.axes[i].size != 1) axes.push_back(i);
  return axes;
}

bool contiguous(const Place& place, size_t axis) {
  return axis + 1 == place.axes.size();
}

}  // namespace

Emitter::Span Emitter::inside_span(const Axis& axis) {
  if (axis.surely_inside()) return {b.i64(0), axis.extent, true};
  Val begin = b.clamp(b.ir.CreateSub(axis.low, axis.start), b.i64(0), axis.extent);
  Val end = b.clamp(b.ir.CreateSub(axis.high, axis.start), begin, axis.extent);
  return {begin, end, false};
}

Val Emitter::units_inside(const Place& place) {
  Val inside = nullptr;
  for (const Axis& axis : place.axes) {
    if (axis.size != 1 || axis.surely_inside()) continue;
    Val here = b.ir.CreateAnd(b.ir.CreateICmpSGE(axis.start, axis.low),
                              b.ir.CreateICmpSLT(axis.start, axis.high));
    inside = inside ? b.ir.CreateAnd(inside, here) : here;
  }
  return inside;
}

void Emitter::emit_copy(const Place& source, const Place& destination, double pad) {
  Val padding = b.constant(Scalar::of_float(F64, pad));
  padding = cast(b, cast(b, padding, F64, source.dtype), source.dtype, destination.dtype);
  transfer({&source, &destination, padding, wide_axes(source), wide_axes(destination)});
}

void Emitter::emit_fill(const Place& destination, Val value, DType dtype) {
  Val converted = cast(b, value, dtype, destination.dtype);
  transfer({nullptr, &destination, converted, {}, wide_axes(destination)});
}

void Emitter::transfer(const Transfer& t) {
  if (t.source && t.source_axes.size() != t.destination_axes.size())
    throw InternalError("copy: shapes do not agree");
  std::vector<Val> from(t.source ? t.source->axes.size() : 0, b.i64(0));
  std::vector<Val> to(t.destination->axes.size(), b.i64(0));
  auto rows = [&] {
    Val inside = t.source ? units_inside(*t.source) : nullptr;
    transfer_rows(t, 0, from, to, inside);
  };
  if (Val inside = units_inside(*t.destination)) {
    b.when(inside, rows);
  } else {
    rows();
  }
}

void Emitter::transfer_rows(const Transfer& t, size_t level, std::vector<Val> from,
                            std::vector<Val> to, Val source_inside) {
  if (level + 1 >= t.destination_axes.size()) return transfer_row(t, from, to, source_inside);
  const size_t to_axis = t.destination_axes[level];
  const Span written = inside_span(t.destination->axes[to_axis]);
  Span held{nullptr, nullptr, true};
  if (t.source) held = inside_span(t.source->axes[t.source_axes[level]]);
  b.loop(written.begin, written.end, b.i64(1), [&](Val row) {
    to[to_axis] = row;
    Val inside = source_inside;
    if (t.source) from[t.source_axes[level]] = row;
    if (!held.all) {
      Val here =
          b.ir.CreateAnd(b.ir.CreateICmpSGE(row, held.begin), b.ir.CreateICmpSLT(row, held.end));
      inside = inside ? b.ir.CreateAnd(inside, here) : here;
    }
    transfer_rows(t, level + 1, from, to, inside);
  });
}

void Emitter::transfer_row(const Transfer& t, std::span<const Val> from, std::span<const Val> to,
                           Val source_inside) {
  const bool single = t.destination_axes.empty();  // one element
  const Axis one{b.i64(1), b.i64(0), b.i64(0), b.i64(1), b.i64(1), 1, 0, 1};
  const Axis& to_axis = single ? one : t.destination->axes[t.destination_axes.back()];
  const Axis& from_axis = single || !t.source ? one : t.source->axes[t.source_axes.back()];
  const bool vector = !single && contiguous(*t.destination, t.destination_axes.back()) &&
                      (!t.source || contiguous(*t.source, t.source_axes.back()));
  const uint64_t count = static_cast<uint64_t>(to_axis.size);
  const int lanes = !vector ? 1
                            : static_cast<int>(std::clamp<uint64_t>(
                                  std::bit_ceil(count), 4, static_cast<uint64_t>(b.target.lanes)));

  const Span written = inside_span(to_axis);
  Val copy_begin = written.begin, copy_end = written.begin;
  bool padded = true;
  if (t.source) {
    const Span held = inside_span(from_axis);
    padded = source_inside || !held.all;
    copy_begin = held.all ? written.begin : b.clamp(held.begin, written.begin, written.end);
    copy_end = held.all ? written.end : b.clamp(held.end, copy_begin, written.end);
    if (source_inside) copy_end = b.ir.CreateSelect(source_inside, copy_end, copy_begin);
  }
  llvm::Type* to_type = t.destination->as_bits ? b.tensor_type(t.destination->dtype)
                                               : b.tile_type(t.destination->dtype);
  Val to_row = address(*t.destination, to);
  auto target = [&](Val k) {
    return b.ir.CreateGEP(to_type, to_row, b.ir.CreateMul(k, to_axis.stride));
  };
  auto pad = [&](Val k, Val mask) { write(*t.destination, target(k), t.fill, lanes, mask); };
  if (padded && t.source) vector_loop(written.begin, copy_begin, lanes, pad);
  if (t.source) {
    llvm::Type* from_type =
        t.source->as_bits ? b.tensor_type(t.source->dtype) : b.tile_type(t.source->dtype);
    Val from_row = address(*t.source, from);
    Val zero = llvm::Constant::getNullValue(Builder::widen(b.value_type(t.source->dtype), lanes));
    vector_loop(copy_begin, copy_end, lanes, [&](Val k, Val mask) {
      Val origin = b.ir.CreateGEP(from_type, from_row, b.ir.CreateMul(k, from_axis.stride));
      Val value = read(*t.source, origin, lanes, mask, zero);
      value = cast(b, value, t.source->dtype, t.destination->dtype);
      write(*t.destination, target(k), value, lanes, mask);
    });
  }
  if (padded) vector_loop(copy_end, written.end, lanes, pad);
}

void Emitter::vector_loop(Val begin, Val end, int lanes,
                          const std::function<void(Val, Val)>& body) {
  constexpr int64_t kStraight = 8;  // steps without a loop
  if (lanes == 1) return b.loop(begin, end, b.i64(1), [&](Val k) { body(k, nullptr); });
  if (Builder::known(begin) && Builder::known(end)) {
    const int64_t first = Builder::known(begin)->getSExtValue();
    const int64_t last = Builder::known(end)->getSExtValue();
    if (last <= first) return;
    const int64_t whole = (last - first) / lanes, rest = (last - first) % lanes;
    if (whole <= kStraight) {
      for (int64_t i = 0; i < whole; ++i) body(b.i64(first + i * lanes), nullptr);
    } else {
      b.loop(begin, b.i64(first + whole * lanes), b.i64(lanes), [&](Val k) { body(k, nullptr); });
    }
    if (rest) body(b.i64(last - rest), b.first(static_cast<int>(rest), lanes));
    return;
  }
  Val length = b.ir.CreateSub(end, begin);
  Val whole = b.ir.CreateAnd(length, b.i64(-static_cast<int64_t>(lanes)));
  Val middle = b.ir.CreateAdd(begin, whole);
  b.loop(begin, middle, b.i64(lanes), [&](Val k) { body(k, nullptr); });
  b.when(b.ir.CreateICmpSLT(middle, end),
         [&] { body(middle, b.mask(b.i64(0), b.ir.CreateSub(end, middle), lanes)); });
}

}  // namespace kiln::host
