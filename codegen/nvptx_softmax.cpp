// softmax_step and scale_rows on fragments of which no row leaves its warp.
//
// With c = scale·log2(e) and k = u·c for each row, p = exp2(s·c − k). A guess takes k from the
// maximum as it is, in code without branches, and is right if the sums stay small: then no p
// overflows in f16. It is wrong by itself where the maximum is −inf (k = −inf makes p infinite or
// NaN), so that needs no test. The scores are kept, for the step that finds the maximum first.
#include <array>
#include <cmath>

#include "codegen/nvptx_assembly_impl.h"
#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "codegen/nvptx_words_impl.h"
#include "ir/error.h"
#include "ir/layout/locality.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

constexpr size_t kGroup = 8;        // elements from score to sum, before the next ones
constexpr double kMostSum = 16384;  // of a row's part that a thread has, for a guess to be right
constexpr double kMostGrowth = 8;   // of a maximum that stays where it may, as a power of two

// What a step makes, register by register: of the rows, and of p as its fragment keeps it.
struct Step {
  Values p, m, l, alpha;
  Val rescaled = nullptr;  // some row's alpha, in this warp, may not be 1

  Values all() const {
    Values values;
    for (const Values* part : {&p, &m, &l, &alpha})
      values.insert(values.end(), part->begin(), part->end());
    values.push_back(rescaled);
    return values;
  }
};

class SoftmaxStep {
 public:
  SoftmaxStep(Emitter& emitter, const Op& op)
      : e(emitter),
        b(emitter.b),
        op_(op),
        s_(e.fragment(op.operands[0])),
        m_(e.fragment(op.operands[1])),
        l_(e.fragment(op.operands[2])),
        p_(e.fragment(op.operands[3])),
        plan_(plan()) {
    check();
    row_.resize(s_.registers.size());
    for (size_t row = 0; row < rows(); ++row)
      for (const int reg : plan_.sources[row]) row_[static_cast<size_t>(reg)] = row;
    scale_ = b.ir.CreateFMul(e.scalar(op.operands[5]), number(std::log2(std::exp(1.0))));
  }

  Step emit() {
    if (!op_.operand(6)) return full(0);
    // Both branches give p, the new l, and whether that will not do.
    const Values guessed = b.when(
        e.scalar(op_.operand(6)),
        [&] {
          Values none;
          for (Val word : p_.registers) none.push_back(llvm::PoisonValue::get(word->getType()));
          none.insert(none.end(), l_.registers.begin(), l_.registers.end());
          none.push_back(b.i1(true));
          return none;
        },
        [&] { return guess(); });
    const auto guessed_p = guessed.begin() + static_cast<std::ptrdiff_t>(p_.registers.size());
    const Values result = b.when(
        guessed.back(), [&] { return full(kMostGrowth).all(); },
        [&] {
          Step kept{{guessed.begin(), guessed_p}, m_.registers, {guessed_p, guessed.end() - 1}};
          kept.alpha.assign(rows(), number(1));
          kept.rescaled = b.i1(false);
          return kept.all();
        });
    return step_of(result);
  }

 private:
  size_t rows() const { return plan_.sources.size(); }
  Val number(double value) { return llvm::ConstantFP::get(b.ir.getFloatTy(), value); }

  ReducePlan plan() const {
    std::optional<ReducePlan> plan = plan_reduction(*s_.layout, 1);
    if (!plan || plan->parts != 1 || s_.layout->is_padded())
      throw InternalError(op_.loc, "softmax_step: a row of s is not within one warp");
    return *plan;
  }

  void check() const {
    const Fragment& alpha = e.fragment(op_.operands[4]);
    if (*m_.layout != plan_.result || *alpha.layout != plan_.result)
      throw InternalError(op_.loc,
                          "softmax_step: the layout of m or alpha is not that of s's rows");
    if (*p_.layout != *s_.layout)
      throw InternalError(op_.loc, "softmax_step: the layout of p is not that of s");
    if (*l_.layout == plan_.result) return;
    // Parts of a row: one for each lane that has a part of it.
    if (l_.layout->rank() != 2 || !l_.layout->is_injective() || l_.layout->is_padded() ||
        l_.layout->registers() != m_.layout->registers() ||
        reduce_axis(*l_.layout, 1) != plan_.result)
      throw InternalError(op_.loc,
                          "softmax_step: the layout of l is neither that of s's rows nor one part "
                          "of a row for each lane that holds some of it");
  }

