// gemm_async by wgmma: four warps multiply 64 rows of a with up to 256 columns of b, 16 along k an
// instruction, while they go on; await waits for the group of instructions.
//
// What ptxas must see, else it runs them one after another: accumulators that no other instruction
// touches before the wait, one instruction an operation of inline assembly with them tied, and what
// uses them tied behind the wait.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "codegen/nvptx_assembly_impl.h"
#include "codegen/nvptx_matrix_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/dtype_rules.h"
#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/walk.h"

namespace kiln::nvptx {
namespace {

constexpr int64_t kRows = 64;      // of an instruction, of four warps
constexpr int64_t kColumns = 256;  // at most
constexpr int64_t kDepth = 16;
constexpr int64_t kWords = 4;  // of a thread, of a in registers

// The accumulators of one instruction; what becomes of their old values.
struct Accumulators {
  std::span<Val> registers;
  bool fresh = false;   // set, not added to
  Val added = nullptr;  // added to if this holds; null: added to
};

// Text, constraints and arguments of one instruction.
class Instruction {
 public:
  Instruction(Builder& builder, Accumulators d) : b(builder), d_(d) {
    for (size_t i = 0; i < d.registers.size(); ++i) constraints_ += "=f,";
    operands_ = d.registers.size();
    if (d.fresh) return;
    for (size_t i = 0; i < d.registers.size(); ++i) {
      constraints_ += fmt::format("{},", i);
      arguments_.push_back(d.registers[i]);
    }
    operands_ *= 2;
  }

  std::string operand(Val value, char constraint) {
    constraints_ += fmt::format("{},", constraint);
    arguments_.push_back(value);
    return fmt::format("${}", operands_++);
  }
  std::string registers(std::span<const Val> words) {
    std::string list;
    for (Val word : words) list += (list.empty() ? "" : ", ") + operand(word, 'r');
    return "{" + list + "}";
  }

  // `sources`: what stands between the accumulators and the predicate; `majors` at the end.
  void emit(const std::string& dtype, const std::string& sources, const std::string& majors) {
    std::string list;
    for (size_t i = 0; i < d_.registers.size(); ++i) list += fmt::format("{}${}", i ? ", " : "", i);
    const std::string added = d_.fresh ? "setp.ne.b32 p, 0, 0;"
                              : d_.added
                                  ? fmt::format("setp.ne.b32 p, {}, 0;", operand(as_word(), 'r'))
                                  : "setp.ne.b32 p, 1, 0;";
    const std::string text = fmt::format(
        "{{\n\t.reg .pred p;\n\t{}\n\t"
        "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{{}}}, {}, p, 1, 1, {};\n\t}}",
        added, 2 * d_.registers.size(), dtype, dtype, list, sources, majors);
    const std::vector<llvm::Type*> types(d_.registers.size(), b.ir.getFloatTy());
    std::ranges::copy(assembly(b, text, constraints_ + "~{memory}", types, arguments_),
                      d_.registers.begin());
  }

 private:
  Val as_word() { return b.ir.CreateZExt(d_.added, b.ir.getInt32Ty()); }

  Builder& b;
  Accumulators d_;
  std::string constraints_;
  size_t operands_ = 0;
  Values arguments_;
};

class GemmAsync {
 public:
  GemmAsync(Emitter& emitter, const Op& op)
      : e(emitter),
        b(emitter.b),
        op_(op),
        c_(e.fragment(op.operands[2])),
        dtype_(e.kernel().type(op.operands[1]).dtype),
        b_(e, op, "b", op.operands[1], op.flag("transpose_b")) {
    check_agent();
    m_ = c_.layout->shape().front();
    n_ = c_.layout->shape().back();
    if (c_.dtype != F32 || c_.layout->rank() != 2 ||
        *c_.layout != wgmma_accumulator(m_, n_, groups()) || m_ % (kRows * groups()) != 0 ||
        n_ % 8 != 0)
      throw UserError(op.loc, fmt::format("gemm_async: c must be a fragment of f32 in wgmma's "
                                          "layout of accumulators, its rows a multiple of 64 for "
                                          "each of the agent's {} groups of four warps",
                                          groups()));
    if (b_.rows() != n_) refuse_shapes();
    if (e.is_fragment(op.operands[0])) {
      take_registers();
    } else {
      a_.emplace(e, op, "a", op.operands[0], !op.flag("transpose_a"));
      if (a_->rows() != m_ || a_->depth() != b_.depth()) refuse_shapes();
      if (groups() > 1) a_->split_rows(m_ / groups());
    }
  }

