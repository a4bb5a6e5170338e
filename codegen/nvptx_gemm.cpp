// gemm by mma.sync: for each step along k a warp loads the rows of a that it needs, then, a few
// columns of b at a time, multiplies them with all of these rows; c stays in registers.
#include "codegen/nvptx_gemm_impl.h"
#include "ir/error.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

using ID = llvm::Intrinsic::ID;

ID instruction(const Op& op, DType dtype, MmaInput input) {
  const bool rest = input.k == kMma16BitK8.k;
  switch (dtype) {
    case F16:
      return rest ? llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_f32_f32
                  : llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_f32_f32;
    case BF16:
      return rest ? llvm::Intrinsic::nvvm_mma_m16n8k8_row_col_bf16
                  : llvm::Intrinsic::nvvm_mma_m16n8k16_row_col_bf16;
    case I8: return llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_s8;
    case U8: return llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_u8;
    case E4M3: return llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e4m3_e4m3_f32;
    case E5M2: return llvm::Intrinsic::nvvm_mma_m16n8k32_row_col_f32_e5m2_e5m2_f32;
    default: throw InternalError(op.loc, "gemm: mma of such elements");
  }
}

class MmaEmitter {
 public:
  MmaEmitter(Emitter& emitter, const Op& op, const GemmPlan& plan, Values c)
      : e(emitter),
        b(emitter.b),
        op_(op),
        plan_(plan),
        c_(std::move(c)),
        dtype_(e.kernel().type(op.operands[0]).dtype),
        rows_(plan.shape.m / 16 / plan.warps.m),
        columns_(plan.shape.n / 8 / plan.warps.n) {}

  Values emit() {
    const int64_t k = plan_.shape.k, step = plan_.input.k;
    // A rest of eight halves has an instruction of its own; bytes are padded with zeros.
    const int64_t whole = k / step * step;
    if (whole > 0) part(0, whole, plan_.input);
    if (whole < k) part(whole, k - whole, dtype_bytes() == 2 ? kMma16BitK8 : plan_.input);
    return std::move(c_);
  }

 private:
  int64_t dtype_bytes() const { return static_cast<int64_t>(size_of(dtype_)); }
  bool flag(const char* name) const { return op_.flag(name); }

  // The layout of an operand as it is stored.
  Layout stored(Layout matrix, size_t operand, bool transposed) const {
    if (transposed) matrix = permute_axes(matrix, {1, 0});
    while (matrix.rank() < e.kernel().type(op_.operands[operand]).rank())
      matrix = insert_axis(matrix, 0);
    return matrix;
  }
  int axis(size_t operand, bool last) const {
    return e.kernel().type(op_.operands[operand]).rank() - (last ? 1 : 2);
  }

  // `depth` elements of k from `begin` on.
  void part(int64_t begin, int64_t depth, MmaInput input) {
    const auto [m, n, k] = plan_.shape;
    MmaOperand from_a(e, op_.operands[0], plan_.a,
                      stored(mma_operand_a(m, depth, input, plan_.warps), 0, flag("transpose_a")),
                      axis(0, !flag("transpose_a")), begin);
    MmaOperand from_b(e, op_.operands[1], plan_.b,
                      stored(mma_operand_b(depth, n, input, plan_.warps), 1, flag("transpose_b")),
                      axis(1, flag("transpose_b")), begin);
    const ID id = instruction(op_, dtype_, input);
    const int64_t words_b = input.k * input.bytes / 16, words_a = 2 * words_b;  // of a tile
    const int64_t steps = (depth + input.k - 1) / input.k;
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<Values> rows(static_cast<size_t>(rows_));
      for (int64_t row = 0; row < rows_; ++row)
        for (int64_t word = 0; word < words_a; ++word)
          rows[static_cast<size_t>(row)].push_back(
              as_input(from_a.word((row * steps + step) * words_a + word)));
      for (int64_t column = 0; column < columns_; ++column) {
        Values tile;
        for (int64_t word = 0; word < words_b; ++word)
          tile.push_back(as_input(from_b.word((step * columns_ + column) * words_b + word)));
        for (int64_t row = 0; row < rows_; ++row)
          multiply(id, rows[static_cast<size_t>(row)], tile, (row * columns_ + column) * 4);
      }
    }
  }

  Val as_input(Val word) {
    if (dtype_ != F16) return word;
    return b.ir.CreateBitCast(word, llvm::FixedVectorType::get(b.ir.getHalfTy(), 2));
  }

  void multiply(ID id, const Values& a_words, const Values& b_words, int64_t first) {
    Values in = a_words;
    in.insert(in.end(), b_words.begin(), b_words.end());
    const auto c = c_.begin() + first;
    in.insert(in.end(), c, c + 4);
    Val result = b.call(id, in);
    for (unsigned i = 0; i < 4; ++i) c[i] = b.ir.CreateExtractValue(result, i);
  }

  Emitter& e;
  Builder& b;
  const Op& op_;
  const GemmPlan& plan_;
  Values c_;
  DType dtype_;
  int64_t rows_, columns_;  // instruction tiles of a warp
};

}  // namespace

Values mma_gemm(Emitter& e, const Op& op, const GemmPlan& plan, Values c) {
  return MmaEmitter(e, op, plan, std::move(c)).emit();
}

void Emitter::emit_gemm(const Op& op) {
  const GemmPlan plan = gemm_plan(kernel_, op, warps());
  Fragment& c = fragment(op.operands[2]);
  if (*c.layout != plan.c)
    throw InternalError(op.loc, "gemm: c's layout is not that of its instruction");
  Values start = op.flag("clear") ? new_fragment(c.dtype, c.layout).registers : c.registers;
  c.registers = plan.mma ? mma_gemm(*this, op, plan, std::move(start))
                         : fma_gemm(*this, op, plan, std::move(start));
}

}  // namespace kiln::nvptx
