// One gemm on tiles that lie wholly inside their bases.
#pragma once

#include <functional>

#include "codegen/host_emit_impl.h"

namespace kiln::host {

struct Matrix {
  Place place;
  Val pointer;    // of its first element
  int64_t pitch;  // elements from row to row
  int64_t rows, columns;
};

class GemmEmitter {
 public:
  using NewMatrix = std::function<Matrix(DType, const Shape&)>;
  // `clear`: c starts from 0 (i1); null: it does not.
  GemmEmitter(Builder& builder, Matrix a, Matrix b_matrix, Matrix c, const Op& op, Val clear,
              NewMatrix new_matrix)
      : b(builder),
        a_(std::move(a)),
        b_(std::move(b_matrix)),
        c_(std::move(c)),
        transpose_a_(op.flag("transpose_a")),
        transpose_b_(op.flag("transpose_b")),
        clear_(clear),
        rows_(c_.rows),
        depth_(transpose_a_ ? a_.rows : a_.columns),
        lanes_(size_of(c_.place.dtype) == 8 ? std::max(2, b.target.lanes / 2) : b.target.lanes),
        new_matrix_(std::move(new_matrix)) {}
  void emit();

 private:
  void panel(Val column, int64_t vectors, int64_t block_rows, Val k, Val k_end);
  void block(Val row, int64_t rows, Val column, int64_t vectors, Val k, Val k_end);
  Val at(const Matrix& matrix, Val row, Val column);
  Val read(const Matrix& matrix, Val pointer, int lanes);  // as values of c's dtype
  void write(const Matrix& matrix, Val pointer, Val value);
  Val b_vector(Val column, int64_t vector, Val k, Val depth);
  Val step(Val x, Val y, Val sum);

  // host_transpose.cpp: [k][column] of a panel of a transposed b, as values of c's dtype.
  void make_buffer(int64_t depth, int64_t width);
  void fill_buffer(Val column, int64_t vectors, Val k, Val k_end);
  void transpose_square(Val column, Val at_column, int64_t present, Val depth, Val to_row);

  Builder& b;
  Matrix a_, b_, c_;
  Matrix buffer_;
  bool transpose_a_, transpose_b_;
  Val clear_;
  int64_t rows_, depth_;
  int lanes_;  // of c's dtype
  NewMatrix new_matrix_;
};

// The transpose of a square of vectors: as many as each has lanes.
std::vector<Val> transpose(Builder& b, std::vector<Val> rows);

}  // namespace kiln::host
