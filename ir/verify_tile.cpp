// Rules of gemm, reduce and the softmax ops.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/dtype_rules.h"
#include "ir/verify_impl.h"

namespace kiln {
namespace {

void require_fragment(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  if (type.kind != Kind::Tile || type.space != Space::Fragment)
    law.fail(op,
             fmt::format("{}: expected a fragment, got {}", operand_name(op, operand), str(type)),
             type.kind == Kind::View ? "the whole fragment; copy takes parts"
                                     : "alloc_fragment, and copy to or from it");
}

// The last two extents of a matrix; in front of them are only 1s.
Shape matrix_of(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  const size_t rank = type.shape.size();
  bool matrix = rank >= 2 && std::all_of(type.shape.begin(), type.shape.end() - 2,
                                         [](int64_t extent) { return extent == 1; });
  if (!matrix)
    law.fail(op, fmt::format("{}: expected a matrix, got {}", operand_name(op, operand), str(type)),
             "extents in front of the last two must be 1");
  return {type.shape[rank - 2], type.shape[rank - 1]};
}

void check_gemm_dtypes(const Law& law, const Op& op) {
  const DType a = law.type(op.operands[0]).dtype, b = law.type(op.operands[1]).dtype;
  const DType c = law.type(op.operands[2]).dtype;
  if (a != b)
    law.fail(op, fmt::format("a and b differ in dtype: a is {}, b is {}", name(a), name(b)),
             "copy one of them to a tile of the other's dtype");
  if (!gemm_dtypes(a, c))
    law.fail(op,
             fmt::format("expected {}; a, b are {}, c is {}", gemm_dtypes_text(), name(a), name(c)),
             !is_float(a) && a != I8 && a != U8 ? "copy a and b to tiles of one of these"
             : is_float(a)                      ? "accumulate in f32"
                                                : "accumulate in i32");
}

void check_gemm(const Law& law, const Op& op) {
  require_on_chip(law, op, 0);
  require_on_chip(law, op, 1);
  require_fragment(law, op, 2);
  check_gemm_dtypes(law, op);
  Shape a = matrix_of(law, op, 0), b = matrix_of(law, op, 1), c = matrix_of(law, op, 2);
  if (op.flag("transpose_a")) std::swap(a[0], a[1]);
  if (op.flag("transpose_b")) std::swap(b[0], b[1]);
  const std::string a_text = brief(law.type(op.operands[0]));
  const std::string b_text = brief(law.type(op.operands[1]));
  const std::string c_text = brief(law.type(op.operands[2]));
  auto swapped = [](const Shape& shape) { return Shape{shape[1], shape[0]}; };
  auto works = [&](const Shape& x, const Shape& y) {
    return x[1] == y[0] && x[0] == c[0] && y[1] == c[1];
  };
  if (works(a, b)) return;
  auto undo = [&](const char* flag) {
    return op.flag(flag) ? fmt::format("did you mean no {}?", flag)
                         : fmt::format("did you mean {}?", flag);
  };
  std::string hint;
  if (works(a, swapped(b)))
    hint = undo("transpose_b");
  else if (works(swapped(a), b))
    hint = undo("transpose_a");
  else if (works(swapped(a), swapped(b)))
    hint = "did you mean both transposes?";
  else
    hint = "a is MxK (transpose_a: KxM), b KxN (transpose_b: NxK), c MxN";
  std::string with;
  if (op.flag("transpose_a")) with += ", transpose_a";
  if (op.flag("transpose_b")) with += ", transpose_b";
  if (a[1] != b[0])
    law.fail(op, fmt::format("inner extents differ: a is {}, b is {}{}", a_text, b_text, with),
             hint);
  law.fail(op,
           fmt::format("c: expected {}x{}, got {}: a is {}, b is {}{}", a[0], b[1], c_text, a_text,
                       b_text, with),
           hint);
}

void check_reduce(const Law& law, const Op& op) {
  require_on_chip(law, op, 0);
  require_on_chip(law, op, 1);
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  require_reduced(law, op, 1, from, require_dim(law, op, 0));
  if (from.dtype != to.dtype && !(is_float(from.dtype) && is_float(to.dtype)))
    law.fail(
        op,
        fmt::format("dtypes differ: the source is {}, the destination {}", brief(from), brief(to)),
        "copy one of them to a tile of the other's dtype");
  const std::string& kind = op.word("kind");
  const bool bitwise = is_bitwise(kind);
  if (bitwise && is_float(from.dtype))
    law.fail(op, fmt::format("{}: expected integers or bool, got {}", kind, brief(from)),
             "max, min, sum or absmax of floats, or copy them to a tile of integers first");
  if (!bitwise && from.dtype == Bool)
    law.fail(op, fmt::format("{}: expected numbers, got {}", kind, brief(from)),
             "use and, or, xor for bool");
}

void require_tile(const Law& law, const Op& op, size_t operand, const Shape& shape) {
  require_fragment(law, op, operand);
  const Type& type = law.type(op.operands[operand]);
  if (type.shape != shape || type.dtype != F32)
    law.fail(op,
             fmt::format("{}: expected {}, got {}", operand_name(op, operand),
                         str(Type::tile(Space::Fragment, F32, shape)), str(type)),
             "an f32 for each row of 's', or of what is scaled");
}

// A fragment of f32 of two axes; returns its rows.
int64_t require_rows(const Law& law, const Op& op, size_t operand) {
  require_fragment(law, op, operand);
  const Type& type = law.type(op.operands[operand]);
  if (type.rank() != 2 || type.dtype != F32)
    law.fail(op,
             fmt::format("{}: expected a fragment of f32 with two axes, got {}",
                         operand_name(op, operand), str(type)),
             "copy converts and moves to such a fragment");
  return type.shape[0];
}

void check_scale(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  if (type.dtype != F32)
    law.fail(op, fmt::format("'scale': expected f32, got {}", str(type)), "cast it to f32");
  auto scale = constant_of(law.kernel, op.operands[operand]);
  if (scale && !(scale->f > 0 && std::isfinite(scale->f)))
    law.fail(op, fmt::format("'scale': expected finite and above 0, got {}", scale->f),
             "multiply s by the factor first and pass the scale 1");
}

void check_softmax_step(const Law& law, const Op& op) {
  const int64_t rows = require_rows(law, op, 0);
  for (size_t operand : {1, 4}) require_tile(law, op, operand, {rows});
  const Type& sums = law.type(op.operands[2]);  // parts of a row's sum have an axis of their own
  require_tile(law, op, 2, sums.rank() == 2 ? Shape{rows, sums.shape[1]} : Shape{rows});
  const Type &s = law.type(op.operands[0]), &p = law.type(op.operands[3]);
  if (p.kind != Kind::Tile || p.shape != s.shape || !is_float(p.dtype))
    law.fail(
        op, fmt::format("'p': expected a tile of floats of shape {}, got {}", str(s.shape), str(p)),
        "it takes the exponentials of 's', element by element");
  check_scale(law, op, 5);
  if (op.operand(6) && law.type(op.operands[6]) != Type::scalar(Bool))
    law.fail(op, fmt::format("'exact': expected bool, got {}", str(law.type(op.operands[6]))),
             "compare it with something");
}

}  // namespace

void require_on_chip(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  if (type.space == Space::Global)
    law.fail(op, fmt::format("{}: expected a tile, got {}", operand_name(op, operand), str(type)),
             "copy it to a tile first");
  if (!is_static(type.shape))
    law.fail(
        op,
        fmt::format("{}: expected constant extents, got {}", operand_name(op, operand), str(type)),
        "slice it with constant extents");
}

int64_t require_dim(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  const int64_t dim = op.integer("dim");
  if (dim < 0 || dim >= type.rank())
    law.fail(op, fmt::format("dim: expected 0 … {}, got {}", type.rank() - 1, dim),
             fmt::format("{} is {}", operand_name(op, operand), str(type)));
  return dim;
}

void require_reduced(const Law& law, const Op& op, size_t operand, const Type& from, int64_t dim) {
  const Shape& to = law.type(op.operands[operand]).shape;
  Shape removed = from.shape, kept = from.shape;
  removed.erase(removed.begin() + dim);
  kept[static_cast<size_t>(dim)] = 1;
  if (to != removed && to != kept)
    law.fail(op,
             fmt::format("{}: expected {} or {}, got {}: the source is {}, dim {}",
                         info(op.code).operand(operand).name, str(removed), str(kept), str(to),
                         str(from.shape), dim),
             "the source's shape without that axis; a negative dim counts from the end");
}

void check_tile_op(const Law& law, const Op& op) {
  return op.code == OpCode::Reduce ? check_reduce(law, op) : check_gemm(law, op);
}

void check_softmax(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::SoftmaxStep: return check_softmax_step(law, op);
    case OpCode::ScaleRows: {
      const int64_t rows = require_rows(law, op, 0);
      return require_tile(law, op, 1, {rows});
    }
    default: break;
  }
  const int64_t rows = require_rows(law, op, 0);
  for (size_t operand : {1, 2, 3})
    if (op.operand(operand)) require_tile(law, op, operand, {rows});
  check_scale(law, op, 4);
}

}  // namespace kiln
