// Tensor maps: what a launch passes for each way that its asynchronous copies go through a tensor.
#pragma once

#include <string>

#include "codegen/abi.h"
#include "ir/memory.h"
#include "runtime/cuda_context.h"

namespace kiln::cuda {

// Makes the maps for one slot of a launch. Each thread remembers those it used last, of all slots
// together: a call with a tensor seen before asks the driver nothing and allocates nothing.
class TensorMapper {
 public:
  // `text` names kernel and tensor: "attention: q". UserError if no map has so many axes or so
  // large a box.
  TensorMapper(const Context& context, std::string text, DType dtype, int rank, TensorMap map,
               bool written);

  // Writes the map, kTensorMapBytes. UserError naming the axis, what was expected and what came, if
  // TMA cannot go through the tensor: where it lies, its strides, a last extent that no panels
  // fill. An empty tensor need not lie anywhere: all that is read of it is 0.
  void operator()(const Memory& tensor, void* to) const;

 private:
  EncodedMap encode(const Memory& tensor) const;

  const Context& context_;
  std::string text_;
  DType dtype_;
  size_t rank_;
  TensorMap map_;
  void* nothing_;  // memory that stands for an empty tensor
  uint64_t id_;    // of this process, never used again
};

}  // namespace kiln::cuda
