// Copy, fill, gemm and reduce. Order and rounding where the language leaves them open: gemm
// converts a and b to c's dtype and takes k in ascending order with one rounding a step (fma);
// reduce works on floats in double and rounds once, to the destination's dtype.
#include <cmath>
#include <limits>

#include "ir/error.h"
#include "ir/interp_impl.h"

namespace kiln::interp {
namespace {

Scalar zero(DType dtype) {
  return convert(Scalar::of_int(I32, 0), dtype);
}

void convert_all(std::vector<Scalar>& values, DType dtype) {
  for (Scalar& value : values)
    if (value.dtype != dtype) value = convert(value, dtype);
}

// The last two extents; those in front are 1.
struct Matrix {
  int64_t rows, columns;
  explicit Matrix(const Shape& shape) : rows(shape[shape.size() - 2]), columns(shape.back()) {}
};

// A matrix as numbers of the accumulator's type, [major][minor] with the k axis last.
template <class T>
std::vector<T> operand(const Interpreter& at, const Op& op, Value value, bool k_is_first) {
  const View& view = at.view(value);
  std::vector<Scalar> cells = gather(op, view, zero(at.dtype(value)));
  Matrix shape(view.extents);
  std::vector<T> numbers(cells.size());
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t column = 0; column < shape.columns; ++column) {
      const Scalar& cell = cells[static_cast<size_t>(row * shape.columns + column)];
      int64_t to = k_is_first ? column * shape.rows + row : row * shape.columns + column;
      numbers[static_cast<size_t>(to)] =
          is_float(cell.dtype) ? static_cast<T>(cell.f) : static_cast<T>(cell.i);
    }
  return numbers;
}

float multiply_add(float a, float b, float c) {
  return std::fma(a, b, c);
}
double multiply_add(double a, double b, double c) {
  return std::fma(a, b, c);
}
uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  return a * b + c;
}

bool clears(const Interpreter& at, const Op& op) {
  if (op.code == OpCode::Gemm) return op.flag("clear");
  return op.operand(3) && at.integer(op.operands[3]);  // of gemm_async
}

// T: float for f32, double for f64, uint32_t (which wraps) for i32.
template <class T>
void gemm_in(const Interpreter& at, const Op& op) {
  const View& c = at.view(op.operands[2]);
  const DType dtype = at.dtype(op.operands[2]);
  std::vector<T> a = operand<T>(at, op, op.operands[0], op.flag("transpose_a"));
  std::vector<T> b = operand<T>(at, op, op.operands[1], !op.flag("transpose_b"));
  Matrix shape(c.extents);
  int64_t depth = static_cast<int64_t>(a.size()) / shape.rows;
  std::vector<Scalar> sums =
      clears(at, op) ? std::vector<Scalar>(static_cast<size_t>(count(c.extents)), zero(dtype))
                     : gather(op, c, zero(dtype));
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t j = 0; j < shape.columns; ++j) {
      Scalar& cell = sums[static_cast<size_t>(i * shape.columns + j)];
      T sum = is_float(dtype) ? static_cast<T>(cell.f) : static_cast<T>(cell.i);
      const T* x = a.data() + i * depth;
      const T* y = b.data() + j * depth;
      for (int64_t k = 0; k < depth; ++k) sum = multiply_add(x[k], y[k], sum);
      cell = is_float(dtype) ? Scalar::of_float(dtype, static_cast<double>(sum))
                             : Scalar::of_int(dtype, static_cast<int64_t>(sum));
    }
  scatter(c, sums);
}

Scalar lowest(DType dtype) {
  if (is_float(dtype)) return Scalar::of_float(dtype, -std::numeric_limits<double>::infinity());
  if (!is_signed_int(dtype)) return zero(dtype);
  return Scalar::of_int(dtype, INT64_MIN >> (64 - 8 * size_of(dtype)));
}

Scalar highest(DType dtype) {
  if (is_float(dtype)) return Scalar::of_float(dtype, std::numeric_limits<double>::infinity());
  const Scalar low = lowest(dtype);
  return apply(OpCode::Not, dtype, Comparison::Eq, &low);
}

