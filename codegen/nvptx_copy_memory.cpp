// Copies between tensors and shared tiles, and fills of them. The box is spread over the threads so
// that they access neighbouring vectors; what cannot be accessed in vectors goes element by element
// in a loop, which is little code for what should be rare.
#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

#include "codegen/nvptx_copy_impl.h"
#include "codegen/nvptx_fp8_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

constexpr int64_t kStraight = 64;  // vectors of a thread without a loop
constexpr int64_t kInFlight = 8;   // of them read before the first is written

// How a box is spread, and when its vectors may be used.
struct Spread {
  Layout layout = Layout(0);
  int axis = 0;
  int64_t width = 1;
  Val usable = nullptr;
};

Spread spread(Emitter& e, const Shape& shape, std::span<const Place* const> places) {
  int64_t bytes = 1;
  for (const Place* place : places)
    bytes = std::max(bytes, static_cast<int64_t>(size_of(place->dtype)));
  Spread result{blocked(shape, e.warps(), static_cast<int>(bytes))};
  if (shape.empty()) return result;
  result.axis = static_cast<int>(shape.size()) - 1;
  result.width = vector_width(result.layout, result.axis);
  const int64_t widest = result.width;
  const auto paired = [&](const Place& place) { return paired_axes(sizes_of(place), shape); };
  for (const Place* place : places)
    result.width =
        std::min(result.width, widest_vectors(*place, result.layout, paired(*place), result.axis));
  if (result.width < widest)
    result.layout = blocked(shape, e.warps(), static_cast<int>(16 / result.width));
  result.width = std::min(result.width, vector_width(result.layout, result.axis));
  for (const Place* place : places)
    result.usable = e.b.both(result.usable,
                             whole_vectors(e, *place, paired(*place), result.axis, result.width));
  return result;
}

// A copy on its way. Where nothing is converted, elements move as the bits they are; fp8 becomes
// halves a word at a time.
struct Transfer {
  Transfer(const Place& from, const Place& to, const Scalar& pad, bool async)
      : from(from), to(to), pad(pad), async(async) {}

  const Place &from, &to;
  const Scalar& pad;
  const bool async;

  bool as_bits() const { return from.dtype == to.dtype && from.dtype != Bool; }

  // What accesses of `width` elements move as bits: words, which hold a whole number of elements.
  DType unit(int64_t width) const {
    if (size_of(from.dtype) == 8) return U64;
    const int64_t bytes = static_cast<int64_t>(size_of(from.dtype)) * width;
    return bytes % 4 == 0 ? U32 : bytes == 2 ? U16 : U8;
  }
  bool widens_words(const Emitter& e, int64_t width) const {
    return width % 4 == 0 && has_fp8_words(e.b, from.dtype, to.dtype);
  }
  Val read(Emitter& e, Val pointer, Val condition, int64_t width) const {
    if (!as_bits() && !widens_words(e, width))
      return read_at(e, from, pointer, condition, static_cast<int>(width), e.b.constant(pad));
    Place place;
    place.space = from.space;
    place.dtype = unit(width);
    std::array<std::byte, 8> bytes;
    for (size_t at = 0; at < bytes.size(); at += size_of(pad.dtype))
      store_element(pad, bytes.data() + at);
    const Scalar bits = load_element(place.dtype, bytes.data());
    return read_at(e, place, pointer, condition, units(width), e.b.constant(bits));
  }
  void write(Emitter& e, Val pointer, Val value, Val condition, int64_t width) const {
    Place place;
    place.space = to.space;
    if (widens_words(e, width)) {
      place.dtype = U32;
      return write_at(e, place, pointer, value, condition, 2 * units(width));
    }
    place.dtype = as_bits() ? unit(width) : to.dtype;
    write_at(e, place, pointer, value, condition,
             as_bits() ? units(width) : static_cast<int>(width));
  }
  int units(int64_t width) const {
    return static_cast<int>(static_cast<int64_t>(size_of(from.dtype)) * width /
                            static_cast<int64_t>(size_of(unit(width))));
  }
  Val converted(Emitter& e, Val value, int64_t width) const {
    if (as_bits()) return value;
    if (widens_words(e, width)) {
      Values words;
      for (Val word : elements_of(e.b, value, units(width)))
        for (Val pair : fp8_word_to_halves(e.b, word, from.dtype, to.dtype)) words.push_back(pair);
      return vector_of(e.b, words);
    }
    Values elements = elements_of(e.b, value, width);
    for (Val& element : elements) element = cast(e.b, element, from.dtype, to.dtype);
    return vector_of(e.b, elements);
  }
};

// One cp.async: 16, 8 or 4 bytes, zeros where the condition does not hold.
void copy_async(Emitter& e, Val to, Val from, Val condition, int64_t bytes) {
  using namespace llvm;
  Builder& b = e.b;
  if (!condition) {
    const Intrinsic::ID id = bytes == 16  ? Intrinsic::nvvm_cp_async_cg_shared_global_16
                             : bytes == 8 ? Intrinsic::nvvm_cp_async_ca_shared_global_8
                                          : Intrinsic::nvvm_cp_async_ca_shared_global_4;
    b.call(id, {to, from});
    return;
  }
  const Intrinsic::ID id = bytes == 16  ? Intrinsic::nvvm_cp_async_cg_shared_global_16_s
                           : bytes == 8 ? Intrinsic::nvvm_cp_async_ca_shared_global_8_s
                                        : Intrinsic::nvvm_cp_async_ca_shared_global_4_s;
  b.call(id, {to, from, b.ir.CreateSelect(condition, b.i32(bytes), b.i32(0))});
}

