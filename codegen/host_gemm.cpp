// gemm: a block of rows × vectors of c stays in registers while k runs; each step loads one row of
// b's panel and broadcasts a column of a. Panels of b are the outer loop, so that a panel (depth ×
// a few vectors) stays in the first-level cache while a streams past it. A transposed b is turned
// panel by panel into a buffer first. Every element of c sees k in ascending order, one fma a step.
//
// Columns are rounded up to whole vectors: what lies beyond in b and c is read and computed with,
// never written outside c's own padding.
#include <algorithm>

#include "codegen/host_emit_impl.h"
#include "codegen/host_gemm_impl.h"
#include "codegen/host_ops_impl.h"

namespace kiln::host {
namespace {

constexpr int64_t kDepthBlock = 256;  // of k: a panel of b fits the first-level cache

Matrix matrix_of(Builder& b, const Place& place) {
  const size_t rank = place.axes.size();
  const Axis &rows = place.axes[rank - 2], &columns = place.axes[rank - 1];
  Val offset = b.i64(0);
  for (const Axis& axis : place.axes)
    offset = b.ir.CreateAdd(offset, b.ir.CreateMul(axis.start, axis.stride));
  return {place, b.ir.CreateGEP(b.tile_type(place.dtype), place.pointer, offset),
          place.pitches[rank - 2], rows.size, columns.size};
}

// How many rows and vectors of c are held at once.
struct Block {
  int64_t rows, vectors;
};

// Two registers hold b and a; with few rows more vectors keep the pipelines full.
Block block_for(const Target& target, int64_t rows, int64_t vectors) {
  const int64_t accumulators = target.registers == 32 ? 24 : 12;
  Block block{target.registers == 32 ? 8 : 6, target.registers == 32 ? 3 : 2};
  if (vectors % block.vectors != 0 && vectors % 2 == 0) block.vectors = 2;
  block.rows = std::min(rows, accumulators / block.vectors);
  const int64_t blocks = (rows + block.rows - 1) / block.rows;
  block.rows = (rows + blocks - 1) / blocks;  // as even as possible
  block.vectors = std::clamp<int64_t>(accumulators / block.rows, block.vectors, 8);
  block.vectors = std::min(block.vectors, vectors);
  return block;
}

}  // namespace

void GemmEmitter::emit() {
  const int64_t vectors = (c_.columns + lanes_ - 1) / lanes_;
  const Block block = block_for(b.target, rows_, vectors);
  const int64_t width = block.vectors * lanes_;
  const int64_t whole = vectors / block.vectors, rest = vectors % block.vectors;
  const int64_t depth_block = std::min(depth_, kDepthBlock);
  if (transpose_b_) make_buffer(depth_block, width);
  b.loop(b.i64(0), b.i64(depth_), b.i64(depth_block), [&](Val k) {
    Val k_end = b.smin(b.ir.CreateAdd(k, b.i64(depth_block)), b.i64(depth_));
    b.loop(b.i64(0), b.i64(whole * width), b.i64(width),
           [&](Val column) { panel(column, block.vectors, block.rows, k, k_end); });
    if (rest) panel(b.i64(whole * width), rest, block.rows, k, k_end);
  });
}

void GemmEmitter::panel(Val column, int64_t vectors, int64_t block_rows, Val k, Val k_end) {
  if (transpose_b_) fill_buffer(column, vectors, k, k_end);
  // Blocks of block_rows rows, then blocks of one row less: no thin remainder.
  const int64_t blocks = (rows_ + block_rows - 1) / block_rows;
  const int64_t tall = rows_ - blocks * (block_rows - 1);
  const int64_t middle = tall * block_rows;
  b.loop(b.i64(0), b.i64(middle), b.i64(block_rows),
         [&](Val row) { block(row, block_rows, column, vectors, k, k_end); });
  if (middle < rows_)
    b.loop(b.i64(middle), b.i64(rows_), b.i64(block_rows - 1),
           [&](Val row) { block(row, block_rows - 1, column, vectors, k, k_end); });
}

Val GemmEmitter::at(const Matrix& m, Val row, Val column) {
  Val offset = b.ir.CreateAdd(b.ir.CreateMul(row, b.i64(m.pitch)), column);
  return b.ir.CreateGEP(b.tile_type(m.place.dtype), m.pointer, offset);
}

Val GemmEmitter::read(const Matrix& m, Val pointer, int lanes) {
  llvm::Type* type = Builder::widen(b.tile_type(m.place.dtype), lanes);
  const llvm::Align align(type->getScalarSizeInBits() / 8);
  auto* load = b.ir.CreateAlignedLoad(type, pointer, align);
  load->setMetadata(llvm::LLVMContext::MD_tbaa, m.place.alias_tag);
  return cast(b, load, m.place.dtype, c_.place.dtype);
}

void GemmEmitter::write(const Matrix& m, Val pointer, Val value) {
  const llvm::Align align(value->getType()->getScalarSizeInBits() / 8);
  auto* store = b.ir.CreateAlignedStore(value, pointer, align);
  store->setMetadata(llvm::LLVMContext::MD_tbaa, m.place.alias_tag);
}

Val GemmEmitter::step(Val x, Val y, Val sum) {
  if (is_float(c_.place.dtype)) return b.multiply_add(x, y, sum);
  return b.ir.CreateAdd(sum, b.ir.CreateMul(x, y));
}

// One block: rows × vectors of c from (row, column), k from `k` to `k_end`.
void GemmEmitter::block(Val row, int64_t rows, Val column, int64_t vectors, Val k, Val k_end) {
  auto c_address = [&](int64_t r, int64_t v) {
    return at(c_, b.ir.CreateAdd(row, b.i64(r)), b.ir.CreateAdd(column, b.i64(v * lanes_)));
  };
  llvm::Type* vector = Builder::widen(b.value_type(c_.place.dtype), lanes_);
  Val zero = llvm::Constant::getNullValue(vector);
  Val fresh = clear_ ? b.ir.CreateAnd(clear_, b.ir.CreateICmpEQ(k, b.i64(0))) : b.ir.getFalse();
  const bool always_fresh = clear_ && Builder::known(clear_) && depth_ <= kDepthBlock;
  Builder::Values sums;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      Val old = always_fresh ? zero : read(c_, c_address(r, v), lanes_);
      sums.push_back(always_fresh ? zero : b.ir.CreateSelect(fresh, zero, old));
    }
  auto body = [&](Val depth, const Builder::Values& current) {
    Builder::Values y, next;
    for (int64_t v = 0; v < vectors; ++v) y.push_back(b_vector(column, v, k, depth));
    for (int64_t r = 0; r < rows; ++r) {
      Val i = b.ir.CreateAdd(row, b.i64(r));
      Val x = read(a_, transpose_a_ ? at(a_, depth, i) : at(a_, i, depth), 1);
      x = b.spread(x, lanes_);
      for (int64_t v = 0; v < vectors; ++v)
        next.push_back(step(x, y[static_cast<size_t>(v)], current[next.size()]));
    }
    return next;
  };
  sums = b.loop(k, k_end, b.i64(1), sums, body);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      write(c_, c_address(r, v), sums[static_cast<size_t>(r * vectors + v)]);
    }
}

Val GemmEmitter::b_vector(Val column, int64_t vector, Val k, Val depth) {
  if (!transpose_b_)
    return read(b_, at(b_, depth, b.ir.CreateAdd(column, b.i64(vector * lanes_))), lanes_);
  Val row = b.ir.CreateSub(depth, k);
  return read(buffer_, at(buffer_, row, b.i64(vector * lanes_)), lanes_);
}

void Emitter::emit_gemm(const Op& op, Val clear) {
  if (clear && Builder::known(clear) && Builder::known(clear)->isZero()) clear = nullptr;
  // c is a whole fragment: its rows end in padding that may be written.
  const Place x = inside_copy(place(op.operands[0])), y = inside_copy(place(op.operands[1]));
  GemmEmitter(b, matrix_of(b, x), matrix_of(b, y), matrix_of(b, place(op.operands[2])), op, clear,
              [&](DType dtype, const Shape& shape) { return matrix_of(b, new_tile(dtype, shape)); })
      .emit();
}

}  // namespace kiln::host
