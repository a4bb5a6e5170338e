// selected row { body }  →  for i in 0 … end { if chosen(i) { body } }
// The body does not write the row (the law), so reading it as the loop runs is reading it before.
// A tier that scans rows by itself (a producer warp) keeps the op; this is for all others.
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "passes/selected_row.h"

namespace kiln {
namespace {

// Whether an element of the row before `position` equals `element`.
Value appeared(Builder& build, SelectedRow& row, Value element, Value position) {
  Value found = build.alloc(Space::Fragment, Bool, {});
  build.fill(0, found);
  loop(build, row.begin(), position, 0, [&](Value earlier) {
    Value same = build.compare("eq", row.load(earlier), element);
    build.store(build.binary(OpCode::Or, build.load(found), same), found);
  });
  return build.load(found);
}

struct Lowering {
  Kernel& kernel;
  ValueMap& names;

  bool operator()(Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Selected) return false;
    if (kernel.type(op.operands[0]).dtype == I32) {
      list(build, op);
    } else {
      mask(build, op);
    }
    return true;
  }

 private:
  void mask(Builder& build, const Op& op) {
    SelectedRow row(build, op.operands[0]);
    row.at_most(op.operand(1));
    Value unset = build.constant(kernel.type(op.operands[0]).dtype, 0);
    loop(
        build, row.begin(), row.end(), op.integer("stages"),
        [&](Value index) {
          when(build, build.compare("ne", row.load(index), unset), [&] { body(build, op, index); });
        },
        op.word("schedule"));
  }

  void list(Builder& build, const Op& op) {
    SelectedRow row(build, op.operands[0]);
    row.clip();
    row.at_most(op.operand(2));
    Value zero = build.constant(I32, 0), limit = op.operand(1);
    loop(
        build, row.begin(), row.end(), op.integer("stages"),
        [&](Value position) {
          Value index = row.load(position);
          Value valid = build.compare("ge", index, zero);
          if (limit) valid = build.binary(OpCode::And, valid, build.compare("lt", index, limit));
          when(build, valid, [&] {
            Value fresh = build.unary(OpCode::Not, appeared(build, row, index, position));
            when(build, fresh, [&] { body(build, op, index); });
          });
        },
        op.word("schedule"));
  }

  // The body itself, its own `selected` lowered, with the selected index in place of its argument.
  void body(Builder& build, const Op& op, Value index) {
    names[kernel.region(op.regions[0]).args[0].id] = index;
    rewrite(kernel, op.regions[0], names, *this);
    move_ops(kernel, op.regions[0], build.region());
  }
};

}  // namespace

void lower_selected(Kernel& kernel) {
  ValueMap names;
  rewrite(kernel, kernel.body, names, Lowering{kernel, names});
}

}  // namespace kiln