  Step step_of(const Values& values) const {
    Step step;
    auto next = values.begin();
    const auto take = [&](Values& part, size_t count) {
      part.assign(next, next + static_cast<std::ptrdiff_t>(count));
      next += static_cast<std::ptrdiff_t>(count);
    };
    take(step.p, p_.registers.size());
    for (Values* part : {&step.m, &step.l, &step.alpha}) take(*part, rows());
    step.rescaled = *next;
    return step;
  }

  // p and, of each row, the sum of this thread's part. Two sums a row, so that additions overlap.
  std::pair<Values, Values> weights(const Values& k) {
    auto& ir = b.ir;
    Values shift, p;
    for (Val of : k) shift.push_back(ir.CreateFNeg(of));
    std::vector<std::array<Val, 2>> sums(rows(), {nullptr, nullptr});
    std::vector<size_t> seen(rows(), 0);
    for (size_t first = 0; first < row_.size(); first += kGroup) {
      const size_t end = std::min(first + kGroup, row_.size());
      Values group;
      for (size_t i = first; i < end; ++i) {
        Val x = b.call(llvm::Intrinsic::fma, {s_.registers[i], scale_, shift[row_[i]]},
                       {ir.getFloatTy()});
        group.push_back(exp2(x));
      }
      keep(p, group);
      for (size_t i = first; i < end; ++i) {
        Val& sum = sums[row_[i]][seen[row_[i]]++ % 2];
        sum = sum ? ir.CreateFAdd(sum, group[i - first]) : group[i - first];
      }
    }
    Values total;
    for (const auto& [even, odd] : sums) total.push_back(odd ? ir.CreateFAdd(even, odd) : even);
    // Here, in the shadow of what is under way, and not where p is used, which is behind a wait.
    if (p_.packed) p = held_here(b, p);
    return {p, total};
  }

  void keep(Values& p, const Values& group) {
    if (!p_.packed) {
      for (Val value : group) p.push_back(cast(b, value, F32, p_.dtype));
    } else {
      for (size_t i = 0; i < group.size(); i += 2)
        p.push_back(pack_rounded(b, group[i], group[i + 1], p_.dtype));
    }
  }

  Val exp2(Val x) { return b.call(llvm::Intrinsic::nvvm_ex2_approx_ftz, {x}, {b.ir.getFloatTy()}); }
  Val any(Val condition) {
    return b.call(llvm::Intrinsic::nvvm_vote_any_sync, {b.i32(-1), condition});
  }

  // The sums, of rows or parts of rows, as l has them.
  Values as_l(Values sums) {
    if (*l_.layout != plan_.result) return sums;
    for (const int mask : plan_.lane_masks)
      for (Val& sum : sums) sum = b.ir.CreateFAdd(sum, shuffle_xor(b, sum, mask));
    return sums;
  }

  Values guess() {
    auto& ir = b.ir;
    Values k;
    for (Val m : m_.registers) k.push_back(ir.CreateFMul(m, scale_));
    auto [result, sums] = weights(k);
    Val wrong = b.i1(false);
    for (Val sum : sums) wrong = ir.CreateOr(wrong, ir.CreateFCmpUGE(sum, number(kMostSum)));
    wrong = any(wrong);
    sums = as_l(std::move(sums));
    for (size_t row = 0; row < rows(); ++row)
      result.push_back(
          ir.CreateFAdd(l_.registers[row], ir.CreateSelect(wrong, number(0), sums[row])));
    result.push_back(wrong);
    return result;
  }

  Val greatest(size_t row) {
    // Two chains here too.
    std::array<Val, 2> most{nullptr, nullptr};
    size_t seen = 0;
    for (const int reg : plan_.sources[row]) {
      Val& now = most[seen++ / 2 % 2];
      Val score = s_.registers[static_cast<size_t>(reg)];
      now = now ? larger(now, score) : score;
    }
    Val result = most[1] ? larger(most[0], most[1]) : most[0];
    for (const int mask : plan_.lane_masks) result = larger(result, shuffle_xor(b, result, mask));
    return result;
  }
  Val larger(Val x, Val y) { return binary(b, OpCode::Max, F32, x, y); }