  void emit() {
    Val clear = op_.operand(3) ? e.scalar(op_.operand(3)) : b.i1(false);
    b.call(llvm::Intrinsic::nvvm_wgmma_fence_sync_aligned, {});
    const int64_t widest = widest_instruction();
    for (int64_t row = 0; row < m_ / groups(); row += kRows) {
      for (int64_t column = 0; column < n_; column += widest) {
        const int64_t columns = std::min(n_ - column, widest);
        const int64_t first = (row / kRows * n_ + column) / 2;
        const auto d = std::span(c_.registers)
                           .subspan(static_cast<size_t>(first), static_cast<size_t>(columns / 2));
        for (int64_t k = 0; k < b_.depth(); k += kDepth)
          multiply(row, column, k, k == 0 ? cleared(d, clear) : Accumulators{d});
      }
    }
    b.call(llvm::Intrinsic::nvvm_wgmma_commit_group_sync_aligned, {});
  }

 private:
  int64_t groups() const { return e.warps() / 4; }

  void check_agent() const {
    if (!b.target.name.ends_with("90a"))
      throw UserError(
          op_.loc,
          fmt::format("gemm_async: the target is {}, and only sm_90a has wgmma", b.target.name));
    if (e.agent().one_thread || e.warps() % 4 != 0 || e.agent().first_warp % 4 != 0)
      throw UserError(
          op_.loc,
          fmt::format("gemm_async: takes groups of four warps, the agent has {}", e.warps()));
    const GemmDTypes* row = gemm_dtypes(dtype_, e.kernel().type(op_.operands[2]).dtype);
    if (!row || !row->wgmma)
      throw UserError(
          op_.loc,
          fmt::format("gemm_async: expected a, b of {}, got {}", wgmma_dtypes_text(), name(dtype_)),
          "gemm takes the others");
  }
  [[noreturn]] void refuse_shapes() const {
    throw UserError(op_.loc, "gemm_async: the shapes of a, b and c do not agree");
  }

  void take_registers() {
    const Fragment& a = e.fragment(op_.operands[0]);
    const Coordinate& shape = a.layout->shape();
    const bool fits = shape.size() == 2 && shape[0] == m_ && shape[1] == b_.depth();
    if (op_.flag("transpose_a") || !fits) refuse_shapes();
    if (!a.packed || *a.layout != wgmma_operand_a(m_, b_.depth(), kMma16BitK16, groups()))
      throw UserError(op_.loc,
                      "gemm_async: a fragment 'a' must be in wgmma's layout of operand A, which is "
                      "that of an accumulator of its shape");
    words_ = a.registers;
  }

  // In whole panels, of any width.
  int64_t widest_instruction() const {
    constexpr int64_t kUnit = 64;
    const int64_t accumulators = e.launch_registers() - kRegistersBesideAccumulators;
    return std::clamp(2 * accumulators / kUnit * kUnit, kUnit, kColumns);
  }

  Accumulators cleared(std::span<Val> d, Val clear) {
    if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(clear)) return {d, known->isOne()};
    return {d, false, b.ir.CreateNot(clear)};
  }

