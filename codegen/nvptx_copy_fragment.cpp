// Copies of which one side, or both, is in registers: the fragment's layout says which thread
// moves what, in vectors as wide as its registers and the memory allow.
#include <algorithm>
#include <numeric>

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

Vectors vectors_of(Emitter& e, const Place& place, const Layout& layout, bool own = false) {
  const std::vector<int> paired = paired_axes(sizes_of(place), layout.shape());
  Vectors best;
  for (const int axis : paired) {
    if (axis == kNoAxis) continue;
    const int64_t width = widest_vectors(place, layout, paired, axis);
    if (width > best.width) best = {axis, width, nullptr};
  }
  best.usable = whole_vectors(e, place, paired, best.axis, best.width, own);
  return best;
}

// How much of a vector is moved at once: elements, or of a packed fragment, where nothing is
// converted, words.
struct Unit {
  Place place;         // in units
  int64_t elements;    // of one
  int64_t per_vector;  // units

  bool is_word() const { return elements > 1; }
};

Unit unit_of(const Place& place, bool packed, DType dtype, int64_t width) {
  const int64_t elements = per_word(dtype);
  if (!packed || place.dtype != dtype || width % elements != 0) return {place, 1, width};
  Unit unit{place, elements, width / elements};
  unit.place.dtype = U32;
  return unit;
}

Values words_of(Builder& b, const Values& elements, DType dtype) {
  const auto count = static_cast<size_t>(per_word(dtype));
  Values words;
  for (size_t first = 0; first < elements.size(); first += count)
    words.push_back(pack_word(b, std::span(elements).subspan(first, count), dtype));
  return words;
}

// The fragment's registers.
Values loaded(Emitter& e, const Place& from, const Fragment& to, int axis, int64_t width,
              const Scalar& pad) {
  Walk walk(e, *to.layout, axis, width);
  Side side(e, from, walk);
  const Unit unit = unit_of(from, to.packed, to.dtype, width);
  Val otherwise = e.b.constant(pad);
  if (unit.is_word())
    otherwise = pack_word(e.b, Values(static_cast<size_t>(unit.elements), otherwise), from.dtype);
  Values registers;
  for (int64_t step = 0; step < walk.steps(); ++step) {
    Val vector = read_at(e, unit.place, side.pointer(step), side.condition(step),
                         static_cast<int>(unit.per_vector), otherwise);
    for (Val each : elements_of(e.b, vector, unit.per_vector))
      registers.push_back(unit.is_word() ? each : cast(e.b, each, from.dtype, to.dtype));
  }
  return to.packed && !unit.is_word() ? words_of(e.b, registers, to.dtype) : registers;
}

// As loaded() of single elements, in a loop: each round moves all registers on and fills the last.
// Little code, and few addresses at once, for what should be rare.
Values loaded_in_turn(Emitter& e, const Place& from, const Fragment& to, const Scalar& pad) {
  constexpr int64_t kInFlight = 16;
  Walk walk(e, *to.layout);
  const std::vector<int> axes = paired_axes(sizes_of(from), walk.shape());
  const int64_t together = std::gcd(walk.steps(), kInFlight);
  Val otherwise = e.b.constant(pad);
  const auto round = [&](Val first, const Values& before) {
    Values elements;
    for (int64_t i = 0; i < together; ++i) {
      const Values coordinate = walk.coordinate(e.b.ir.CreateAdd(first, e.b.i32(i)));
      const Values at = picked(e.b, axes, coordinate);
      Val inside = e.b.both(walk.in_tile(coordinate), e.inside(from, at));
      Val element = e.read(from, at, inside, 1, otherwise);
      elements.push_back(cast(e.b, element, from.dtype, to.dtype));
    }
    const Values last = to.packed ? words_of(e.b, elements, to.dtype) : elements;
    Values now(before.begin() + static_cast<ptrdiff_t>(last.size()), before.end());
    now.insert(now.end(), last.begin(), last.end());
    return now;
  };
  return e.b.loop(e.b.i32(0), e.b.i32(walk.steps()), e.b.i32(together), to.registers, round);
}

// Elements from `first` on, cast.
Values elements_for(Emitter& e, const Fragment& from, size_t first, size_t count, DType to) {
  const auto each = static_cast<size_t>(from.packed ? per_word(from.dtype) : 1);
  Values elements;
  for (size_t i = first; i < first + count; ++i) {
    Val reg = from.registers[i / each];
    Val element = from.packed ? unpack_word(e.b, reg, from.dtype)[i % each] : reg;
    elements.push_back(cast(e.b, element, from.dtype, to));
  }
  return elements;
}

// `elements` are all of them, cast; or none, of a packed fragment: cast vector by vector, as all at
// once would take more registers than it has.
void stored(Emitter& e, const Fragment& from, const Values& elements, const Place& to, int axis,
            int64_t width) {
  Walk walk(e, *from.layout, axis, width);
  Side side(e, to, walk);
  const Unit unit = unit_of(to, from.packed, from.dtype, width);
  const auto units_of = [&](int64_t step) {
    const auto count = static_cast<size_t>(unit.per_vector);
    const size_t first = static_cast<size_t>(step) * count;
    if (from.packed && !unit.is_word()) return elements_for(e, from, first, count, to.dtype);
    const auto units = std::span(from.packed ? from.registers : elements).subspan(first, count);
    return Values(units.begin(), units.end());
  };
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
        write_at(e, unit.place, pointers[i], vector_of(e.b, units_of(steps[i])), nullptr,
                 static_cast<int>(unit.per_vector));
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

void load_fragment(Emitter& e, const Place& from, Fragment& to, const Scalar& pad, bool waits) {
  constexpr int64_t kStraight = 32;  // elements whose addresses a thread has room for meanwhile
  const Vectors vectors = vectors_of(e, from, *to.layout, waits);
  const auto load = [&](int axis, int64_t width) { return loaded(e, from, to, axis, width, pad); };
  to.registers = e.b.when(
      vectors.usable, [&] { return load(vectors.axis, vectors.width); },
      [&] {
        const bool in_turn = waits && to.layout->registers() > kStraight;
        return in_turn ? loaded_in_turn(e, from, to, pad) : load(0, 1);
      });
}

void store_fragment(Emitter& e, const Fragment& from, const Place& to) {
  const size_t count = from.packed ? 0 : from.registers.size();
  const Values elements = elements_for(e, from, 0, count, to.dtype);
  if (!from.packed && stored_as_matrices(e, elements, *from.layout, to)) return;
  const Vectors vectors = vectors_of(e, to, *from.layout);
  const auto store = [&](int axis, int64_t width) { stored(e, from, elements, to, axis, width); };
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
