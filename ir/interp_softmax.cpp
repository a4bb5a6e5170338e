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

// One row: its sum of p goes to the parts of l in turn, column by column. May `guess`: the old
// maximum stays as long as nothing grows too large with it.
void softmax_row(double scale, bool guess, const Scalar* s, size_t columns, Scalar& m, Scalar* l,
                 size_t parts, Scalar* p, Scalar& alpha) {
  constexpr double kMostGuessed = 1 << 14;
  double next = m.f;
  for (size_t j = 0; j < columns; ++j) next = larger(next, s[j].f);
  std::vector<double> weights(columns);
  auto sum_above = [&](double u) {
    double sum = 0;
    for (size_t j = 0; j < columns; ++j) sum += weights[j] = std::exp(scale * (s[j].f - u));
    return sum;
  };
  if (guess && std::isfinite(m.f) && sum_above(m.f) < kMostGuessed)
    next = m.f;
  else
    sum_above(std::isfinite(next) ? next : 0);
  const double u = std::isfinite(next) ? next : 0;
  alpha = Scalar::of_float(F32, m.f == -kInfinity ? 0 : std::exp(scale * (m.f - u)));
  std::vector<double> sums(parts);
  for (size_t j = 0; j < columns; ++j) {
    sums[j % parts] += weights[j];
    p[j] = Scalar::of_float(p[j].dtype, weights[j]);
  }
  for (size_t part = 0; part < parts; ++part)
    l[part] = Scalar::of_float(F32, l[part].f * alpha.f + sums[part]);
  m = Scalar::of_float(F32, next);
}

}  // namespace

void run_softmax_step(const Interpreter& at, const Op& op) {
  const View &s_view = at.view(op.operands[0]), &m_view = at.view(op.operands[1]),
             &l_view = at.view(op.operands[2]), &p_view = at.view(op.operands[3]),
             &alpha_view = at.view(op.operands[4]);
  const double scale = checked_scale(at, op, op.operands[5]);
  const bool guess = op.operand(6) && !at.integer(op.operands[6]) && at.guesses();
  const size_t rows = static_cast<size_t>(s_view.extents[0]);
  const size_t columns = static_cast<size_t>(s_view.extents[1]);
  std::vector<Scalar> s = values_of(op, s_view), m = values_of(op, m_view),
                      l = values_of(op, l_view), p(s.size(), zero_of(p_view)), alpha(rows);
  const size_t parts = l.size() / rows;
  for (size_t i = 0; i < rows; ++i)
    softmax_row(scale, guess, &s[i * columns], columns, m[i], &l[i * parts], parts, &p[i * columns],
                alpha[i]);
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
