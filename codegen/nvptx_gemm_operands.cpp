// Operands of mma.sync: from fragments, or from shared memory in the widest way that fits.
#include "codegen/nvptx_gemm_impl.h"
#include "codegen/nvptx_memory_impl.h"
#include "codegen/nvptx_shared_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/error.h"
#include "ir/layout/matrix_move.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

using ID = llvm::Intrinsic::ID;

ID matrix_load(int count, bool transposed) {
  static constexpr ID kPlain[] = {llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x1_b16,
                                  llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x2_b16,
                                  llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_b16};
  static constexpr ID kTransposed[] = {
      llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x1_trans_b16,
      llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x2_trans_b16,
      llvm::Intrinsic::nvvm_ldmatrix_sync_aligned_m8n8_x4_trans_b16};
  const int which = count / 2;  // 1, 2, 4
  return transposed ? kTransposed[which] : kPlain[which];
}

}  // namespace

Place part_of(Builder& b, Place place, int axis, Val begin, int64_t size) {
  Axis& along = place.axes[static_cast<size_t>(axis)];
  along = slice_axis(b, along, begin, {0, along.size - size}, size);
  return place;
}

MmaOperand::MmaOperand(Emitter& emitter, Value storage, const Layout& whole, const Layout& part,
                       int k_axis, int64_t begin)
    : e(emitter), b(emitter.b), part_(part), dtype_(e.kernel().type(storage).dtype) {
  words_.resize(static_cast<size_t>(part.registers() / per_word(dtype_)));
  if (e.is_fragment(storage)) {
    load_ = from_fragment(e.fragment(storage), whole, k_axis, begin);
  } else {
    const int64_t depth = part.shape()[static_cast<size_t>(k_axis)];
    load_ = from_shared(part_of(b, e.place(storage), k_axis, b.i32(begin), depth), k_axis);
  }
}

Val MmaOperand::word(int64_t index) {
  const auto i = static_cast<size_t>(index);
  if (!words_.at(i)) {
    const int64_t first = index / group_ * group_;
    const Values loaded = load_(index / group_);
    for (int64_t j = 0; j < group_; ++j)
      words_[static_cast<size_t>(first + j)] = masked(loaded[static_cast<size_t>(j)], first + j);
  }
  return words_[i];
}

// The elements of a word are in the tile, or all padding.
Val MmaOperand::masked(Val word, int64_t index) {
  Val valid = e.in_tile(part_, index * per_word(dtype_));
  return valid ? b.ir.CreateSelect(valid, word, b.i32(0)) : word;
}

std::function<Values(int64_t)> MmaOperand::from_fragment(const Fragment& fragment,
                                                         const Layout& whole, int k_axis,
                                                         int64_t begin) {
  if (*fragment.layout != whole)
    throw InternalError("gemm: an operand's layout is not that of its instruction");
  return [=, this](int64_t word) {
    Values elements;
    for (int64_t i = 0; i < per_word(dtype_); ++i) {
      Coordinate c = part_.coordinate({.reg = word * per_word(dtype_) + i});
      c[static_cast<size_t>(k_axis)] += begin;
      elements.push_back(fragment.registers[static_cast<size_t>(whole.owner(c).reg)]);
    }
    return Values{pack_word(b, elements, dtype_)};
  };
}

std::function<Values(int64_t)> MmaOperand::from_shared(const Place& place, int k_axis) {
  const auto k = static_cast<size_t>(k_axis);
  if (!place.surely_inside()) return by_elements(place);
  if (auto load = by_matrices(place)) return load;
  const bool words = view_vector(place, k_axis) >= per_word(dtype_) &&
                     place.axes[k].size % per_word(dtype_) == 0 &&
                     vector_width(part_, k_axis) >= per_word(dtype_);
  return words ? by_words(place, k_axis) : by_elements(place);
}

std::function<Values(int64_t)> MmaOperand::by_matrices(const Place& place) {
  const auto bytes = static_cast<int64_t>(size_of(dtype_));
  const std::optional<MatrixMove> move =
      plan_matrix_move(part_, *place.layout, static_cast<int>(bytes));
  if (!move || view_vector(place, move->axis) < 16 / bytes) return {};
  group_ = move->count;
  SharedAddresses rows(e, place, move->rows, move->axis, 16 / bytes);
  const ID id = matrix_load(move->count, move->transposed);
  return [this, rows, id](int64_t which) mutable {
    Val loaded = b.call(id, {rows(which)}, {b.ir.getPtrTy(kShared)});
    if (group_ == 1) return Values{loaded};
    Values words;
    for (unsigned i = 0; i < static_cast<unsigned>(group_); ++i)
      words.push_back(b.ir.CreateExtractValue(loaded, i));
    return words;
  };
}

std::function<Values(int64_t)> MmaOperand::by_words(const Place& place, int k_axis) {
  const int64_t v = per_word(dtype_);
  SharedAddresses addresses(e, place, in_vectors(part_, k_axis, v), k_axis, v);
  return [this, addresses](int64_t word) mutable {
    return Values{b.ir.CreateAlignedLoad(b.ir.getInt32Ty(), addresses(word), llvm::Align(4))};
  };
}

std::function<Values(int64_t)> MmaOperand::by_elements(const Place& place) {
  std::function<Val(int64_t)> element;
  if (place.surely_inside()) {
    element = [this, addresses = SharedAddresses(e, place, part_)](int64_t reg) mutable {
      return b.from_memory(b.ir.CreateLoad(b.memory_type(dtype_), addresses(reg)), dtype_);
    };
  } else {
    element = [this, place](int64_t reg) {
      const Values c = e.coordinate(part_, reg);
      return e.read(place, c, b.both(e.in_tile(part_, c), e.inside(place, c)));
    };
  }
  return [this, element](int64_t word) {
    Values elements;
    for (int64_t i = 0; i < per_word(dtype_); ++i)
      elements.push_back(element(word * per_word(dtype_) + i));
    return Values{pack_word(b, elements, dtype_)};
  };
}

}  // namespace kiln::nvptx
