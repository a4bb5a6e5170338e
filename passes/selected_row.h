// The row of a `selected` loop, and loops and branches over it: what the passes that lower it
// share.
#pragma once

#include "ir/builder.h"

namespace kiln {

// Extent of any storage along an axis, as a value.
Value extent_of(Builder& build, Value storage, size_t axis);

// for index in begin … end { body(index) }, pipelined if stages > 0.
template <class Body>
void loop(Builder& build, Value begin, Value end, int64_t stages, Body&& body,
          const std::string& schedule = "auto") {
  Attrs attrs;
  attrs.set("kind", std::string(stages > 0 ? "pipelined" : "serial"));
  attrs.set("stages", stages);
  attrs.set("schedule", schedule);
  Value one = build.constant(I32, 1);
  RegionId region = build.add_region(build.emit(OpCode::For, {begin, end, one}, std::move(attrs)));
  Value index = build.kernel().add_argument(region, Type::scalar(I32));
  Builder::Scope scope(build, region);
  body(index);
}

// if condition { body() }
template <class Body>
void when(Builder& build, Value condition, Body&& body) {
  RegionId region = build.add_region(build.emit(OpCode::If, {condition}));
  Builder::Scope scope(build, region);
  body();
}

// Positions on the one long axis of a row, which is a view.
class SelectedRow {
 public:
  SelectedRow(Builder& build, Value view);
  Value begin() const { return begin_; }
  Value end() const { return end_; }

  // What lies outside the tensor reads as 0, which in a mask says "not selected" but in a list
  // would be an index: keeps to the positions that every view of the chain and the base hold.
  void clip();
  void at_most(Value count);  // nothing if there is no such value
  Value load(Value position);

 private:
  Builder& build_;
  Value view_;
  size_t axis_ = 0;
  Value zero_, begin_, end_;
};

}  // namespace kiln
