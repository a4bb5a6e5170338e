// What the calls from a Python process have in common: tensors as beside_peers.py describes them.
#pragma once

#include <string>

#include "ir/memory.h"

namespace kiln::beside {

struct Given {  // a tensor; no data: not given
  void* data;
  int64_t dtype, rank, shape[5], strides[5];
};

inline Memory memory_of(const Given& given) {
  static constexpr DType kTypes[] = {F16, BF16, F32, I32, Bool, I8, E4M3};
  const auto rank = static_cast<size_t>(given.rank);
  Memory memory;
  memory.data = given.data;
  memory.dtype = kTypes[given.dtype];
  memory.shape.assign(given.shape, given.shape + rank);
  memory.strides.assign(given.strides, given.strides + rank);
  return memory;
}

// Null, or what is wrong.
template <class Do>
const char* report(const Do& run) {
  static thread_local std::string problem;
  try {
    run();
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}

}  // namespace kiln::beside