// What a reduction does to two values of one dtype.
struct Reduction {
  OpCode combine = OpCode::Add;
  bool absolute = false;
  Scalar identity;

  Reduction(const std::string& kind, DType dtype) : identity(zero(dtype)) {
    if (kind == "max") {
      combine = OpCode::Max, identity = lowest(dtype);
    } else if (kind == "min") {
      combine = OpCode::Min, identity = highest(dtype);
    } else if (kind == "absmax") {
      combine = OpCode::Max, absolute = true;
    } else if (kind == "and") {
      combine = OpCode::And;
      identity = apply(OpCode::Not, dtype, Comparison::Eq, &identity);
    } else if (kind == "or") {
      combine = OpCode::Or;
    } else if (kind == "xor") {
      combine = OpCode::Xor;
    }
  }
  Scalar operator()(const Scalar& sum, const Scalar& element) const {
    Scalar in[] = {sum, element};
    if (absolute) in[1] = apply(OpCode::Abs, in[1].dtype, Comparison::Eq, &in[1]);
    return apply(combine, sum.dtype, Comparison::Eq, in);
  }
};

}  // namespace

void run_copy(const Interpreter& at, const Op& op) {
  const View& to = at.view(op.operands[1]);
  const double pad_value = op.code == OpCode::Copy ? op.real("pad") : 0;  // convert needs none
  Scalar pad = convert(Scalar::of_float(F64, pad_value), at.dtype(op.operands[0]));
  std::vector<Scalar> values = gather(op, at.view(op.operands[0]), pad);
  convert_all(values, to.base->type.dtype);
  scatter(to, values);
}

void run_fill(const Interpreter& at, const Op& op) {
  const View& to = at.view(op.operands[1]);
  Scalar value = convert(at.scalar(op.operands[0]), to.base->type.dtype);
  scatter(to, std::vector<Scalar>(static_cast<size_t>(count(to.extents)), value));
}

void run_gemm(const Interpreter& at, const Op& op) {
  switch (at.dtype(op.operands[2])) {
    case F32: return gemm_in<float>(at, op);
    case F64: return gemm_in<double>(at, op);
    case I32: return gemm_in<uint32_t>(at, op);
    default: throw InternalError(op.loc, "gemm: no such accumulator");
  }
}

void run_reduce(const Interpreter& at, const Op& op) {
  const View& from = at.view(op.operands[0]);
  const View& to = at.view(op.operands[1]);
  const size_t dim = static_cast<size_t>(op.integer("dim"));
  const DType dtype = from.base->type.dtype;
  const DType work_type = is_float(dtype) ? F64 : dtype;

  std::vector<Scalar> source = gather(op, from, zero(dtype));
  Reduction reduction(op.word("kind"), work_type);
  std::vector<Scalar> sums(static_cast<size_t>(count(to.extents)), reduction.identity);
  convert_all(source, work_type);
  int64_t inner = 1;
  for (size_t axis = dim + 1; axis < from.extents.size(); ++axis) inner *= from.extents[axis];
  for (size_t i = 0; i < source.size(); ++i) {  // [outer][dim][inner]
    int64_t outer = static_cast<int64_t>(i) / (inner * from.extents[dim]);
    Scalar& sum = sums[static_cast<size_t>(outer * inner + static_cast<int64_t>(i) % inner)];
    sum = reduction(sum, source[i]);
  }
  if (!op.flag("clear")) {
    std::vector<Scalar> old = gather(op, to, zero(to.base->type.dtype));
    convert_all(old, work_type);
    // Not through `reduction`: the old value of an absmax is taken as it is.
    for (size_t i = 0; i < sums.size(); ++i) {
      Scalar in[] = {old[i], sums[i]};
      sums[i] = apply(reduction.combine, work_type, Comparison::Eq, in);
    }
  }
  convert_all(sums, to.base->type.dtype);
  scatter(to, sums);
}

}  // namespace kiln::interp