// A step of a loop: where it is in the box.
struct Step {
  Values coordinate;
  Val in_tile;
};

// body(steps) for all steps, as many at once as divide them and may be in flight, in a loop.
void rolled(Emitter& e, Walk& walk, const std::function<void(std::span<const Step>)>& body) {
  const int64_t together = std::gcd(walk.steps(), kInFlight);
  const auto round = [&](Val first) {
    std::vector<Step> steps;
    for (int64_t i = 0; i < together; ++i) {
      Values coordinate = walk.coordinate(e.b.ir.CreateAdd(first, e.b.i32(i)));
      Val in_tile = walk.in_tile(coordinate);
      steps.push_back({std::move(coordinate), in_tile});
    }
    body(steps);
  };
  if (walk.steps() == together) return round(e.b.i32(0));
  e.b.loop(e.b.i32(0), e.b.i32(walk.steps()), e.b.i32(together), round);
}

void copy_rolled(Emitter& e, const Transfer& t, const Layout& layout, int axis, int64_t width) {
  Walk walk(e, layout, axis, width);
  const std::vector<int> from_axes = paired_axes(sizes_of(t.from), walk.shape());
  const std::vector<int> to_axes = paired_axes(sizes_of(t.to), walk.shape());
  rolled(e, walk, [&](std::span<const Step> steps) {
    Values values;
    for (const Step& step : steps) {
      const Values at = picked(e.b, from_axes, step.coordinate);
      Val inside = e.b.both(step.in_tile, e.inside(t.from, at));
      values.push_back(t.converted(e, t.read(e, e.address(t.from, at), inside, width), width));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      const Values at = picked(e.b, to_axes, steps[i].coordinate);
      Val inside = e.b.both(steps[i].in_tile, e.inside(t.to, at));
      t.write(e, e.address(t.to, at), values[i], inside, width);
    }
  });
}

void copy_straight(Emitter& e, const Transfer& t, const Spread& spread) {
  const int64_t width = spread.width;
  Walk walk(e, spread.layout, spread.axis, width);
  Side source(e, t.from, walk), target(e, t.to, walk);
  const int64_t bytes = width * static_cast<int64_t>(size_of(t.from.dtype));
  const bool async = t.async && (bytes == 4 || bytes == 8 || bytes == 16);
  for (int64_t begin = 0; begin < walk.steps(); begin += kInFlight) {
    const int64_t end = std::min(walk.steps(), begin + kInFlight);
    Values values;
    for (int64_t step = begin; step < end; ++step) {
      Val from = source.pointer(step), condition = source.condition(step);
      if (!async) {
        values.push_back(t.converted(e, t.read(e, from, condition, width), width));
        continue;
      }
      Val to = target.pointer(step);
      e.b.when(target.condition(step), [&] { copy_async(e, to, from, condition, bytes); });
    }
    for (int64_t step = begin; step < end && !async; ++step)
      t.write(e, target.pointer(step), values[static_cast<size_t>(step - begin)],
              target.condition(step), width);
  }
}

}  // namespace

void copy_memory(Emitter& e, const Place& from, const Place& to, const Scalar& pad, bool async) {
  const Transfer transfer(from, to, pad, async);
  const Shape shape = without_units(sizes_of(to));
  const Place* places[] = {&from, &to};
  const Spread vectors = spread(e, shape, places);
  const auto by_elements = [&] {
    const Layout layout = blocked(shape, e.warps(), 16);
    e.b.when(first_copy(e, layout), [&] { copy_rolled(e, transfer, layout, 0, 1); });
  };
  const auto by_vectors = [&] {
    e.b.when(first_copy(e, vectors.layout), [&] {
      if (vectors.layout.registers() / vectors.width <= kStraight)
        copy_straight(e, transfer, vectors);
      else
        copy_rolled(e, transfer, vectors.layout, vectors.axis, vectors.width);
    });
  };
  if (vectors.width == 1)
    by_elements();
  else
    e.b.when(vectors.usable, by_vectors, by_elements);
}

void fill_memory(Emitter& e, const Place& to, Val value) {
  const Shape shape = without_units(sizes_of(to));
  const Place* places[] = {&to};
  const Spread vectors = spread(e, shape, places);
  const auto fill = [&](const Layout& layout, int axis, int64_t width) {
    Walk walk(e, layout, axis, width);
    const Values elements(static_cast<size_t>(width), value);
    Val vector = vector_of(e.b, elements);
    if (width > 1 && walk.steps() <= kStraight) {
      Side side(e, to, walk);
      for (int64_t step = 0; step < walk.steps(); ++step)
        write_at(e, to, side.pointer(step), vector, side.condition(step), static_cast<int>(width));
      return;
    }
    const std::vector<int> axes = paired_axes(sizes_of(to), walk.shape());
    rolled(e, walk, [&](std::span<const Step> steps) {
      for (const Step& step : steps) {
        const Values at = picked(e.b, axes, step.coordinate);
        Val inside = e.b.both(step.in_tile, e.inside(to, at));
        e.write(to, at, vector, inside, static_cast<int>(width));
      }
    });
  };
  const auto fill_first = [&](const Layout& layout, int axis, int64_t width) {
    e.b.when(first_copy(e, layout), [&] { fill(layout, axis, width); });
  };
  e.b.when(
      vectors.usable, [&] { fill_first(vectors.layout, vectors.axis, vectors.width); },
      [&] { fill_first(blocked(shape, e.warps(), 16), 0, 1); });
}

}  // namespace kiln::nvptx
