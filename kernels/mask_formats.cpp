#include "kernels/mask_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"

namespace kiln {
namespace {

constexpr int64_t kWord = 64;  // bits

bool is_set(const Array& mask, int64_t at) {
  return static_cast<const uint8_t*>(mask.data())[at] != 0;
}
void set(Array& mask, int64_t at) {
  static_cast<uint8_t*>(mask.data())[at] = 1;
}

// "row 3 of batch 0, head 1"
std::string place(const Shape& shape, int64_t row) {
  return fmt::format("row {} of batch {}, head {}", row % shape[2], row / shape[2] / shape[1],
                     row / shape[2] % shape[1]);
}

// Sets the listed columns of a mask's row; an index that is none, or listed twice, is an error.
void add_listed(const char* what, int64_t index, int64_t row, Array& mask) {
  const int64_t cols = mask.shape()[3];
  if (index < 0 || index >= cols)
    throw UserError(fmt::format("{}: expected columns 0 to {}, got {} in {}", what, cols - 1, index,
                                place(mask.shape(), row)));
  if (is_set(mask, row * cols + index))
    throw UserError(fmt::format("{}: expected each column once, got {} twice in {}", what, index,
                                place(mask.shape(), row)));
  set(mask, row * cols + index);
}

// One pair of a FlexMask, broadcast.
Array from_pair(const std::array<const char*, 2>& names, const Memory& counts,
                const Memory& indices, int64_t batch, int64_t heads, int64_t cols) {
  require_dtype(names[0], counts, I32);
  require_dtype(names[1], indices, I32);
  require_rank(names[0], counts, 3, "batch or 1, heads or 1, rows");
  for (auto [axis, size] : {std::pair(0, batch), std::pair(1, heads)})
    if (counts.shape[axis] != size && counts.shape[axis] != 1)
      throw UserError(fmt::format("{}: expected {} or 1 on axis {}, got {}", names[0], size, axis,
                                  str(counts.shape)));
  require_rank(names[1], indices, 4, "batch or 1, heads or 1, rows, entries");
  const Shape& shape = counts.shape;
  require_shape(names[1], indices, {shape[0], shape[1], shape[2], indices.shape[3]});
  Array mask(Bool, {batch, heads, shape[2], cols});
  for (int64_t row = 0; row < batch * heads * shape[2]; ++row) {
    const int64_t r = row % shape[2], h = shape[1] == 1 ? 0 : row / shape[2] % heads;
    const int64_t b = shape[0] == 1 ? 0 : row / shape[2] / heads;
    const int64_t listed = load_int(counts, {b, h, r});
    if (listed < 0 || listed > indices.shape[3])
      throw UserError(fmt::format("{}: expected 0 to {}, the entries of {}, got {} in {}", names[0],
                                  indices.shape[3], names[1], listed, place(mask.shape(), row)));
    for (int64_t i = 0; i < listed; ++i)
      add_listed(names[1], load_int(indices, {b, h, r, i}), row, mask);
  }
  return mask;
}

}  // namespace

void check_lists(const Memory& counts, const Memory& indices, int64_t cols) {
  require_dtype("counts", counts, I32);
  require_dtype("indices", indices, I32);
  require_rank("counts", counts, 3, "batch, heads, rows");
  require_rank("indices", indices, 4, "batch, heads, rows, entries");
  const Shape& shape = indices.shape;
  require_shape("counts", counts, {shape[0], shape[1], shape[2]});
  for (int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const int64_t b = row / shape[2] / shape[1], h = row / shape[2] % shape[1], r = row % shape[2];
    const int64_t listed = load_int(counts, {b, h, r});
    if (listed < 0 || listed > shape[3])
      throw UserError(fmt::format("counts: expected 0 to {}, the entries of indices, got {} in {}",
                                  shape[3], listed, place(shape, row)));
    int64_t before = -1;
    for (int64_t i = 0; i < listed; ++i) {
      const int64_t index = load_int(indices, {b, h, r, i});
      if (index < 0 || index >= cols)
        throw UserError(fmt::format("indices: expected columns 0 to {}, got {} in {}", cols - 1,
                                    index, place(shape, row)));
      if (index <= before)
        throw UserError(fmt::format("indices: expected ascending columns, got {} after {} in {}",
                                    index, before, place(shape, row)));
      before = index;
    }
  }
}

BlockCsr to_csr(const Array& mask) {
  require_mask(mask);
  const int64_t cols = mask.shape()[3];
  const int64_t rows = mask.shape()[0] * mask.shape()[1] * mask.shape()[2];
  int64_t entries = 0;
  for (int64_t i = 0; i < mask.size(); ++i) entries += is_set(mask, i);
  BlockCsr csr{Array(I64, {rows + 1}), Array(I32, {entries})};
  auto* ends = static_cast<int64_t*>(csr.indptr.data());
  auto* next = static_cast<int32_t*>(csr.indices.data());
  ends[0] = 0;
  for (int64_t row = 0; row < rows; ++row) {
    ends[row + 1] = ends[row];
    for (int64_t c = 0; c < cols; ++c)
      if (is_set(mask, row * cols + c)) {
        *next++ = static_cast<int32_t>(c);
        ++ends[row + 1];
      }
  }
  return csr;
}

Array from_csr(const Memory& indptr, const Memory& indices, const Shape& shape) {
  if (shape.size() != 4)
    throw UserError("shape: expected [batch, heads, rows, cols], got " + str(shape));
  if (indptr.dtype != I32 && indptr.dtype != I64)
    throw UserError(fmt::format("indptr: expected i32 or i64, got {}", name(indptr.dtype)));
  require_dtype("indices", indices, I32);
  require_rank("indices", indices, 1, "entries");
  const int64_t rows = shape[0] * shape[1] * shape[2];
  require_shape("indptr", indptr, {rows + 1});
  Array mask(Bool, shape);
  if (load_int(indptr, {0}) != 0)
    throw UserError(fmt::format("indptr: expected 0 first, got {}", load_int(indptr, {0})));
  if (load_int(indptr, {rows}) != indices.shape[0])
    throw UserError(fmt::format("indptr: expected {} last, the entries of indices, got {}",
                                indices.shape[0], load_int(indptr, {rows})));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t begin = load_int(indptr, {row}), end = load_int(indptr, {row + 1});
    if (end < begin || end > indices.shape[0])
      throw UserError(fmt::format("indptr: expected {} to {} after {}, got {} behind {}", begin,
                                  indices.shape[0], begin, end, place(shape, row)));
    for (int64_t i = begin; i < end; ++i) add_listed("indices", load_int(indices, {i}), row, mask);
  }
  return mask;
}

