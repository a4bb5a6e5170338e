#include "tests/kernels/late_attention.h"

#include <catch2/catch.hpp>
#include <cmath>

namespace kiln::test {
namespace {

constexpr int64_t kTail = 9;  // rows of NaN behind a head

}  // namespace

AttentionConfig late_config() {
  return {.dtype = F16, .block = 128, .causal = true, .form = BlockForm::Lists, .lse = false};
}

LateAttention::Spaced LateAttention::spaced(const Array& dense) {
  Shape wide = dense.shape();
  const int64_t seq = wide[2], dim = wide[3];
  wide[2] += kTail;
  Spaced made{Array(dense.dtype(), wide), dense.view()};
  fill(made.array, NAN);
  for (int64_t head = 0; head < wide[0] * wide[1]; ++head)
    for (int64_t i = 0; i < seq * dim; ++i)
      made.array.set(head * (seq + kTail) * dim + i, dense.get(head * seq * dim + i));
  made.memory.data = made.array.data();
  made.memory.strides = made.array.view().strides;
  return made;
}

LateAttention::LateAttention(AttentionCase& one) : one_(one) {
  one.use(effective_mask(one.config, one.args));
  fill(one.o, NAN);
  q_ = spaced(one.q), k_ = spaced(one.k), v_ = spaced(one.v), o_ = spaced(one.o);
}

Arguments LateAttention::arguments(int64_t ctas) {
  Arguments all;
  all.tensor("q", q_.memory).tensor("k", k_.memory).tensor("v", v_.memory);
  all.tensor("o", o_.memory).tensor("counts", *one_.args.counts);
  all.tensor("indices", *one_.args.indices).dim("ctas", ctas);
  return all.param("scale", scale_of(one_.config, one_.args));
}

void LateAttention::check() {
  const int64_t seq = one_.sizes.seq, dim = one_.config.head_dim;
  int64_t touched = 0;
  for (int64_t i = 0; i < o_.array.size(); ++i) {
    const int64_t head = i / ((seq + kTail) * dim), at = i % ((seq + kTail) * dim);
    if (at < seq * dim)
      one_.o.set(head * seq * dim + at, o_.array.get(i));
    else
      touched += !std::isnan(o_.array.get(i));
  }
  CHECK(touched == 0);
  const AttentionReference reference =
      attention_reference(one_.config, one_.args, all_rows(one_.args));
  const Comparison outputs =
      compare(to_doubles(one_.args.o), reference.o, one_.config.dim_v(), accuracy_rule(F16));
  INFO("o: " << outputs.str());
  CHECK(outputs.ok());
}

}  // namespace kiln::test