  // Maxima move, those of all rows of the warp, if one has grown by more than 2^slack; from −inf
  // they do.
  Step full(double slack) {
    auto& ir = b.ir;
    Values most;
    Val moves = b.i1(false);
    for (size_t row = 0; row < rows(); ++row) {
      Val m = m_.registers[row];
      most.push_back(larger(m, greatest(row)));
      Val growth = ir.CreateFMul(ir.CreateFSub(most[row], m), scale_);
      moves = ir.CreateOr(moves, ir.CreateFCmpUGT(growth, number(slack)));
    }
    Step step;
    step.rescaled = moves = any(moves);
    Values k;
    for (size_t row = 0; row < rows(); ++row) {
      Val m = m_.registers[row];
      Val size = b.call(llvm::Intrinsic::fabs, {most[row]}, {ir.getFloatTy()});
      Val finite = ir.CreateFCmpOLT(size, llvm::ConstantFP::getInfinity(ir.getFloatTy()));
      Val u = ir.CreateSelect(finite, most[row], number(0));
      Val alpha = exp2(ir.CreateFMul(ir.CreateFSub(m, u), scale_));
      step.m.push_back(ir.CreateSelect(moves, most[row], m));
      step.alpha.push_back(ir.CreateSelect(moves, alpha, number(1)));
      k.push_back(ir.CreateFMul(ir.CreateSelect(moves, u, m), scale_));
    }
    auto [p, sums] = weights(k);
    step.p = std::move(p);
    sums = as_l(std::move(sums));
    for (size_t row = 0; row < rows(); ++row)
      step.l.push_back(b.call(llvm::Intrinsic::fma, {l_.registers[row], step.alpha[row], sums[row]},
                              {ir.getFloatTy()}));
    return step;
  }

  Emitter& e;
  Builder& b;
  const Op& op_;
  const Fragment &s_, &m_, &l_, &p_;
  ReducePlan plan_;
  std::vector<size_t> row_;  // of s's registers, as the register of m that has the row
  Val scale_ = nullptr;      // c
};

}  // namespace

void Emitter::emit_softmax_step(const Op& op) {
  Step step = SoftmaxStep(*this, op).emit();
  fragment(op.operands[1]).registers = std::move(step.m);
  fragment(op.operands[2]).registers = std::move(step.l);
  fragment(op.operands[3]).registers = std::move(step.p);
  fragment(op.operands[4]).registers = step.alpha;
  rescales_[op.operands[4].id] = {step.rescaled, std::move(step.alpha)};
}

void Emitter::emit_scale_rows(const Op& op) {
  Fragment& acc = fragment(op.operands[0]);
  const Fragment& alpha = fragment(op.operands[1]);
  const auto rows = local_registers(*acc.layout, {0}, *alpha.layout);
  if (!rows) throw InternalError(op.loc, "scale_rows: a thread lacks the factor of a row");
  // Equal values are of the same place in the code, where the flag is known too.
  Val some = nullptr;
  const auto known = rescales_.find(op.operands[1].id);
  if (known != rescales_.end() && known->second.alpha == alpha.registers) some = known->second.some;
  const auto scaled = [&] {
    Values products;
    for (size_t reg = 0; reg < acc.registers.size(); ++reg) {
      const int row = (*rows)[reg];
      if (row < 0) {
        products.push_back(acc.registers[reg]);
        continue;
      }
      Val factor = alpha.registers[static_cast<size_t>(row)];
      Val product = b.ir.CreateFMul(acc.registers[reg], factor);
      Val cleared = b.ir.CreateFCmpOEQ(factor, b.zero(F32));
      products.push_back(b.ir.CreateSelect(cleared, b.zero(F32), product));
    }
    return products;
  };
  acc.registers = b.when(some, scaled, [&] { return acc.registers; });
}

}  // namespace kiln::nvptx