Array to_bits(const Array& mask) {
  require_mask(mask);
  const int64_t cols = mask.shape()[3], words = ceil_div(cols, kWord);
  Array bits(U64, {mask.shape()[0], mask.shape()[1], mask.shape()[2], words});
  auto* out = static_cast<uint64_t*>(bits.data());
  for (int64_t i = 0; i < mask.size(); ++i)
    if (is_set(mask, i))
      out[i / cols * words + i % cols / kWord] |= uint64_t{1} << i % cols % kWord;
  return bits;
}

Array from_bits(const Memory& words, int64_t cols) {
  require_dtype("words", words, U64);
  require_rank("words", words, 4, "batch, heads, rows, words");
  const Shape& shape = words.shape;
  require_shape("words", words, {shape[0], shape[1], shape[2], ceil_div(cols, kWord)});
  Array mask(Bool, {shape[0], shape[1], shape[2], cols});
  int64_t at = 0;
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t r = 0; r < shape[2]; ++r)
        for (int64_t c = 0; c < cols; ++c, ++at)
          if (static_cast<uint64_t>(load_int(words, {b, h, r, c / kWord})) >> c % kWord & 1)
            set(mask, at);
  return mask;
}

SplitMask from_flex(const FlexMask& flex, int64_t batch, int64_t heads, int64_t cols) {
  Array mask = from_pair({"kv_num_blocks", "kv_indices"}, flex.kv_num_blocks, flex.kv_indices,
                         batch, heads, cols);
  if (flex.full_kv_num_blocks.has_value() != flex.full_kv_indices.has_value())
    throw UserError("full_kv_num_blocks, full_kv_indices: expected both or none, got one");
  if (!flex.full_kv_num_blocks) return {mask, Array(Bool, mask.shape())};
  Array full = from_pair({"full_kv_num_blocks", "full_kv_indices"}, *flex.full_kv_num_blocks,
                         *flex.full_kv_indices, batch, heads, cols);
  if (full.shape() != mask.shape())
    throw UserError(
        fmt::format("full_kv_num_blocks: expected {} rows, as kv_num_blocks has, got {}",
                    mask.shape()[2], full.shape()[2]));
  for (int64_t i = 0; i < mask.size(); ++i) {
    if (!is_set(full, i)) continue;
    if (is_set(mask, i))
      throw UserError(
          fmt::format("full_kv_indices: expected no block that is partial, got {} in {}", i % cols,
                      place(mask.shape(), i / cols)));
    set(mask, i);
  }
  return {mask, full};
}

