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

inline constexpr int64_t kWarpsPerGroup = 4;  // a warpgroup: what roles are made of
inline constexpr int64_t kMostWarps = 32;     // CUDA C++ Programming Guide: 1024 threads a block
inline constexpr int64_t kNoPlace = -1;       // the default of `offset` and `control`

std::string operand_name(const Op& op, size_t operand);
std::string brief(const Type& type);  // "64x128 f16"

std::string on_line(const Op& op);                        // "on line 12"
void require_tile_extents(const Law& law, const Op& op);  // of the result: positive, not too many
void require_on_chip(const Law& law, const Op& op, size_t operand);  // of constant extents
// Attribute `dim` is an axis of the operand.
int64_t require_dim(const Law& law, const Op& op, size_t operand);
// The operand has the shape of `from` without axis `dim`, or with extent 1 there.
void require_reduced(const Law& law, const Op& op, size_t operand, const Type& from, int64_t dim);
void require_place(const Law& law, const Op& op, const char* attribute);  // a number of bytes
void require_copy_shapes(const Law& law, const Op& op);  // static; agree but for extents of 1

// Rules of single ops whose operands, attributes and regions have the right number and kind.
void check_interface(const Law& law, const Op& op);    // dim, param, tensor, launch
void check_structure(const Law& law, const Op& op);    // for … parallel
void check_in_parallel(const Law& law, const Op& op);  // may it stand in one?
void check_storage(const Law& law, const Op& op);      // alloc … atomic
void check_tile_op(const Law& law, const Op& op);      // gemm, gemm_async, reduce
void check_row_op(const Law& law, const Op& op);       // arg_reduce, cumsum, sort
void check_softmax(const Law& law, const Op& op);      // softmax_step, scale_rows, softmax_finish
void check_scalar(const Law& law, const Op& op);
void check_late(const Law& law, const Op& op);  // roles … next_tile

// Rules of a launch as a whole, whose ops keep the rules of single ops.
void check_agents(const Law& law, const Op& launch);  // roles, channels, loops
void check_order(const Law& law, const Op& launch);   // pushes, slots, tokens; barriers in roles

}  // namespace kiln
