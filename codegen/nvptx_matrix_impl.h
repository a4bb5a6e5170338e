// Operands of wgmma in shared memory.
#pragma once

#include "codegen/nvptx_emit_impl.h"

namespace kiln::nvptx {

// A matrix in a shared tile of swizzled panels, or a view of one, as the 64-bit descriptors of its
// parts (PTX ISA, "Asynchronous warpgroup-level matrix shared memory layout"). One word is computed
// at run time; parts differ from it by constants.
class SharedMatrix {
 public:
  // `k_last`: the last axis is k ("K-major"), else the one before it is. UserError of `op` that
  // says what the tile must be, if it cannot be an operand.
  SharedMatrix(Emitter& emitter, const Op& op, const char* name, Value storage, bool k_last);

  bool k_last() const { return k_last_; }
  int64_t rows() const { return k_last_ ? size_[0] : size_[1]; }  // m or n
  int64_t depth() const { return k_last_ ? size_[1] : size_[0]; }

  // Each group of four warps has the next `count` rows from now on.
  void split_rows(int64_t count);
  // i64, of the part that begins at (row, k); a row that is a multiple of row_step().
  Val descriptor(int64_t row, int64_t k);
  int64_t row_step() const { return k_last_ ? 8 : panel_ / 2; }

 private:
  int64_t bytes_to(int64_t row, int64_t k) const;
  [[noreturn]] void refuse(const std::string& what) const;
  void check_alignment(Value storage) const;

  Emitter& e;
  Builder& b;
  const Op& op_;
  const char* name_;
  bool k_last_;
  int64_t panel_ = 0, stride_ = 0;  // bytes of a row of a panel, and of a panel
  Coordinate size_, fixed_;         // of the view's last two axes; where it begins, as far as known
  Val low_ = nullptr;               // word of the descriptor of where it begins, without `fixed`
};

}  // namespace kiln::nvptx
