// Turns a panel of a transposed b by squares of vectors, with the shuffles that x86 has: within
// 128-bit parts, then of whole parts.
#include <algorithm>

#include "codegen/host_gemm_impl.h"

namespace kiln::host {
namespace {

constexpr int kPartBits = 128;

class Transposer {
 public:
  Transposer(Builder& builder, int lanes, int part) : b(builder), lanes_(lanes), part_(part) {}

  // Interleaves `unit` elements at a time of the lower or upper half of every part.
  Val unpack(Val x, Val y, int unit, bool upper) {
    std::vector<int> mask;
    for (int base = 0; base < lanes_; base += part_)
      for (int pair = 0; pair < part_ / 2; pair += unit)
        for (int from : {0, lanes_})
          for (int i = 0; i < unit; ++i)
            mask.push_back(from + base + (upper ? part_ / 2 : 0) + pair + i);
    return b.ir.CreateShuffleVector(x, y, mask);
  }

  // Parts `first`, first + 2, … of x, then of y.
  Val every_other_part(Val x, Val y, int first) {
    std::vector<int> mask;
    for (int from : {0, lanes_})
      for (int p = first; p < lanes_ / part_; p += 2)
        for (int i = 0; i < part_; ++i) mask.push_back(from + p * part_ + i);
    return b.ir.CreateShuffleVector(x, y, mask);
  }

  // part_ rows → part_ vectors; the m-th has in each 128-bit part what column part·part_ + m needs.
  std::vector<Val> within_parts(const Val* r) {
    if (part_ == 2) return {unpack(r[0], r[1], 1, false), unpack(r[0], r[1], 1, true)};
    Val low0 = unpack(r[0], r[1], 1, false), high0 = unpack(r[0], r[1], 1, true);
    Val low1 = unpack(r[2], r[3], 1, false), high1 = unpack(r[2], r[3], 1, true);
    return {unpack(low0, low1, 2, false), unpack(low0, low1, 2, true),
            unpack(high0, high1, 2, false), unpack(high0, high1, 2, true)};
  }

  // 1, 2 or 4 vectors of as many parts → part p of all of them, for every p.
  std::vector<Val> of_parts(const std::vector<Val>& v) {
    if (v.size() == 1) return v;
    if (v.size() == 2) return {every_other_part(v[0], v[1], 0), every_other_part(v[0], v[1], 1)};
    std::vector<Val> result(4);
    for (int odd : {0, 1}) {
      Val x = every_other_part(v[0], v[1], odd), y = every_other_part(v[2], v[3], odd);
      result[static_cast<size_t>(odd)] = every_other_part(x, y, 0);
      result[static_cast<size_t>(odd) + 2] = every_other_part(x, y, 1);
    }
    return result;
  }

 private:
  Builder& b;
  int lanes_, part_;
};

}  // namespace

std::vector<Val> transpose(Builder& b, std::vector<Val> rows) {
  const int lanes = static_cast<int>(rows.size());
  const int part = kPartBits / static_cast<int>(rows[0]->getType()->getScalarSizeInBits());
  Transposer with(b, lanes, part);
  std::vector<std::vector<Val>> groups;
  for (int first = 0; first < lanes; first += part)
    groups.push_back(with.within_parts(&rows[static_cast<size_t>(first)]));
  for (int m = 0; m < part; ++m) {
    std::vector<Val> same;
    for (const std::vector<Val>& group : groups) same.push_back(group[static_cast<size_t>(m)]);
    std::vector<Val> parts = with.of_parts(same);
    for (size_t p = 0; p < parts.size(); ++p)
      rows[p * static_cast<size_t>(part) + static_cast<size_t>(m)] = parts[p];
  }
  return rows;
}

void GemmEmitter::make_buffer(int64_t depth, int64_t width) {
  const int64_t squares = (depth + lanes_ - 1) / lanes_;
  buffer_ = new_matrix_(c_.place.dtype, {squares * lanes_, width});
}

void GemmEmitter::fill_buffer(Val column, int64_t vectors, Val k, Val k_end) {
  // Rows of b beyond its last do not exist: only a panel at a fixed place, the last, may lack some.
  const llvm::ConstantInt* fixed = Builder::known(column);
  const int64_t present = fixed ? b_.rows - fixed->getSExtValue() : vectors * lanes_;
  const int64_t whole = std::min(present / lanes_, vectors), rest = present % lanes_;
  b.loop(k, k_end, b.i64(lanes_), [&](Val depth) {
    Val to_row = b.ir.CreateSub(depth, k);
    b.loop(b.i64(0), b.i64(whole * lanes_), b.i64(lanes_),
           [&](Val at) { transpose_square(column, at, lanes_, depth, to_row); });
    if (whole < vectors) transpose_square(column, b.i64(whole * lanes_), rest, depth, to_row);
  });
}

// The square of b at rows column + at …, of which `present` exist, and columns depth …
void GemmEmitter::transpose_square(Val column, Val at_column, int64_t present, Val depth,
                                   Val to_row) {
  Val zero = llvm::Constant::getNullValue(Builder::widen(b.value_type(c_.place.dtype), lanes_));
  Val first = b.ir.CreateAdd(column, at_column);
  std::vector<Val> rows(static_cast<size_t>(lanes_), zero);
  for (int64_t r = 0; r < present; ++r)
    rows[static_cast<size_t>(r)] = read(b_, at(b_, b.ir.CreateAdd(first, b.i64(r)), depth), lanes_);
  rows = transpose(b, rows);
  for (int64_t r = 0; r < lanes_; ++r)
    write(buffer_, at(buffer_, b.ir.CreateAdd(to_row, b.i64(r)), at_column),
          rows[static_cast<size_t>(r)]);
}

}  // namespace kiln::host