  void multiply(int64_t row, int64_t column, int64_t k, Accumulators d) {
    Instruction instruction(b, d);
    std::string a, majors;
    if (a_) {
      a = instruction.operand(a_->descriptor(row, k), 'l');
      majors = a_->k_last() ? "0, " : "1, ";
    } else {
      const auto first = static_cast<size_t>((row / kRows * b_.depth() + k) / kDepth * kWords);
      a = instruction.registers(std::span(words_).subspan(first, kWords));
    }
    const std::string right = instruction.operand(b_.descriptor(column, k), 'l');
    instruction.emit(std::string(name(dtype_)), a + ", " + right,
                     majors + (b_.k_last() ? "0" : "1"));
  }

  Emitter& e;
  Builder& b;
  const Op& op_;
  Fragment& c_;
  DType dtype_;
  SharedMatrix b_;
  std::optional<SharedMatrix> a_;
  Values words_;  // of a in registers
  int64_t m_ = 0, n_ = 0;
};

// To registers here, not where an instruction takes them.
void load_constants(Builder& b, Values& registers) {
  Values constants;
  for (Val value : registers)
    if (llvm::isa<llvm::Constant>(value)) constants.push_back(value);
  const Values loaded = held_here(b, constants);
  auto next = loaded.begin();
  for (Val& value : registers)
    if (llvm::isa<llvm::Constant>(value)) value = *next++;
}

// The products that may begin while `op` is under way, itself included: none beyond a loop.
std::vector<const Op*> products_with(const Kernel& kernel, RegionId region, const Op& op) {
  std::vector<const Op*> found;
  const auto note = [&](OpId id) {
    if (kernel.op(id).code == OpCode::GemmAsync) found.push_back(&kernel.op(id));
  };
  const std::vector<OpId>& ops = kernel.region(region).ops;
  for (auto it = std::ranges::find(ops, kernel.def(op.result)); it != ops.end(); ++it) {
    const OpCode code = kernel.op(*it).code;
    if (code == OpCode::For || code == OpCode::Loop) break;
    note(*it);
    for (RegionId inner : kernel.op(*it).regions) walk(kernel, inner, note);
  }
  return found;
}

}  // namespace

void Emitter::emit_gemm_async(const Op& op) {
  // ptxas waits for a product before it writes accumulators of another, so all are written now.
  if (gemms_.empty())
    for (const Op* gemm : products_with(kernel_, region_, op)) {
      const auto c = fragments_.find(gemm->operands[2].id);
      const bool fixed = gemm->operand(3) && kernel_.def_as(gemm->operands[3], OpCode::Const);
      const bool clears =
          fixed && llvm::cast<llvm::Constant>(scalar(gemm->operands[3]))->isOneValue();
      if (c != fragments_.end() && !clears) load_constants(b, c->second.registers);
    }
  GemmAsync(*this, op).emit();
  gemms_.push_back(op.result);
}

void Emitter::emit_await(const Op& op) {
  const auto token = std::ranges::find(gemms_, op.operands[0]);
  if (token == gemms_.end()) return;  // a later one was awaited
  const auto younger = gemms_.end() - token - 1;
  b.call(llvm::Intrinsic::nvvm_wgmma_wait_group_sync_aligned, {b.i64(younger)});
  // What a region around began is under way still where this one does not run.
  const auto is_here = [&](Value begun) {
    return std::ranges::count(kernel_.region(region_).ops, kernel_.def(begun)) > 0;
  };
  const auto rest = std::stable_partition(gemms_.begin(), token + 1, is_here);
  const auto accumulators = [&](auto begin, auto end) {
    std::set<Value> tiles;
    for (auto it = begin; it != end; ++it) tiles.insert(kernel_.op(kernel_.def(*it)).operands[2]);
    return tiles;
  };
  const std::set<Value> done = accumulators(gemms_.begin(), rest);
  gemms_.erase(gemms_.begin(), rest);
  const std::set<Value> busy = accumulators(gemms_.begin(), gemms_.end());
  for (Value tile : done)
    if (!busy.contains(tile)) fragment(tile).registers = held_here(b, fragment(tile).registers);
}

}  // namespace kiln::nvptx