FlexLists to_flex(const SplitMask& split) {
  require_mask(split.mask);
  require_mask(split.full);
  if (split.full.shape() != split.mask.shape())
    throw UserError(fmt::format("full: expected shape {}, as the mask has, got {}",
                                str(split.mask.shape()), str(split.full.shape())));
  Array partial(Bool, split.mask.shape());
  for (int64_t i = 0; i < partial.size(); ++i)
    if (is_set(split.mask, i) && !is_set(split.full, i)) set(partial, i);
  return {to_lists(partial), to_lists(split.full)};
}

SplitMask split_by(int64_t batch, int64_t heads, const BlockGrid& grid, const ElementMask& sees) {
  require_grid(grid);
  const Shape shape = {batch, heads, grid.rows(), grid.cols()};
  SplitMask split{Array(Bool, shape), Array(Bool, shape)};
  for (int64_t i = 0; i < split.mask.size(); ++i) {
    const int64_t col = i % shape[3], row = i / shape[3] % shape[2];
    const int64_t h = i / shape[3] / shape[2] % heads, b = i / shape[3] / shape[2] / heads;
    const int64_t last_query = std::min((row + 1) * grid.block.q, grid.seq);
    const int64_t last_key = std::min((col + 1) * grid.block.k, grid.seq_kv);
    bool any = false, all = true;
    for (int64_t query = row * grid.block.q; query < last_query; ++query)
      for (int64_t key = col * grid.block.k; key < last_key; ++key) {
        const bool visible =
            (!grid.causal || key < grid.visible_keys(query)) && sees(b, h, query, key);
        any |= visible;
        all &= visible;
      }
    if (any) set(split.mask, i);
    if (any && all) set(split.full, i);
  }
  return split;
}

Array transposed(const Array& mask) {
  require_mask(mask);
  const int64_t rows = mask.shape()[2], cols = mask.shape()[3];
  Array out(Bool, {mask.shape()[0], mask.shape()[1], cols, rows});
  for (int64_t i = 0; i < mask.size(); ++i)
    if (is_set(mask, i)) set(out, (i / (rows * cols) * cols + i % cols) * rows + i / cols % rows);
  return out;
}

static void check_ratio(BlockShape ratio) {
  if (ratio.q < 1 || ratio.k < 1)
    throw UserError("ratio: expected 1 or more blocks by 1 or more, got " + str(ratio));
}

Array coarsen(const Array& mask, BlockShape ratio, CoarsenRule rule) {
  require_mask(mask);
  check_ratio(ratio);
  const Shape& from = mask.shape();
  const int64_t rows = ceil_div(from[2], ratio.q), cols = ceil_div(from[3], ratio.k);
  Array out(Bool, {from[0], from[1], rows, cols});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t head = i / cols / rows, row = i / cols % rows, col = i % cols;
    bool any = false, all = true;
    for (int64_t r = row * ratio.q; r < std::min((row + 1) * ratio.q, from[2]); ++r)
      for (int64_t c = col * ratio.k; c < std::min((col + 1) * ratio.k, from[3]); ++c) {
        const bool is = is_set(mask, (head * from[2] + r) * from[3] + c);
        any |= is;
        all &= is;
      }
    if (rule == CoarsenRule::Any ? any : all) set(out, i);
  }
  return out;
}

Array expand(const Array& mask, BlockShape ratio, int64_t rows, int64_t cols) {
  require_mask(mask);
  check_ratio(ratio);
  const Shape& from = mask.shape();
  if (rows < 0 || cols < 0 || ceil_div(rows, ratio.q) != from[2] ||
      ceil_div(cols, ratio.k) != from[3])
    throw UserError(fmt::format(
        "mask: expected {} rows and {} columns, {} and {} of blocks {} "
        "times as large, got {}",
        ceil_div(rows, ratio.q), ceil_div(cols, ratio.k), rows, cols, str(ratio), str(from)));
  Array out(Bool, {from[0], from[1], rows, cols});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t head = i / cols / rows, row = i / cols % rows, col = i % cols;
    if (is_set(mask, (head * from[2] + row / ratio.q) * from[3] + col / ratio.k)) set(out, i);
  }
  return out;
}

Array create_causal_mask(int64_t batch, int64_t heads, const BlockGrid& grid) {
  require_grid(grid);
  Array mask(Bool, {batch, heads, grid.rows(), grid.cols()});
  for (int64_t row = 0; row < batch * heads * grid.rows(); ++row)
    for (int64_t c = 0; c < grid.visible_cols(row % grid.rows()); ++c)
      set(mask, row * grid.cols() + c);
  return mask;
}

}  // namespace kiln
