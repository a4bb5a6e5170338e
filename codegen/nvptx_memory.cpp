// Memory: tensors, shared tiles and views of them, element by element.
//
// Whether an element is inside is decided on 32-bit positions that may have wrapped, so that the
// tests must hold for those too: a position that is never negative before it wraps is compared
// without a sign, and a view's end is computed in 64 bits.
#include "codegen/nvptx_memory_impl.h"

#include <limits>

#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "ir/error.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"

namespace kiln::nvptx {
namespace {

bool is_zero(Val value) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(value);
  return constant && constant->isNullValue();
}

Val larger(Builder& b, Val x, Val y) {
  return x == y ? x : b.ir.CreateSelect(b.ir.CreateICmpSGT(x, y), x, y);
}

Val smaller(Builder& b, Val x, Val y) {
  return x == y ? x : b.ir.CreateSelect(b.ir.CreateICmpSLT(x, y), x, y);
}

Val wide(Builder& b, Val value) {
  return b.ir.CreateSExt(value, b.ir.getInt64Ty());
}

Val narrow(Builder& b, Val value) {
  return b.ir.CreateTrunc(value, b.ir.getInt32Ty());
}

// The axis of a tensor or tile itself, not of a view.
bool is_whole(const Axis& axis) {
  return axis.extent == axis.high && is_zero(axis.start) && is_zero(axis.low);
}

// Is the index of an axis inside? Null if surely.
Val inside_axis(Builder& b, const Axis& axis, Val index, Interval range) {
  auto& ir = b.ir;
  if (range.low >= axis.sure_begin && range.high < axis.sure_end) return nullptr;
  Val condition = nullptr;
  const bool in_view = axis.size != kDynamic && range.low >= 0 && range.high < axis.size;
  if (!in_view && !is_whole(axis)) condition = ir.CreateICmpULT(index, axis.extent);
  Val position = ir.CreateAdd(axis.start, index);
  if (is_zero(axis.low) || range.low >= axis.sure_begin)
    return b.both(condition, ir.CreateICmpULT(position, axis.high));
  condition = b.both(condition, ir.CreateICmpSGE(position, axis.low));
  // Far below 0 a start has wrapped and is beyond all ends.
  const bool wraps = axis.sure_begin > std::numeric_limits<int32_t>::max();
  if (range.high < axis.sure_end && !wraps) return condition;
  return b.both(condition, ir.CreateICmpSLT(position, axis.high));
}

// Takes a sum of 32-bit values apart.
void gather(Val value, Values& terms, int64_t& constant, int depth) {
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(value)) {
    constant += known->getSExtValue();
    return;
  }
  auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(value);
  if (!sum || sum->getOpcode() != llvm::Instruction::Add || depth == 0) {
    terms.push_back(value);
    return;
  }
  gather(sum->getOperand(0), terms, constant, depth - 1);
  gather(sum->getOperand(1), terms, constant, depth - 1);
}

// A position inside as variable + constant, exact in 64 bits: the constant is not negative and the
// sum did not wrap, so neither did its variable part.
struct Position {
  Val variable;
  int64_t constant;
};

// One place, surely inside, of the first axis of a whole shared tile, in place of the tile.
void take_front(Builder& b, Place& place, Val index) {
  const Stacked parts = unstacked(*place.layout);
  const int64_t bytes = parts.stride * static_cast<int64_t>(size_of(place.dtype));
  place.pointer =
      b.ir.CreateGEP(b.ir.getInt8Ty(), place.pointer, b.ir.CreateMul(index, b.i32(bytes)));
  place.layout = std::make_shared<const Layout>(parts.part);
  place.axes.erase(place.axes.begin());
}

Position take_apart(Builder& b, Val start, Val index) {
  constexpr int kDepth = 6;
  Values terms;
  int64_t constant = 0;
  gather(start, terms, constant, kDepth);
  gather(index, terms, constant, kDepth);
  constant = static_cast<int32_t>(constant);
  if (constant < 0) return {b.ir.CreateAdd(start, index), 0};
  Val sum = b.i32(0);
  for (Val term : terms) sum = is_zero(sum) ? term : b.ir.CreateAdd(sum, term);
  return {sum, constant};
}

