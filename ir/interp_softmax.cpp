// The online softmax: each result is computed in double from the stored values and rounded once.
#include <fmt/format.h>

#include <cmath>

#include "ir/error.h"
#include "ir/interp_impl.h"

namespace kiln::interp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Scalar zero_of(const View& view) {
  return Scalar::of_float(view.base->type.dtype, 0);
}

std::vector<Scalar> values_of(const Op& op, const View& view) {
  return gather(op, view, zero_of(view));
}

double checked_scale(const Interpreter& at, const Op& op, Value value) {
  double scale = at.scalar(value).f;
  if (!(scale > 0) || !std::isfinite(scale))
    throw UserError(
        op.loc,
        fmt::format("{}: expected a finite scale above 0, got {}", info(op.code).name, scale),
        "multiply s by the factor first and pass the scale 1");
  return scale;
}

double larger(double a, double b) {
  return std::fmax(a, b);
}  // of a number and NaN, the number

}  // namespace

void run_softmax_step(const Interpreter& at, const Op& op) {
  const View &s_view = at.view(op.operands[0]), &m_view = at.view(op.operands[1]),
             &l_view = at.view(op.operands[2]), &p_view = at.view(op.operands[3]),
             &alpha_view = at.view(op.operands[4]);
  const double scale = checked_scale(at, op, op.operands[5]);
  const size_t rows = static_cast<size_t>(s_view.extents[0]);
  const size_t columns = static_cast<size_t>(s_view.extents[1]);
  const DType p_type = p_view.base->type.dtype;
  std::vector<Scalar> s = values_of(op, s_view), m = values_of(op, m_view),
                      l = values_of(op, l_view), p(s.size()), alpha(rows);
  for (size_t i = 0; i < rows; ++i) {
    double next = m[i].f;
    for (size_t j = 0; j < columns; ++j) next = larger(next, s[i * columns + j].f);
    const double u = std::isfinite(next) ? next : 0;
    double sum = 0;
    for (size_t j = 0; j < columns; ++j) {
      double weight = std::exp(scale * (s[i * columns + j].f - u));
      sum += weight;
      p[i * columns + j] = Scalar::of_float(p_type, weight);
    }
    alpha[i] = Scalar::of_float(F32, m[i].f == -kInfinity ? 0 : std::exp(scale * (m[i].f - u)));
    l[i] = Scalar::of_float(F32, l[i].f * alpha[i].f + sum);
    m[i] = Scalar::of_float(F32, next);
  }
  scatter(m_view, m);
  scatter(l_view, l);
  scatter(p_view, p);
  scatter(alpha_view, alpha);
}

void run_scale_rows(const Interpreter& at, const Op& op) {
  const View &acc_view = at.view(op.operands[0]), &alpha_view = at.view(op.operands[1]);
  std::vector<Scalar> acc = values_of(op, acc_view), alpha = values_of(op, alpha_view);
  const size_t columns = static_cast<size_t>(acc_view.extents[1]);
  for (size_t i = 0; i < acc.size(); ++i) {
    double factor = alpha[i / columns].f;
    acc[i] = Scalar::of_float(acc[i].dtype, factor == 0 ? 0 : acc[i].f * factor);
  }
  scatter(acc_view, acc);
}

void run_softmax_finish(const Interpreter& at, const Op& op) {
  const View &acc_view = at.view(op.operands[0]), &m_view = at.view(op.operands[1]),
             &l_view = at.view(op.operands[2]);
  const double scale = checked_scale(at, op, op.operands[4]);
  std::vector<Scalar> acc = values_of(op, acc_view), m = values_of(op, m_view),
                      l = values_of(op, l_view);
  const size_t columns = static_cast<size_t>(acc_view.extents[1]);
  for (size_t i = 0; i < acc.size(); ++i) {
    double sum = l[i / columns].f;
    acc[i] = Scalar::of_float(acc[i].dtype, sum == 0 ? 0 : acc[i].f / sum);
  }
  scatter(acc_view, acc);
  if (!op.operand(3)) return;
  std::vector<Scalar> lse(l.size());
  for (size_t i = 0; i < lse.size(); ++i)
    lse[i] = Scalar::of_float(F32, l[i].f == 0 ? -kInfinity : scale * m[i].f + std::log(l[i].f));
  scatter(at.view(op.operands[3]), lse);
}

}  // namespace kiln::interp
