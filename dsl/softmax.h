// The online softmax: rows are seen a tile of columns at a time.
#pragma once

#include "dsl/storage.h"

namespace kiln {
inline namespace dsl {

// The running maximum and sum of `rows` rows. A row that sees only -inf ends as 0, its lse as -inf.
class OnlineSoftmax {
 public:
  OnlineSoftmax(Arg rows, Arg scale, Loc loc);

  // p = exp(scale · (s − maximum)) in p's dtype; acc and the sum are rescaled to the new maximum.
  // The caller's gemm(p, v, acc) comes after it.
  void step(const Storage& s, const Storage& p, const Storage& acc, Loc loc = Loc::here());

  // The same where nothing is accumulated: what follows keeps maximum() for itself.
  void step(const Storage& s, const Storage& p, Loc loc = Loc::here());

  // So far, of every row (f32): what its p are relative to (-inf: p are 0).
  const Tile& maximum() const { return max_; }

  // acc /= sum; lse = scale · maximum + ln(sum).
  void finish(const Storage& acc, Loc loc = Loc::here());
  void finish(const Storage& acc, const Storage& lse, Loc loc = Loc::here());

 private:
  Tile max_, sum_, alpha_;
  Expr scale_;
};

// scale: an f32 value or a number, finite and greater than 0.
inline OnlineSoftmax online_softmax(Arg rows, Arg scale, Loc loc = Loc::here()) {
  return OnlineSoftmax(rows, scale, loc);
}

}  // namespace dsl
}  // namespace kiln
