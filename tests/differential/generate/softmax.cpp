// An online softmax over whole numbers whose weights are 1 or vanish (approximate.h), so that its
// results, rounded to whole numbers, are the same however it is computed.
#include <limits>

#include "tests/differential/generate/approximate.h"
#include "tests/differential/generate/body.h"

namespace kiln::differential {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

// Its tiles, and the loop over blocks of scores.
struct Body::Softmax {
  int64_t rows, columns, width, parts;
  Value scale;
  TileInfo s, m, l, p, alpha, acc;
};

void Body::softmax() {
  Softmax it;
  it.rows = random_.pick({1, 5, 8, 16, 17, 32});
  it.columns = random_.pick({3, 8, 16, 24, 32});
  it.width = random_.pick({4, 8, 16, 24});
  it.parts = random_.pick({0, 0, 1, 3});
  auto fragment = [&](Shape shape) {
    return make_tile(Space::Fragment, F32, std::move(shape), Range::Wild);
  };
  it.s = fragment({it.rows, it.columns}), it.m = fragment({it.rows});
  it.l = fragment(it.parts > 0 ? Shape{it.rows, it.parts} : Shape{it.rows});
  it.p = make_tile(any_space(), random_.pick({F16, F16, BF16, F32, E4M3}), it.s.shape);
  it.alpha = fragment({it.rows}), it.acc = fragment({it.rows, it.width});
  builder_.fill(-kInfinity, it.m.value);
  builder_.fill(0, it.l.value);
  builder_.fill(0, it.acc.value);
  it.scale = builder_.constant(F32, random_.pick({16.0, 20.0, 24.0}));
  if (random_.chance(30))  // known only when the program runs
    it.scale = builder_.cast(builder_.binary(OpCode::Mul, views_.traced(4, 6), i32(4)), F32);
  OpId op = random_.chance(40)
                ? selected_op(true)
                : for_op(random_.pick({"serial", "pipelined", "unroll"}), random_.between(0, 3));
  {
    RegionId body = builder_.add_region(op);
    Inner inner(scope_);
    scope_.scalars.push_back(builder_.kernel().add_argument(body, Type::scalar(I32)));
    Builder::Scope scope(builder_, body);
    softmax_step(it);
  }
  softmax_finish(it);
}

void Body::softmax_step(const Softmax& it) {
  // Scores: a gemm's or any, from −4 to 4; some, or a whole row of them, are −infinity.
  const bool product = random_.chance(50);
  if (product) gemm_into(it.s, true);
  const std::vector<Leaf> hidden = scalar_leaves();
  builder_.parallel(it.s.shape, [&](Indices index) {
    Value score = product ? builder_.load(it.s.value, {index[0], index[1]})
                          : value_for(F32, element_leaves(index, {it.s}));
    score = clamped(builder_, score);
    if (random_.chance(60)) {
      std::vector<Leaf> leaves = hidden;
      leaves.push_back({{}, {}, index[0]});
      if (random_.chance(50)) leaves.push_back({{}, {}, index[1]});
      Value is_hidden = expression(builder_, random_, leaves, Bool, 2, numbers_);
      score = builder_.select(is_hidden, builder_.constant(F32, -kInfinity), score);
    }
    builder_.store(score, it.s.value, {index[0], index[1]});
  });
  std::vector<Value> operands = {it.s.value, it.m.value,     it.l.value,
                                 it.p.value, it.alpha.value, it.scale};
  if (random_.chance(40)) {
    Value true_of_all = builder_.constant(Bool, 1);
    operands.push_back(random_.chance(50) ? true_of_all : condition_that_holds(scalar_leaves()));
  }
  builder_.emit(OpCode::SoftmaxStep, std::move(operands));
  builder_.emit(OpCode::ScaleRows, {it.acc.value, it.alpha.value});
  const DType dtype = it.p.dtype;
  Value v = gemm_operand(dtype, it.columns, it.width);
  builder_.emit(OpCode::Gemm, {it.p.value, v, it.acc.value});
}

void Body::softmax_finish(const Softmax& it) {
  TileInfo l = it.l;
  if (it.parts > 0) {
    l = make_tile(Space::Fragment, F32, {it.rows}, Range::Wild);
    Attrs attrs;
    attrs.set("kind", std::string("sum"));
    attrs.set("dim", int64_t{1});
    builder_.emit(OpCode::Reduce, {it.l.value, l.value}, std::move(attrs));
  }
  TileInfo lse;
  if (random_.chance(50)) lse = make_tile(Space::Fragment, F32, {it.rows}, Range::Sum);
  builder_.emit(OpCode::SoftmaxFinish, {it.acc.value, it.m.value, l.value, lse.value, it.scale});
  round_down(it.acc, kQuotientOffset, 4);
  TileInfo acc = it.acc;
  acc.range = Range::Small;
  scope_.tiles.push_back(acc);
  if (!lse.value) return;
  round_down(lse, kLseOffset, 128);
  scope_.tiles.push_back(lse);
}

// x = ⌊x + offset⌋, between −most and most.
void Body::round_down(const TileInfo& tile, double offset, double most) {
  builder_.parallel(tile.shape, [&](Indices index) {
    const std::vector<Value> at(index.begin(), index.end());
    Value x = builder_.load(tile.value, at);
    x = builder_.binary(OpCode::Add, x, builder_.constant(F32, offset));
    x = builder_.unary(OpCode::Floor, x);
    x = builder_.binary(OpCode::Min, x, builder_.constant(F32, most));
    x = builder_.binary(OpCode::Max, x, builder_.constant(F32, -most));
    builder_.store(x, tile.value, at);
  });
}

}  // namespace kiln::differential