// Of an axis of a tensor the elements first, first + step, … below end, as a tensor of its own.
// None where `first` is negative or `end` comes before it.
Place stepped(Builder& b, const Op& every, Place place, Val first, Val end) {
  auto& ir = b.ir;
  Axis& axis = place.axes[static_cast<size_t>(every.integer("axis"))];
  const auto step = static_cast<int32_t>(every.integer("step"));
  end = smaller(b, end, axis.extent);
  Val any = ir.CreateAnd(ir.CreateICmpSGE(first, b.i32(0)), ir.CreateICmpSLT(first, end));
  Val steps = ir.CreateUDiv(ir.CreateSub(ir.CreateSub(end, first), b.i32(1)), b.i32(step));
  axis.extent = axis.high = ir.CreateSelect(any, ir.CreateAdd(steps, b.i32(1)), b.i32(0));
  place.pointer = ir.CreateGEP(b.memory_type(place.dtype), place.pointer,
                               ir.CreateMul(wide(b, first), axis.stride));
  axis.stride = ir.CreateMul(axis.stride, b.i64(step));
  axis.size = kDynamic;
  axis.sure_begin = axis.sure_end = 0;
  return place;
}

Place reshaped(Builder& b, const Op& reshape, Place place, const Type& type) {
  const Coordinate shape = place.layout->shape();
  if (*place.layout != row_major(shape))
    throw UserError(reshape.loc, "reshape: the tile's layout has gaps or another order of elements",
                    "infer_layouts makes it row-major");
  place.dtype = type.dtype;
  place.layout = std::make_shared<const Layout>(row_major(type.shape));
  place.axes.clear();
  for (int64_t extent : type.shape) place.axes.push_back(whole_axis(b, extent));
  return place;
}

}  // namespace

Axis whole_axis(Builder& b, int64_t extent) {
  return {nullptr, b.i32(0), b.i32(0), b.i32(extent), b.i32(extent), extent, 0, extent};
}

Axis slice_axis(Builder& b, Axis axis, Val index, Interval at, int64_t size) {
  auto& ir = b.ir;
  // A start that leaves 32 bits stays at their end, with no element inside: two of almost 2^31 and
  // an index would come round to 0. Near ones cannot leave them twice.
  constexpr int64_t kNear = 1 << 24;
  const bool near = at.low >= -kNear && at.high <= kNear;
  const bool saturates = !is_whole(axis) && !near;
  if (!is_whole(axis)) {
    axis.low = larger(b, axis.low, axis.start);
    // One that reaches to the end of its base adds no end of its own.
    if (axis.size != kDynamic) {
      Val end = ir.CreateAdd(wide(b, axis.start), b.i64(axis.size));
      axis.high = larger(b, b.i32(0), narrow(b, smaller(b, wide(b, axis.high), end)));
    }
  }
  if (size == kDynamic) {
    Val rest = ir.CreateSub(wide(b, axis.extent), wide(b, index));
    rest = smaller(b, rest, b.i64(std::numeric_limits<int32_t>::max()));
    axis.extent = narrow(b, larger(b, rest, b.i64(0)));
  } else {
    axis.extent = b.i32(size);
  }
  axis.start = saturates ? ir.CreateBinaryIntrinsic(llvm::Intrinsic::sadd_sat, axis.start, index)
                         : ir.CreateAdd(axis.start, index);
  axis.size = size;
  axis.sure_begin = std::max<int64_t>(0, axis.sure_begin - at.low);
  axis.sure_end -= at.high;
  if (size != kDynamic) axis.sure_end = std::min(axis.sure_end, size);
  return axis;
}

