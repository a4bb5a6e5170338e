// How much of each row's softmax falls into each block of columns, summed over blocks of rows: what
// XAttention makes of the scores of cells (kernels/antidiag_scores).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

struct BlockSumConfig {
  DType dtype = F16;   // of the scores: f16, bf16 or f32
  int64_t block = 16;  // rows and columns of a block: 1 to 64, a power of two
  bool causal = true;  // row r sees the columns up to first + r
  bool operator==(const BlockSumConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it.
BlockSumConfig validated(const BlockSumConfig& config);

// scores [batch, heads, rows, cols]; i32 [batch] each: first, where row 0 stands among the columns;
// real_q, such that rows count that stand before it; real_k, the columns that are there. param
// scale f32. sums f32 [batch, heads, ceil(rows / block), ceil(cols / block)]: of each block the sum
// of its elements of softmax(scale · scores), a row at a time over the columns it sees. So a row of
// sums adds up to the rows that count and see something.
Kernel softmax_block_sum_kernel(const BlockSumConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis; scale is finite and
// above 0: 1 / (sqrt(head_dim) · stride · norm) of XAttention.
struct BlockSumArgs {
  Memory scores, first, real_q, real_k, sums;
  float scale = 1;
};
// UserError naming the argument, what was expected and what came.
void check(const BlockSumConfig& config, const BlockSumArgs& args);
void require_scale(float scale);

struct BlockSumLimits {
  int64_t batch = 0, heads = 0, rows = 0, cols = 0;
};
struct BlockSumInterface {
  using Config = BlockSumConfig;
  using Args = BlockSumArgs;
  using Limits = BlockSumLimits;
  static constexpr std::array<std::string_view, 5> kTensors = {"scores", "first", "real_q",
                                                               "real_k", "sums"};
  static Kernel kernel(const Config& config) { return softmax_block_sum_kernel(config); }
  static std::array<const Memory*, 5> tensors(const Args& args);
  static CallScalars<1> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits);
};
using SoftmaxBlockSum = LibraryFunction<BlockSumInterface>;
SoftmaxBlockSum softmax_block_sum(Device& device, const BlockSumConfig& config);

// In float64: adds one row's softmax(scale · score) over columns 0 … seen - 1 to the sums of
// blocks.
void softmax_sums(int64_t seen, int64_t block, double scale,
                  const std::function<double(int64_t column)>& score, double* sums);

KernelEntry softmax_block_sum_entry();

}  // namespace kiln
