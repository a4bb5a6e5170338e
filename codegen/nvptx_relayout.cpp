// convert: a fragment's registers renamed, or exchanged within each warp.
#include <map>

#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/error.h"
#include "ir/layout/conversion.h"

namespace kiln::nvptx {
namespace {

// The steps of one conversion. Elements that share a 32-bit register and go the same way share a
// shuffle.
class Exchange {
 public:
  Exchange(Builder& builder, Val lane, const Fragment& from)
      : b(builder), lane_(lane), dtype_(from.dtype), packed_(per_word(dtype_)) {
    if (packed_ == 1) {
      words_ = from.registers;
      return;
    }
    for (size_t first = 0; first < from.registers.size(); first += packed()) {
      Values elements(packed(), b.zero(dtype_));
      for (size_t i = 0; i < packed() && first + i < from.registers.size(); ++i)
        elements[i] = from.registers[first + i];
      words_.push_back(pack_word(b, elements, dtype_));
    }
  }

  // `before`: what the lanes that do not take part keep; null if every lane that matters does.
  Val operator()(const ShuffleStep& step, Val own, Val before) {
    Val value = step.is_local() ? own : element(step);
    return before ? b.ir.CreateSelect(bit_of_lane(step.takes), value, before) : value;
  }

 private:
  size_t packed() const { return static_cast<size_t>(packed_); }

  Val element(const ShuffleStep& step) {
    const auto reg = static_cast<size_t>(step.from_reg);
    Values& moved = moved_[{reg / packed(), step.source}];
    if (moved.empty()) {
      Val word = shuffle_from(b, words_[reg / packed()], source(step.source));
      moved = packed_ == 1 ? Values{word} : unpack_word(b, word, dtype_);
    }
    return moved[reg % packed()];
  }

  // A table of 32 lanes, as one constant for each bit of what it holds.
  Val source(const std::array<uint8_t, 32>& table) {
    Val& known = sources_[table];
    if (known) return known;
    known = b.i32(0);
    for (int bit = 0; bit < 5; ++bit) {
      uint32_t column = 0;
      for (size_t lane = 0; lane < table.size(); ++lane)
        column |= static_cast<uint32_t>(table[lane] >> bit & 1) << lane;
      Val digit = b.ir.CreateAnd(b.ir.CreateLShr(b.i32(column), lane_), b.i32(1));
      known = b.ir.CreateOr(known, b.ir.CreateShl(digit, b.i32(bit)));
    }
    return known;
  }
  Val bit_of_lane(uint32_t mask) {
    if (mask == ~uint32_t{0}) return b.i1(true);
    return b.ir.CreateTrunc(b.ir.CreateLShr(b.i32(mask), lane_), b.ir.getInt1Ty());
  }

  Builder& b;
  Val lane_;
  DType dtype_;
  int64_t packed_;
  Values words_;
  std::map<std::array<uint8_t, 32>, Val> sources_;
  std::map<std::pair<size_t, std::array<uint8_t, 32>>, Values> moved_;
};

}  // namespace

void Emitter::emit_convert(const Op& op) {
  const Fragment& from = fragment(op.operands[0]);
  Fragment& to = fragment(op.operands[1]);
  const Conversion plan =
      plan_conversion(*from.layout, *to.layout, static_cast<int>(size_of(from.dtype)));
  Values registers(static_cast<size_t>(to.layout->registers()));
  switch (plan.kind) {
    case Conversion::Kind::Identical: registers = from.registers; break;
    case Conversion::Kind::Registers:
      for (size_t reg = 0; reg < registers.size(); ++reg)
        if (plan.registers[reg] >= 0)
          registers[reg] = from.registers[static_cast<size_t>(plan.registers[reg])];
      break;
    case Conversion::Kind::Shuffle: {
      Exchange exchange(b, lane(), from);
      for (const ShuffleStep& step : plan.steps) {
        Val& reg = registers[static_cast<size_t>(step.to_reg)];
        reg = exchange(step, from.registers[static_cast<size_t>(step.from_reg)], reg);
      }
      break;
    }
    case Conversion::Kind::Shared:
      throw InternalError(op.loc, "convert: the elements cross warps, which takes shared memory");
  }
  for (Val& reg : registers)
    if (!reg) reg = b.zero(to.dtype);  // padding only
  to.registers = std::move(registers);
}

}  // namespace kiln::nvptx