Place Emitter::tensor_place(const Op& tensor) {
  const Type& type = kernel_.type(tensor.result);
  Place place;
  place.dtype = type.dtype;
  size_t dynamic = 0;
  for (int64_t size : type.shape) {
    Axis axis{b.i64(1), b.i32(0), b.i32(0), b.i32(size), b.i32(size), size, 0, size};
    if (size == kDynamic) {
      axis.extent = axis.high = scalar(tensor.operands[dynamic++]);
      axis.sure_end = 0;
    }
    place.axes.push_back(axis);
  }
  return place;
}

Place Emitter::place(Value storage) {
  if (auto it = places_.find(storage.id); it != places_.end()) return it->second;
  if (const Op* reshape = kernel_.def_as(storage, OpCode::Reshape))
    return places_[storage.id] =
               reshaped(b, *reshape, place(reshape->operands[0]), kernel_.type(storage));
  if (const Op* every = kernel_.def_as(storage, OpCode::Every))
    return places_[storage.id] = stepped(b, *every, place(every->operands[0]),
                                         scalar(every->operands[1]), scalar(every->operands[2]));
  const Op* slice = kernel_.def_as(storage, OpCode::Slice);
  if (!slice) throw InternalError("storage used before its definition");
  Place view = place(slice->operands[0]);
  const Shape& shape = kernel_.type(slice->result).shape;
  const size_t lacking = view.axes.size() - shape.size();
  for (size_t i = 0; i < lacking; ++i) take_front(b, view, scalar(slice->operands[1 + i]));
  for (size_t i = 0; i < view.axes.size(); ++i) {
    const Value index = slice->operands[1 + lacking + i];
    view.axes[i] = slice_axis(b, view.axes[i], scalar(index), ranges_.of(index), shape[i]);
  }
  places_[storage.id] = view;
  return view;
}

Val Emitter::inside(const Place& place, std::span<const Val> index,
                    std::span<const Interval> ranges) {
  Val condition = nullptr;
  for (size_t i = 0; i < place.axes.size(); ++i) {
    const Axis& axis = place.axes[i];
    const Interval range = !ranges.empty() ? ranges[i] : Interval{0, axis.size - 1};
    condition = b.both(condition, inside_axis(b, axis, index[i], range));
  }
  return condition;
}

Val Emitter::address(const Place& place, std::span<const Val> index) {
  auto& ir = b.ir;
  llvm::Type* element = b.memory_type(place.dtype);
  if (place.space == Space::Shared) {
    Values position;
    for (size_t i = 0; i < place.axes.size(); ++i)
      position.push_back(ir.CreateAdd(place.axes[i].start, index[i]));
    return ir.CreateGEP(element, place.pointer,
                        evaluate(owner_formula(*place.layout, Resource::Offset), position));
  }
  // Constants last: elements of one row, and rows of one thread, share what comes before.
  Val offset = b.i64(0), rows = b.i64(0);
  int64_t columns = 0;
  for (size_t i = 0; i < place.axes.size(); ++i) {
    const Axis& axis = place.axes[i];
    const Position at = take_apart(b, axis.start, index[i]);
    offset = ir.CreateAdd(offset, ir.CreateMul(wide(b, at.variable), axis.stride));
    if (auto* stride = llvm::dyn_cast<llvm::ConstantInt>(axis.stride))
      columns += at.constant * stride->getSExtValue();
    else if (at.constant != 0)
      rows = ir.CreateAdd(rows, ir.CreateMul(b.i64(at.constant), axis.stride));
  }
  Val pointer = ir.CreateGEP(element, place.pointer, offset);
  if (!is_zero(rows)) pointer = ir.CreateGEP(element, pointer, rows);
  return columns == 0 ? pointer : ir.CreateGEP(element, pointer, b.i64(columns));
}

Val Emitter::zeros(unsigned space) {
  if (space != kGlobal) throw InternalError("zeros are in global memory only");
  constexpr const char* kName = "kiln_zeros";
  if (Val known = b.module.getNamedGlobal(kName)) return known;
  auto* type = llvm::ArrayType::get(b.ir.getInt8Ty(), 16);
  auto* variable = new llvm::GlobalVariable(
      b.module, type, true, llvm::GlobalValue::InternalLinkage, llvm::Constant::getNullValue(type),
      kName, nullptr, llvm::GlobalValue::NotThreadLocal, space);
  variable->setAlignment(llvm::Align(16));
  return variable;
}

