// Copies of which one side, or both, is in registers: the fragment's layout says which thread
// moves what, in vectors as wide as its registers and the memory allow.
#include <algorithm>

#include "codegen/nvptx_copy_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "codegen/nvptx_shared_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/error.h"
#include "ir/layout/locality.h"
#include "ir/layout/matrix_move.h"

namespace kiln::nvptx {
namespace {

struct Vectors {
  int axis = 0;  // of the fragment
  int64_t width = 1;
  Val usable = nullptr;  // else only elements can be accessed; null: surely
};

Vectors vectors_of(Emitter& e, const Place& place, const Layout& layout) {
  const std::vector<int> paired = paired_axes(sizes_of(place), layout.shape());
  Vectors best;
  for (const int axis : paired) {
    if (axis == kNoAxis) continue;
    const int64_t width = widest_vectors(place, layout, paired, axis);
    if (width > best.width) best = {axis, width, nullptr};
  }
  best.usable = whole_vectors(e, place, paired, best.axis, best.width);
  return best;
}

Values loaded(Emitter& e, const Place& from, const Layout& layout, int axis, int64_t width, Val pad,
              DType to) {
  Walk walk(e, layout, axis, width);
  Side side(e, from, walk);
  Values registers;
  for (int64_t step = 0; step < walk.steps(); ++step) {
    Val vector =
        read_at(e, from, side.pointer(step), side.condition(step), static_cast<int>(width), pad);
    for (Val element : elements_of(e.b, vector, width))
      registers.push_back(cast(e.b, element, from.dtype, to));
  }
  return registers;
}

void stored(Emitter& e, const Values& registers, const Place& to, const Layout& layout, int axis,
            int64_t width) {
  Walk walk(e, layout, axis, width);
  Side side(e, to, walk);
  // One branch for all that depends on one condition.
  std::vector<std::pair<Val, std::vector<int64_t>>> groups;
  for (int64_t step = 0; step < walk.steps(); ++step) {
    Val condition = side.condition(step);
    auto group = std::ranges::find(groups, condition, [](const auto& g) { return g.first; });
    if (group == groups.end()) group = groups.insert(group, {condition, {}});
    group->second.push_back(step);
  }
  for (const auto& group : groups) {
    const std::vector<int64_t>& steps = group.second;
    Values pointers;
    for (const int64_t step : steps) pointers.push_back(side.pointer(step));
    e.b.when(group.first, [&] {
      for (size_t i = 0; i < steps.size(); ++i) {
        const auto first = registers.begin() + steps[i] * width;
        const Values elements(first, first + width);
        write_at(e, to, pointers[i], vector_of(e.b, elements), nullptr, static_cast<int>(width));
      }
    });
  }
}

using ID = llvm::Intrinsic::ID;

ID matrix_store(int count, bool transposed) {
  static constexpr ID kPlain[] = {llvm::Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x1_b16,
                                  llvm::Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x2_b16,
                                  llvm::Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x4_b16};
  static constexpr ID kTransposed[] = {
      llvm::Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x1_trans_b16,
      llvm::Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x2_trans_b16,
      llvm::Intrinsic::nvvm_stmatrix_sync_aligned_m8n8_x4_trans_b16};
  const int which = count / 2;  // 1, 2, 4
  return transposed ? kTransposed[which] : kPlain[which];
}

// By stmatrix, where the lanes' elements are parts of rows of 16 bytes: nothing if they are not,
// or some lie outside. All lanes take part.
bool stored_as_matrices(Emitter& e, const Values& registers, const Layout& layout,
                        const Place& to) {
  constexpr int kBytes = 2;  // of an element; others gain nothing
  if (e.b.target.capability < 90 || to.space != Space::Shared || size_of(to.dtype) != kBytes ||
      !to.surely_inside() || sizes_of(to) != layout.shape() || layout.is_padded() ||
      !layout.is_injective())
    return false;
  const std::optional<MatrixMove> move = plan_matrix_move(layout, *to.layout, kBytes);
  if (!move || view_vector(to, move->axis) < 16 / kBytes) return false;
  SharedAddresses rows(e, to, move->rows, move->axis, 16 / kBytes);
  size_t next = 0;
  for (int64_t step = 0; step < move->rows.registers(); ++step) {
    Values arguments{rows(step)};
    for (int word = 0; word < move->count; ++word, next += 2)
      arguments.push_back(pack_word(e.b, std::span(registers).subspan(next, 2), to.dtype));
    e.b.call(matrix_store(move->count, move->transposed), arguments, {e.b.ir.getPtrTy(kShared)});
  }
  return true;
}

}  // namespace

void load_fragment(Emitter& e, const Place& from, Fragment& to, const Scalar& pad) {
  const Vectors vectors = vectors_of(e, from, *to.layout);
  Val otherwise = e.b.constant(pad);
  const auto load = [&](int axis, int64_t width) {
    return loaded(e, from, *to.layout, axis, width, otherwise, to.dtype);
  };
  to.registers = e.b.when(
      vectors.usable, [&] { return load(vectors.axis, vectors.width); },
      [&] { return load(0, 1); });
}

void store_fragment(Emitter& e, const Fragment& from, const Place& to) {
  Values registers;
  for (Val value : from.registers) registers.push_back(cast(e.b, value, from.dtype, to.dtype));
  if (stored_as_matrices(e, registers, *from.layout, to)) return;
  const Vectors vectors = vectors_of(e, to, *from.layout);
  const auto store = [&](int axis, int64_t width) {
    stored(e, registers, to, *from.layout, axis, width);
  };
  e.b.when(first_copy(e, *from.layout), [&] {
    e.b.when(
        vectors.usable, [&] { store(vectors.axis, vectors.width); }, [&] { store(0, 1); });
  });
}

void copy_fragment(Emitter& e, const Loc& loc, const Fragment& from, Fragment& to) {
  const auto held = local_registers(
      *to.layout, paired_axes(from.layout->shape(), to.layout->shape()), *from.layout);
  if (!held) throw InternalError(loc, "copy: a thread lacks elements of the source");
  for (size_t reg = 0; reg < held->size(); ++reg) {
    const int source = (*held)[reg];
    to.registers[reg] =
        source < 0 ? e.b.zero(to.dtype)
                   : cast(e.b, from.registers[static_cast<size_t>(source)], from.dtype, to.dtype);
  }
}

}  // namespace kiln::nvptx
