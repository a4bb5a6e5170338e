// Storage: where tensors, tiles and views lie, and rows of elements in them.
//
// A tile is row-major in the block's scratch memory, 64-byte aligned. Its innermost extent is
// padded to whole vectors, and rows of a cache line or more to an odd number of lines, so that a
// column does not fall into few cache sets. One that is reshaped has the dtype's own bits instead,
// without padding. Tiles never share memory, so LLVM may be told so.
#include <llvm/IR/MDBuilder.h>

#include <optional>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"
#include "ir/error.h"
#include "ir/memory.h"

namespace kiln::host {
namespace {

constexpr uint64_t kLine = 64;

uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

// The lane of a constant mask that has one only. LLVM 22 turns such a masked store of a truncated
// value into a scalar store of the wide one, past the element's end; so it is not given one.
std::optional<int> only_lane(Val mask) {
  auto* constant = llvm::dyn_cast_or_null<llvm::Constant>(mask);
  if (!constant || !constant->getType()->isVectorTy()) return std::nullopt;
  std::optional<int> found;
  for (int i = 0; i < Builder::lanes_of(mask); ++i) {
    llvm::Constant* lane = constant->getAggregateElement(static_cast<unsigned>(i));
    if (!lane || (!lane->isNullValue() && found)) return std::nullopt;
    if (!lane->isNullValue()) found = i;
  }
  return found;
}

Axis whole_axis(Builder& b, int64_t size, Val stride) {
  return {stride, b.i64(0), b.i64(0), b.i64(size), b.i64(size), size, 0, size};
}

}  // namespace

Place Emitter::place(Value storage) {
  auto it = places_.find(storage.id);
  if (it == places_.end()) throw InternalError("storage used before its definition");
  return it->second;
}

Place Emitter::tensor_place(const Op& tensor) {
  const Type& type = kernel_.type(tensor.result);
  Place place{type.dtype, true, nullptr, nullptr, {}, {}};
  size_t dynamic = 0;
  for (int64_t size : type.shape) {
    Axis axis = whole_axis(b, std::max<int64_t>(0, size), b.i64(1));
    if (size == kDynamic) {
      axis.extent = b.ir.CreateSExt(scalar(tensor.operands[dynamic++]), b.ir.getInt64Ty());
      axis.high = axis.extent;
      axis.size = kDynamic;
    }
    place.axes.push_back(axis);
  }
  return place;
}

Place Emitter::new_tile(DType dtype, const Shape& shape) {
  Place place{dtype, false, nullptr, nullptr, {}, {}};
  if (shape.empty()) {
    place.pointer = b.variable(b.tile_type(dtype));
    return place;
  }
  const uint64_t bytes = b.tile_type(dtype)->getScalarSizeInBits() / 8;
  uint64_t pitch =
      round_up(static_cast<uint64_t>(shape.back()), static_cast<uint64_t>(b.target.lanes));
  uint64_t row = pitch * bytes;
  if (shape.size() > 1 && row >= kLine) {
    row = round_up(row, kLine);
    if (row / kLine % 2 == 0) row += kLine;
  }
  pitch = row / bytes;
  place.pitches.assign(shape.size(), 1);
  uint64_t elements = pitch;
  for (size_t axis = shape.size() - 1; axis-- > 0;) {
    place.pitches[axis] = static_cast<int64_t>(elements);
    elements *= static_cast<uint64_t>(shape[axis]);
  }
  place.pointer = scratch_at(take_scratch(elements * bytes));
  for (size_t axis = 0; axis < shape.size(); ++axis)
    place.axes.push_back(whole_axis(b, shape[axis], b.i64(place.pitches[axis])));
  place.alias_tag = new_alias_tag();
  return place;
}

llvm::MDNode* Emitter::new_alias_tag() {
  llvm::MDBuilder metadata(b.ir.getContext());
  llvm::MDNode* root = metadata.createTBAARoot("tiles");
  llvm::MDNode* type = metadata.createTBAAScalarTypeNode("tile" + std::to_string(tiles_++), root);
  return metadata.createTBAAStructTagNode(type, type, 0);
}

Place Emitter::new_image(DType dtype, const Shape& shape) {
  Place place{dtype, true, nullptr, new_alias_tag(), {}, {}};
  place.pointer =
      scratch_at(take_scratch(static_cast<uint64_t>(kiln::count(shape)) * size_of(dtype)));
  return reshaped_place(std::move(place), Type::tile(Space::Shared, dtype, shape));
}

Place Emitter::reshaped_place(Place tile, const Type& type) {
  tile.dtype = type.dtype;
  tile.axes.clear();
  const Shape strides = Memory::contiguous(nullptr, type.dtype, type.shape).strides;
  for (size_t axis = 0; axis < strides.size(); ++axis)
    tile.axes.push_back(whole_axis(b, type.shape[axis], b.i64(strides[axis])));
  return tile;
}

uint64_t Emitter::take_scratch(uint64_t bytes) {
  const uint64_t offset = scratch_bytes_;
  scratch_bytes_ += round_up(bytes, kLine);
  return offset;
}

Val Emitter::scratch_at(uint64_t offset) {
  return b.ir.CreateConstGEP1_64(b.ir.getInt8Ty(), scratch_, offset);
}

Place Emitter::slice_place(const Op& slice) {
  Place view = place(slice.operands[0]);
  const Shape& shape = kernel_.type(slice.result).shape;
  const size_t lacking = view.axes.size() - shape.size();
  const auto index_of = [&](size_t axis) {
    return b.ir.CreateSExt(scalar(slice.operands[1 + axis]), b.ir.getInt64Ty());
  };
  for (size_t i = 0; i < lacking; ++i) {  // of a whole tile: one place of the axis, surely inside
    view.pointer = b.ir.CreateGEP(b.tile_type(view.dtype), view.pointer,
                                  b.ir.CreateMul(index_of(i), b.i64(view.pitches[0])));
    view.axes.erase(view.axes.begin());
    view.pitches.erase(view.pitches.begin());
  }
  for (size_t i = 0; i < view.axes.size(); ++i) {
    Axis& axis = view.axes[i];
    const Interval at = ranges_.of(slice.operands[1 + lacking + i]);
    Val index = index_of(lacking + i);
    axis.size = shape[i];
    axis.extent = axis.size == kDynamic ? b.smax(b.i64(0), b.ir.CreateSub(axis.extent, index))
                                        : b.i64(axis.size);
    axis.start = b.ir.CreateAdd(axis.start, index);
    axis.low = b.smax(axis.low, axis.start);
    axis.high = b.smin(axis.high, b.ir.CreateAdd(axis.start, axis.extent));
    axis.sure_begin = std::max<int64_t>(0, axis.sure_begin - at.low);
    axis.sure_end -= at.high;
    if (axis.size != kDynamic) axis.sure_end = std::min(axis.sure_end, axis.size);
  }
  return view;
}

Place Emitter::every_place(const Op& every) {
  Place view = place(every.operands[0]);
  Axis& axis = view.axes[static_cast<size_t>(every.integer("axis"))];
  const auto wide = [&](Value value) { return b.ir.CreateSExt(scalar(value), b.ir.getInt64Ty()); };
  Val first = wide(every.operands[1]), end = b.smin(wide(every.operands[2]), axis.extent);
  Val step = b.i64(every.integer("step"));
  Val any = b.ir.CreateAnd(b.ir.CreateICmpSGE(first, b.i64(0)), b.ir.CreateICmpSLT(first, end));
  Val last = b.ir.CreateSDiv(b.ir.CreateSub(b.ir.CreateSub(end, first), b.i64(1)), step);
  axis.extent = axis.high = b.ir.CreateSelect(any, b.ir.CreateAdd(last, b.i64(1)), b.i64(0));
  view.pointer =
      b.ir.CreateGEP(b.tensor_type(view.dtype), view.pointer, b.ir.CreateMul(first, axis.stride));
  axis.stride = b.ir.CreateMul(axis.stride, step);
  axis.size = kDynamic;
  axis.sure_begin = axis.sure_end = 0;
  return view;
}

std::vector<Index> Emitter::indices(const Op& op, size_t first) {
  std::vector<Index> index;
  for (size_t i = first; i < op.operands.size(); ++i)
    index.push_back({element(op.operands[i]), ranges_.of(op.operands[i])});
  return index;
}

Val Emitter::address(const Place& place, std::span<const Val> index) {
  Val offset = b.i64(0);
  for (size_t i = 0; i < place.axes.size(); ++i) {
    const Axis& axis = place.axes[i];
    Val at = b.ir.CreateAdd(axis.start, index[i]);
    offset = b.ir.CreateAdd(offset, b.ir.CreateMul(at, axis.stride));
  }
  llvm::Type* type = place.as_bits ? b.tensor_type(place.dtype) : b.tile_type(place.dtype);
  return b.ir.CreateGEP(type, place.pointer, offset);
}

Val Emitter::read(const Place& place, Val pointer, int lanes, Val mask, Val otherwise) {
  llvm::Type* element = place.as_bits ? b.tensor_type(place.dtype) : b.tile_type(place.dtype);
  llvm::Type* type = Builder::widen(element, lanes);
  const llvm::Align align(element->getScalarSizeInBits() / 8);
  auto convert = [&](Val stored) {
    return place.as_bits || place.dtype == Bool ? from_bits(b, stored, place.dtype) : stored;
  };
  auto plain = [&] {
    auto* load = b.ir.CreateAlignedLoad(type, pointer, align);
    if (place.alias_tag) load->setMetadata(llvm::LLVMContext::MD_tbaa, place.alias_tag);
    return convert(load);
  };
  if (!mask) return plain();
  if (lanes == 1) return b.choose(mask, plain, otherwise);
  if (auto lane = only_lane(mask)) {
    Val at = b.ir.CreateConstGEP1_64(element, pointer, static_cast<uint64_t>(*lane));
    Val value = read(place, at, 1, nullptr, nullptr);
    Val row =
        b.ir.CreateInsertElement(b.spread(otherwise, lanes), value, static_cast<uint64_t>(*lane));
    // LLVM 22 on x86 takes one lane in a constant vector for a scalar and compares only that lane
    // (0 < 1 is then false in the others): it must not see through.
    if (!row->getType()->isFPOrFPVectorTy()) return row;
    return b.call(llvm::Intrinsic::arithmetic_fence, {{row}});
  }
  auto* load =
      b.ir.CreateMaskedLoad(type, pointer, align, mask, llvm::Constant::getNullValue(type));
  if (place.alias_tag) load->setMetadata(llvm::LLVMContext::MD_tbaa, place.alias_tag);
  Val value = convert(load);
  auto* constant = llvm::dyn_cast<llvm::Constant>(otherwise);
  // All our formats write 0 as zero bits, which the load has put there already.
  if (constant && constant->isNullValue()) return value;
  return b.ir.CreateSelect(mask, value, b.spread(otherwise, lanes));
}

void Emitter::write(const Place& place, Val pointer, Val value, int lanes, Val mask) {
  llvm::Type* element = place.as_bits ? b.tensor_type(place.dtype) : b.tile_type(place.dtype);
  const llvm::Align align(element->getScalarSizeInBits() / 8);
  Val stored = b.spread(value, lanes);
  if (place.as_bits || place.dtype == Bool) stored = to_bits(b, stored, place.dtype);
  auto tag = [&](llvm::Instruction* instruction) {
    if (place.alias_tag) instruction->setMetadata(llvm::LLVMContext::MD_tbaa, place.alias_tag);
  };
  auto plain = [&] { tag(b.ir.CreateAlignedStore(stored, pointer, align)); };
  if (!mask) return plain();
  if (lanes == 1) return b.when(mask, plain);
  if (auto lane = only_lane(mask)) {
    Val at = b.ir.CreateConstGEP1_64(element, pointer, static_cast<uint64_t>(*lane));
    return write(place, at, b.lane(value, *lane), 1, nullptr);
  }
  tag(b.ir.CreateMaskedStore(stored, pointer, align, mask));
}

Place Emitter::inside_copy(const Place& place) {
  if (!place.as_bits && place.surely_inside()) return place;
  Shape shape;
  for (const Axis& axis : place.axes) shape.push_back(axis.size);
  Place tile = new_tile(place.dtype, shape);
  emit_copy(place, tile, 0.0);
  return tile;
}

}  // namespace kiln::host