Val Emitter::read(const Place& place, std::span<const Val> index, Val condition, int width,
                  Val otherwise) {
  return read_at(*this, place, address(place, index), condition, width, otherwise);
}

void Emitter::write(const Place& place, std::span<const Val> index, Val value, Val condition,
                    int width) {
  write_at(*this, place, address(place, index), value, condition, width);
}

Val read_at(Emitter& emitter, const Place& place, Val pointer, Val condition, int width,
            Val otherwise) {
  Builder& b = emitter.b;
  llvm::Type* type = b.memory_type(place.dtype);
  const auto align = llvm::Align(size_of(place.dtype) * static_cast<uint64_t>(width));
  if (width > 1) type = llvm::FixedVectorType::get(type, static_cast<unsigned>(width));
  auto load = [&](Val from) {
    return b.from_memory(b.ir.CreateAlignedLoad(type, from, align), place.dtype);
  };
  if (!condition) return load(pointer);

  Val outside = otherwise;
  if (outside && width > 1) outside = b.ir.CreateVectorSplat(static_cast<unsigned>(width), outside);
  if (place.space == Space::Shared) {
    // No address in shared memory is known to hold zeros, or to be written by nobody.
    auto inside = [&] { return Values{load(pointer)}; };
    auto none = [&] {
      llvm::Type* value = b.from_memory(llvm::Constant::getNullValue(type), place.dtype)->getType();
      return Values{outside ? outside : llvm::Constant::getNullValue(value)};
    };
    return b.when(condition, inside, none)[0];
  }
  Val value = load(b.ir.CreateSelect(condition, pointer, emitter.zeros(kGlobal)));
  // All our formats write 0 as zero bits.
  if (!outside || is_zero(outside)) return value;
  return b.ir.CreateSelect(condition, value, outside);
}

void write_at(Emitter& emitter, const Place& place, Val pointer, Val value, Val condition,
              int width) {
  Builder& b = emitter.b;
  const auto align = llvm::Align(size_of(place.dtype) * static_cast<uint64_t>(width));
  b.when(condition,
         [&] { b.ir.CreateAlignedStore(b.to_memory(value, place.dtype), pointer, align); });
}

void Emitter::emit_load(const Op& op) {
  const Value base = op.operands[0];
  if (is_fragment(base)) return set(op.result, load_register(op));
  const Place from = place(base);
  Values index;
  std::vector<Interval> ranges;
  for (size_t i = 1; i < op.operands.size(); ++i) {
    index.push_back(scalar(op.operands[i]));
    ranges.push_back(ranges_.of(op.operands[i]));
  }
  Val condition = inside(from, index, ranges);
  if (point_) condition = b.both(point_->valid, condition);
  set(op.result, read(from, index, condition));
}

void Emitter::emit_store(const Op& op) {
  const Value base = op.operands[1];
  const DType to = kernel_.type(base).dtype;
  Val value = cast(b, scalar(op.operands[0]), kernel_.type(op.operands[0]).dtype, to);
  if (is_fragment(base)) return store_register(op, value);
  const Place target = place(base);
  Values index;
  std::vector<Interval> ranges;
  for (size_t i = 2; i < op.operands.size(); ++i) {
    index.push_back(scalar(op.operands[i]));
    ranges.push_back(ranges_.of(op.operands[i]));
  }
  // One thread writes what is the same in many.
  Val writer = point_ ? b.both(point_->valid, point_->first)
                      : b.ir.CreateICmpEQ(b.ir.CreateOr(lane_, warp_), b.i32(0));
  Val condition = b.both(writer, inside(target, index, ranges));
  Val pointer = address(target, index);
  const auto write = [=, this, &op] {
    set_location(op);
    write_at(*this, target, pointer, value, condition);
  };
  if (point_ && point_->defers)
    point_->stores.push_back(write);
  else
    write();
}

}  // namespace kiln::nvptx
