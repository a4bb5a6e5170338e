// Fragments that are kept as the machine's 32-bit registers: what gemm_async takes as operand A,
// and what only waits between a load and a store. Were they halves, control flow would carry each
// by itself, and take words apart to join them again, for which it would wait for the load.
#include <algorithm>

#include "codegen/nvptx_copy_impl.h"
#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/layout/reshape.h"
#include "ir/walk.h"

namespace kiln::nvptx {
namespace {

bool moves_memory(const Kernel& kernel, const Op& op) {
  return op.code == OpCode::Copy && (kernel.type(op.operands[0]).space != Space::Fragment ||
                                     kernel.type(op.operands[1]).space != Space::Fragment);
}

// Does the op itself read and write words? Those with regions leave it to the ops in these, but for
// parallel, whose loads and stores each name one element of a register.
bool knows_words(OpCode code) {
  switch (code) {
    case OpCode::For:
    case OpCode::If:
    case OpCode::Roles:
    case OpCode::Loop:
    case OpCode::ExitIf:
    case OpCode::GemmAsync:
    case OpCode::SoftmaxStep: return true;
    default: return false;
  }
}

}  // namespace

bool waits_only(const Kernel& kernel, Value tile) {
  bool only = true, loaded = false, stored = false;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (std::ranges::find(op.operands, tile) == op.operands.end()) return;
    only &= moves_memory(kernel, op);
    (op.operands[0] == tile ? stored : loaded) = true;
  });
  return only && loaded && stored;
}

bool Emitter::is_packed(Value tile, const Layout& layout) const {
  const DType dtype = kernel_.type(tile).dtype;
  if (per_word(dtype) == 1 || dtype == Bool || layout.rank() == 0) return false;
  if (vector_width(layout, layout.rank() - 1) < per_word(dtype)) return false;
  if (waits_only(kernel_, tile)) return true;
  if (size_of(dtype) != 2) return false;
  bool found = false;
  walk(kernel_, kernel_.body, [&](OpId id) {
    const Op& op = kernel_.op(id);
    found |= op.code == OpCode::GemmAsync && op.operands[0] == tile;
  });
  return found;
}

std::vector<Value> Emitter::packed_operands(const Op& op) {
  std::vector<Value> tiles;
  if (knows_words(op.code) || moves_memory(kernel_, op)) return tiles;
  const auto add = [&](Value tile) {
    auto it = fragments_.find(tile.id);
    if (it == fragments_.end() || !it->second.packed) return;
    if (std::ranges::find(tiles, tile) == tiles.end()) tiles.push_back(tile);
  };
  if (op.regions.empty()) {
    for (Value operand : op.operands)
      if (operand) add(operand);
  } else {
    for (const Access& access : accesses_deep(kernel_, op)) add(access.base);
  }
  return tiles;
}

void Emitter::on_elements(std::span<const Value> tiles, const std::function<void()>& run) {
  std::vector<Values> words, elements;
  for (Value tile : tiles) {
    Fragment& of = fragment(tile);
    words.push_back(of.registers);
    Values taken;
    for (Val word : of.registers)
      for (Val element : unpack_word(b, word, of.dtype)) taken.push_back(element);
    elements.push_back(taken);
    of.registers = std::move(taken);
    of.packed = false;
  }
  run();
  for (size_t i = 0; i < tiles.size(); ++i) {
    Fragment& of = fragment(tiles[i]);
    const auto count = static_cast<size_t>(per_word(of.dtype));
    for (size_t word = 0; word < words[i].size(); ++word) {
      const auto now = std::span(of.registers).subspan(word * count, count);
      if (!std::ranges::equal(now, std::span(elements[i]).subspan(word * count, count)))
        words[i][word] = pack_word(b, now, of.dtype);
    }
    of.registers = std::move(words[i]);
    of.packed = true;
  }
}

}  // namespace kiln::nvptx
