#include "kernels/compare.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/error.h"

namespace kiln {

AccuracyRule accuracy_rule(DType dtype) {
  switch (dtype) {
    case BF16: return {1e-2, 1.6e-2};
    case F16: return {1.5e-3, 2e-3};
    case F64: return {1e-12, 1e-12};
    default: return {1e-5, 2e-3};
  }
}

AccuracyRule lse_accuracy_rule() {
  return {std::numeric_limits<double>::infinity(), 1e-3};
}

Comparison compare(std::span<const double> got, std::span<const double> reference,
                   int64_t row_length, const AccuracyRule& rule) {
  if (got.size() != reference.size())
    throw InternalError(fmt::format("comparing {} elements with {}", got.size(), reference.size()));
  Comparison result;
  result.elements = static_cast<int64_t>(got.size());
  double worst = -1;
  for (size_t begin = 0; begin < got.size(); begin += row_length) {
    double error_square = 0, norm_square = 0;
    for (size_t i = begin; i < begin + row_length; ++i) {
      double x = got[i], r = reference[i];
      double error = std::abs(x - r), allowed = rule.element * (1 + std::abs(r));
      if (!std::isfinite(x) || !std::isfinite(r)) {
        bool same = x == r || (std::isnan(x) && std::isnan(r));
        error = same ? 0 : std::numeric_limits<double>::infinity();
        allowed = 0;
      } else {
        error_square += error * error;
        norm_square += r * r;
      }
      result.bad_elements += error > allowed;
      result.worst_element = std::max(result.worst_element, error);
      double badness = allowed > 0 ? error / allowed : error;
      if (badness > worst) {
        worst = badness;
        result.worst_index = static_cast<int64_t>(i);
      }
    }
    // A row of zeros has no relative error: it must be matched exactly.
    double error = std::sqrt(error_square), norm = std::sqrt(norm_square);
    if (error > rule.row * norm && error > 0) ++result.bad_rows;
    if (error > 0) result.worst_row = std::max(result.worst_row, error / norm);
  }
  return result;
}

std::string Comparison::str() const {
  std::string text = fmt::format("{} elements, worst row error {:.2e}, worst element error {:.2e}",
                                 elements, worst_row, worst_element);
  if (!ok())
    text += fmt::format("; {} elements and {} rows break the rule, the worst at {}", bad_elements,
                        bad_rows, worst_index);
  return text;
}

std::vector<double> to_doubles(const Memory& memory) {
  std::vector<double> values;
  Shape index(memory.shape.size(), 0);
  int64_t offset = 0, size = count(memory.shape);
  auto* base = static_cast<const std::byte*>(memory.data);
  values.reserve(size);
  for (int64_t i = 0; i < size; ++i) {
    Scalar value =
        load_element(memory.dtype, base + offset * static_cast<int64_t>(size_of(memory.dtype)));
    values.push_back(is_float(memory.dtype) ? value.f : static_cast<double>(value.i));
    for (size_t axis = index.size(); axis-- > 0;) {
      offset += memory.strides[axis];
      if (++index[axis] < memory.shape[axis]) break;
      offset -= memory.strides[axis] * memory.shape[axis];
      index[axis] = 0;
    }
  }
  return values;
}

}  // namespace kiln
