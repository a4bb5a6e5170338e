// Single elements a lane: `load` and `store` at any indices.
#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"

namespace kiln::host {

Val Emitter::vector(const Element& element, int lanes) {
  if (!element.linear) return b.spread(element.value, lanes);
  Val first = b.spread(element.value, lanes);
  return b.ir.CreateAdd(first, b.iota(element.value->getType(), lanes));
}

Emitter::Access Emitter::access(const Place& place, std::span<const Index> index, int lanes,
                                int active) {
  llvm::Type* wide = b.ir.getInt64Ty();
  const size_t rank = place.axes.size();
  bool uniform = true, row = true;
  for (size_t i = 0; i < rank; ++i) {
    uniform &= index[i].at.uniform();
    row &= i + 1 < rank ? index[i].at.uniform() : index[i].at.linear;
  }
  if (uniform) lanes = 1;
  const bool scattered = !uniform && !row;

  // Positions in the base; vectors where the access is scattered.
  std::vector<Val> position;
  Val inside = nullptr;  // of the axes that all lanes share, or of each lane
  auto require = [&](Val condition) {
    inside = inside ? b.ir.CreateAnd(inside, condition) : condition;
  };
  for (size_t i = 0; i < rank; ++i) {
    const Axis& axis = place.axes[i];
    Val at = scattered && !index[i].at.uniform() ? vector(index[i].at, lanes) : index[i].at.value;
    const int width = Builder::lanes_of(at);
    at = b.ir.CreateSExt(at, Builder::widen(wide, width));
    position.push_back(b.ir.CreateAdd(at, b.spread(axis.start, width)));
    const bool sure = index[i].range.low >= axis.sure_begin && index[i].range.high < axis.sure_end;
    if (sure || (row && i + 1 == rank)) continue;
    Val here = b.ir.CreateAnd(b.ir.CreateICmpSGE(position[i], b.spread(axis.low, width)),
                              b.ir.CreateICmpSLT(position[i], b.spread(axis.high, width)));
    if (inside && scattered) {
      inside = b.spread(inside, lanes);
      here = b.spread(here, lanes);
    }
    require(here);
  }

  llvm::Type* element = place.as_bits ? b.tensor_type(place.dtype) : b.tile_type(place.dtype);
  Val offset = b.i64(0);
  for (size_t i = 0; i < rank; ++i) {
    const int width = Builder::lanes_of(position[i]);
    Val term = b.ir.CreateMul(position[i], b.spread(place.axes[i].stride, width));
    const int both = std::max(width, Builder::lanes_of(offset));
    offset = b.ir.CreateAdd(b.spread(offset, both), b.spread(term, both));
  }
  Access result{Access::Kind::Uniform, b.ir.CreateGEP(element, place.pointer, offset), inside};
  if (uniform) return result;
  if (scattered) {
    result.kind = Access::Kind::Scattered;
    if (active < lanes) {
      Val some = b.first(active, lanes);
      result.mask = inside ? b.ir.CreateAnd(b.spread(inside, lanes), some) : some;
    } else if (inside) {
      result.mask = b.spread(inside, lanes);
    }
    return result;
  }
  result.kind = Access::Kind::Row;
  const Axis& last = place.axes[rank - 1];
  const Interval range = index[rank - 1].range;
  Val low = b.i64(0), high = b.i64(active);
  if (range.low < last.sure_begin || range.high >= last.sure_end) {
    low = b.ir.CreateSub(last.low, position[rank - 1]);
    high = b.smin(high, b.ir.CreateSub(last.high, position[rank - 1]));
  }
  if (inside) high = b.ir.CreateSelect(inside, high, b.i64(0));
  result.mask = b.mask(low, high, lanes);
  return result;
}

Val Emitter::load(const Place& place, std::span<const Index> index, int lanes, int active) {
  Access at = access(place, index, lanes, active);
  Val zero = llvm::Constant::getNullValue(
      Builder::widen(b.value_type(place.dtype), at.kind == Access::Kind::Uniform ? 1 : lanes));
  if (at.kind == Access::Kind::Uniform) return read(place, at.pointer, 1, at.mask, zero);
  if (at.kind == Access::Kind::Row) return read(place, at.pointer, lanes, at.mask, zero);
  llvm::Type* element = place.as_bits ? b.tensor_type(place.dtype) : b.tile_type(place.dtype);
  llvm::Type* type = Builder::widen(element, lanes);
  Val mask =
      at.mask ? at.mask : llvm::Constant::getAllOnesValue(Builder::widen(b.ir.getInt1Ty(), lanes));
  Val stored =
      b.ir.CreateMaskedGather(type, at.pointer, llvm::Align(element->getScalarSizeInBits() / 8),
                              mask, llvm::Constant::getNullValue(type));
  return place.as_bits || place.dtype == Bool ? from_bits(b, stored, place.dtype) : stored;
}

void Emitter::store(const Place& place, std::span<const Index> index, Val value, int lanes,
                    int active) {
  Access at = access(place, index, lanes, active);
  if (at.kind == Access::Kind::Uniform)
    return write(place, at.pointer, b.lane(value, 0), 1, at.mask);
  if (at.kind == Access::Kind::Row) return write(place, at.pointer, value, lanes, at.mask);
  Val stored = b.spread(value, lanes);
  if (place.as_bits || place.dtype == Bool) stored = to_bits(b, stored, place.dtype);
  Val mask =
      at.mask ? at.mask : llvm::Constant::getAllOnesValue(Builder::widen(b.ir.getInt1Ty(), lanes));
  b.ir.CreateMaskedScatter(stored, at.pointer,
                           llvm::Align(stored->getType()->getScalarSizeInBits() / 8), mask);
}

}  // namespace kiln::host
