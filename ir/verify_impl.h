// The verifier's context and its groups of rules, one group a file.
#pragma once

#include <string>

#include "ir/kernel.h"
#include "ir/verify.h"

namespace kiln {

struct Law {
  const Kernel& kernel;
  IrStage stage;
  const Op* parallel = nullptr;  // the loop around the op, if there is one

  const Type& type(Value value) const { return kernel.type(value); }
  // "name: message" at the op.
  [[noreturn]] void fail(const Op& op, const std::string& message,
                         const std::string& hint = "") const;
  void require_i32(const Op& op, size_t operand) const;
  // All operands from `first` on are i32, one an axis of `base`.
  void require_index(const Op& op, size_t first, const Type& base) const;
  // Attribute `layout`, if there is one, fits a tile of this shape.
  void require_layout(const Op& op, const Shape& shape, Space space) const;
};

std::string operand_name(const Op& op, size_t operand);
std::string brief(const Type& type);  // "64x128 f16"

// Rules of single ops whose operands, attributes and regions have the right number and kind.
void check_interface(const Law& law, const Op& op);  // dim, param, tensor, launch
void check_structure(const Law& law, const Op& op);  // for, selected, if, parallel
void check_storage(const Law& law, const Op& op);    // alloc, slice, copy, fill, load, store
void check_tile_op(const Law& law, const Op& op);    // gemm, reduce
void check_softmax(const Law& law, const Op& op);    // softmax_step, scale_rows, softmax_finish
void check_scalar(const Law& law, const Op& op);

}  // namespace kiln
