// for i { a(i); for j in 0 … n(i) { b(i, j) } }  →  for t in 0 … rounds · N {
//                                                     i = t / N; j = t mod N; a(i)
//                                                     if j < n(i) { b(i, j) } }
// where N, a constant, is the most that n(i) can be; without the test where it always is that. What
// the inner rounds copy can then be fetched ahead from one round of the outer loop to the next. a
// is computed anew each time, so it has only pure ops and loads of what the loops do not write.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "ir/ranges.h"
#include "passes/dependence.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

constexpr int64_t kMostGuarded = 8;  // rounds inside: of more, too many might be there for nothing
constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();

bool is_pipelined(const Op& op) {
  return op.code == OpCode::For && op.word("kind") == "pipelined";
}

struct Nest {
  OpId inner;
  int64_t begin, step;  // of the outer loop
  bool may_end_before;  // it begins
  int64_t inner_begin, inner_step;
  int64_t most;  // rounds inside
  bool guarded;  // there may be fewer
};

class Flattening {
 public:
  explicit Flattening(Kernel& kernel) : kernel_(kernel), ranges_(kernel) {}

  bool operator()(Builder& build, OpId id) {
    if (!is_pipelined(kernel_.op(id))) return false;
    // Loops inside first, so that three in each other become one.
    rewrite(kernel_, kernel_.op(id).regions[0], names_, *this);
    const std::vector<OpId>& ops = kernel_.region(kernel_.op(id).regions[0]).ops;
    const bool is_nest = !ops.empty() && is_pipelined(kernel_.op(ops.back()));
    std::string why;
    const std::optional<Nest> nest = is_nest ? match(kernel_.op(id), why) : std::nullopt;
    if (!nest) {
      if (is_nest) kernel_.op(id).attrs.set("reason", "not one loop with the one inside: " + why);
      kernel_.region(build.region()).ops.push_back(id);
      return true;
    }
    flatten(build, Op(kernel_.op(id)), *nest);
    return true;
  }

 private:
  std::optional<Nest> match(const Op& outer, std::string& why) {
    const std::vector<OpId>& ops = kernel_.region(outer.regions[0]).ops;
    const Op& inner = kernel_.op(ops.back());
    const Effects effects(kernel_, outer);
    for (OpId id : ops) {
      const Op& op = kernel_.op(id);
      const bool is_known =
          info(op.code).pure ||
          (op.code == OpCode::Load && !effects.writer(base_of(kernel_, op.operands[0])));
      if (is_known || id == ops.back()) continue;
      why = fmt::format("there is a {} beside it", info(op.code).name);
      return std::nullopt;
    }
    const auto begin = constant_int(kernel_, outer.operands[0]),
               step = constant_int(kernel_, outer.operands[2]),
               inner_begin = constant_int(kernel_, inner.operands[0]),
               inner_step = constant_int(kernel_, inner.operands[2]);
    if (!begin || !step || !inner_begin || !inner_step) {
      why = "a begin or step is not a constant";
      return std::nullopt;
    }
    const Interval ends = ranges_.of(inner.operands[1]), outer_ends = ranges_.of(outer.operands[1]);
    const int64_t most = rounds(*inner_begin, ends.high, *inner_step);
    const bool guarded = ends.low != ends.high;
    if (most < 1 || (guarded && most > kMostGuarded)) {
      why = fmt::format("its rounds are not at most {}", kMostGuarded);
      return std::nullopt;
    }
    if (rounds(*begin, outer_ends.high, *step) > kMostInt32 / most ||
        outer_ends.high - *begin > kMostInt32 - *step) {
      why = "the number of all rounds might not fit in 32 bits";
      return std::nullopt;
    }
    return Nest{ops.back(),   *begin,      *step, outer_ends.low < *begin,
                *inner_begin, *inner_step, most,  guarded};
  }

  static int64_t rounds(int64_t begin, int64_t end, int64_t step) {
    return begin < end ? (end - begin + step - 1) / step : 0;
  }

  void flatten(Builder& build, const Op& outer, const Nest& nest) {
    const Op inner = kernel_.op(nest.inner);
    const RegionId around = outer.regions[0];
    const auto constant = [&](int64_t value) { return build.constant(I32, value); };
    Value end_of_outer = outer.operands[1];
    if (nest.may_end_before)
      end_of_outer = build.binary(OpCode::Max, end_of_outer, constant(nest.begin));
    Value count = build.binary(OpCode::Add, end_of_outer, constant(nest.step - 1 - nest.begin));
    count = build.binary(OpCode::FloorDiv, count, constant(nest.step));
    Value end = build.binary(OpCode::Mul, count, constant(nest.most));
    Attrs attrs = outer.attrs;
    attrs.set("stages", std::max(outer.integer("stages"), inner.integer("stages")));
    if (inner.word("schedule") != "auto") attrs.set("schedule", inner.word("schedule"));
    const OpId loop = build.emit(OpCode::For, {constant(0), end, constant(1)}, std::move(attrs));
    const RegionId body = build.add_region(loop);
    Value t = kernel_.add_argument(body, Type::scalar(I32));
    Builder::Scope scope(build, body);
    Value i = build.binary(OpCode::FloorDiv, t, constant(nest.most)),
          j = build.binary(OpCode::FloorMod, t, constant(nest.most));
    names_[kernel_.region(around).args[0].id] = at(build, i, nest.begin, nest.step);
    Value inner_index = at(build, j, nest.inner_begin, nest.inner_step);
    names_[kernel_.region(inner.regions[0]).args[0].id] = inner_index;
    kernel_.region(around).ops.pop_back();
    take(build, around);
    if (!nest.guarded) return take(build, inner.regions[0]);
    Value is_round = build.compare("lt", inner_index, renamed(names_, inner.operands[1]));
    Builder::Scope guarded(build, build.add_region(build.emit(OpCode::If, {is_round})));
    take(build, inner.regions[0]);
  }

  Value at(Builder& build, Value round, int64_t begin, int64_t step) {
    if (step != 1) round = build.binary(OpCode::Mul, round, build.constant(I32, step));
    return begin == 0 ? round : build.binary(OpCode::Add, round, build.constant(I32, begin));
  }

  // All ops of the region, with their new names.
  void take(Builder& build, RegionId region) {
    walk(kernel_, region, [&](OpId id) {
      for (Value& operand : kernel_.op(id).operands) operand = renamed(names_, operand);
    });
    move_ops(kernel_, region, build.region());
  }

  Kernel& kernel_;
  Ranges ranges_;
  ValueMap names_;
};

}  // namespace

void flatten_loops(Kernel& kernel) {
  ValueMap nothing;  // is renamed outside of the loops
  Flattening flattening(kernel);
  rewrite(kernel, kernel.body, nothing, flattening);
}

}  // namespace kiln
