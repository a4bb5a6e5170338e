// Branches and loops.
#include <algorithm>

#include "tests/differential/generate/body.h"

namespace kiln::differential {

void Body::statements(int count, int depth) {
  for (int i = 0; i < count; ++i) statement(depth);
}

void Body::statement(int depth) {
  struct Kind {
    int weight;
    void (Body::*simple)();
    void (Body::*structure)(int);
  };
  static const std::vector<Kind> kinds = {
      {6, static_cast<void (Body::*)()>(&Body::add_tile), nullptr},
      {7, &Body::copy_part, nullptr},
      {5, &Body::reduce, nullptr},
      {11, &Body::lines, nullptr},
      {11, &Body::gemm, nullptr},
      {5, &Body::partial_fill, nullptr},
      {5, &Body::scalar_store, nullptr},
      {15, &Body::elementwise_of_any, nullptr},
      {6, &Body::atomics, nullptr},
      {4, &Body::gather, nullptr},
      {3, &Body::scatter, nullptr},
      {2, &Body::softmax, nullptr},
      {2, &Body::device_assert, nullptr},
      {1, &Body::watch, nullptr},
      {4, &Body::add_array, nullptr},
      {2, &Body::array_store, nullptr},
      {4, &Body::reshape, nullptr},
      {2, &Body::reinterpret, nullptr},
      {2, &Body::store_own_rows, nullptr},
      {3, &Body::load_own_rows, nullptr},
      {6, nullptr, &Body::branch},
      {8, nullptr, &Body::selected},
      {8, nullptr, &Body::loop},
      {4, nullptr, &Body::loop_with_exits},
      {8, nullptr, &Body::pipeline},
      {5, nullptr, &Body::schedule},
  };
  std::vector<int> weights;
  for (const Kind& kind : kinds) weights.push_back(kind.simple || depth > 0 ? kind.weight : 0);
  const Kind& kind = kinds[random_.weighted(weights)];
  kind.simple ? (this->*kind.simple)() : (this->*kind.structure)(depth);
}

void Body::branch(int depth) {
  Value condition = expression(builder_, random_, scalar_leaves(), Bool, 2, numbers_);
  OpId op = builder_.emit(OpCode::If, {condition});
  for (int i = 0, n = random_.chance(50) ? 2 : 1; i < n; ++i) {
    Builder::Scope scope(builder_, builder_.add_region(op));
    Inner inner(scope_);
    statements(static_cast<int>(random_.between(1, 3)), depth - 1);
  }
}

// `depth` below 0: what may run in any order.
void Body::region(OpId op, int depth) {
  RegionId region = builder_.add_region(op);
  Inner inner(scope_);
  scope_.scalars.push_back(builder_.kernel().add_argument(region, Type::scalar(I32)));
  Builder::Scope scope(builder_, region);
  if (depth < 0) {
    commuting_statements();
  } else {
    statements(static_cast<int>(random_.between(1, 3)), depth);
  }
}

std::string Body::wished_schedule(bool ahead) {
  if (ahead) return random_.pick({"overlap", "overlap", "auto", "serial"});
  return random_.pick({"auto", "auto", "overlap", "serial"});
}

// At most `trips` rounds; `ahead`: that may overlap, as their step is 1.
OpId Body::for_op(const std::string& kind, int64_t stages, int64_t trips, bool ahead) {
  Attrs attrs;
  attrs.set("kind", kind);
  const std::string schedule = wished_schedule(ahead);
  if (kind == "pipelined") attrs.set("stages", stages), attrs.set("schedule", schedule);
  const int64_t begin = random_.between(-3, 3);
  const int64_t step = ahead || schedule == "overlap" ? 1 : random_.between(1, 3);
  const int64_t last = begin + trips * step;
  Value from = i32(begin), end = views_.small(begin - 1, last);
  Value by = i32(step);
  if (kind != "unroll" && random_.chance(40)) {  // known only at run time
    if (random_.chance(50)) from = views_.traced(begin, begin + 2);
    end = views_.traced(begin - 1, last);
    if (step > 1 && random_.chance(50)) by = views_.traced(step, step + 1);
  }
  return builder_.emit(OpCode::For, {from, end, by}, std::move(attrs));
}

void Body::loop(int depth) {
  const std::string kind = random_.pick({"serial", "unroll", "pipelined"});
  region(for_op(kind, random_.between(0, 4)), depth - 1);
}

// Statements between exits that may be taken; one of which surely is after some rounds.
void Body::loop_with_exits(int depth) {
  Value rounds = builder_.alloc(Space::Fragment, I32, {});
  builder_.fill(0, rounds);
  OpId op = builder_.emit(OpCode::Loop, {});
  Inner inner(scope_);
  Builder::Scope scope(builder_, builder_.add_region(op));
  scope_.scalars.push_back(builder_.load(rounds));
  const int64_t most = random_.between(0, kMaxTrips);
  const int parts = static_cast<int>(random_.between(1, 3));
  const int sure = static_cast<int>(random_.between(0, parts));
  for (int part = 0; part <= parts; ++part) {
    if (part == sure || random_.chance(30)) exit_if(rounds, most, part == sure, depth - 1);
    if (part == parts) break;
    statement(depth - 1);
  }
  builder_.store(builder_.binary(OpCode::Add, builder_.load(rounds), i32(1)), rounds);
}

void Body::exit_if(Value rounds, int64_t most, bool surely, int depth) {
  Value condition = expression(builder_, random_, scalar_leaves(), Bool, 2, numbers_);
  if (surely) {
    Value enough = builder_.compare("ge", builder_.load(rounds), i32(most));
    condition = random_.chance(50) ? enough : builder_.binary(OpCode::Or, condition, enough);
  }
  Builder::Scope scope(builder_, builder_.add_region(builder_.emit(OpCode::ExitIf, {condition})));
  Inner inner(scope_);
  if (random_.chance(50)) statements(static_cast<int>(random_.between(1, 2)), std::max(0, depth));
}

// A row of a tensor, or a shared tile made from one, or a part of such; it may stick out.
Value Body::selected_row(bool is_list) {
  const TensorInfo& tensor = is_list ? scope_.list : scope_.mask;
  if (random_.chance(60)) {
    Value value = tensor.value;
    for (int i = 0, n = static_cast<int>(random_.between(1, 3)); i < n; ++i) {
      const int64_t rows = i + 1 == n ? 1 : kDynamic;
      Value row = random_.chance(70) ? scope_.scalars[0] : views_.near(-1, 2);
      Value column = views_.traced(0, random_.chance(50) ? 0 : 2);
      const int64_t length = i > 0 || random_.chance(30) ? kDynamic : int64_t{kMaxTrips};
      value = builder_.slice(value, {row, column}, {rows, length});
    }
    return value;
  }
  TileInfo tile = make_tile(Space::Shared, tensor.dtype, {2, kMaxTrips});
  Value rows = builder_.slice(tensor.value, {scope_.scalars[0], views_.small(0, 0)}, tile.shape);
  builder_.emit(OpCode::Copy, {rows, tile.value});
  return views_.part(tile, {1, random_.between(1, kMaxTrips)}, true);
}

// Longer than what is listed at once, and little of it selected.
Value Body::wide_row(bool is_list) {
  const int64_t width = is_list ? random_.pick({300, 400}) : random_.pick({600, 900});
  const int64_t apart = random_.pick({61, 83, 97}), different = random_.pick({2, 3, 7});
  const DType dtype = is_list ? I32 : scope_.mask.dtype;
  TileInfo tile = make_tile(Space::Shared, dtype, {1, width});
  Value first = views_.traced(0, 60);
  builder_.parallel(tile.shape, [&](Indices index) {
    Value at = builder_.binary(OpCode::Add, index[1], first);
    Value set = builder_.compare("eq", builder_.binary(OpCode::FloorMod, at, i32(apart)), i32(0));
    Value element;
    if (is_list) {
      Value number = builder_.binary(OpCode::FloorMod, index[1], i32(different));
      element = builder_.select(set, number, i32(-1));
    } else {
      element = builder_.cast(set, dtype);
    }
    builder_.store(element, tile.value, {index[0], index[1]});
  });
  return tile.value;
}

OpId Body::selected_op(bool ordered, bool wide, bool ahead) {
  const bool is_list = random_.chance(50);
  std::vector<Value> operands{wide ? wide_row(is_list) : selected_row(is_list)};
  auto bound = [&] {
    if (wide) return views_.small(260, 720);
    return random_.chance(50) ? views_.small(-1, kMaxTrips + 2) : views_.traced(-2, kMaxTrips + 2);
  };
  if (random_.chance(60)) operands.push_back(bound());
  if (is_list && random_.chance(50)) {
    operands.resize(2);
    operands.push_back(bound());
  }
  Attrs attrs;
  attrs.set("stages", random_.between(0, 5));
  attrs.set("schedule", wished_schedule(ahead));
  attrs.set("ordered", ordered);
  return builder_.emit(OpCode::Selected, operands, std::move(attrs));
}

void Body::selected(int depth) {
  const bool ordered = random_.chance(60);
  region(selected_op(ordered), ordered ? depth - 1 : -1);
}

// Statements whose order over the iterations of a loop does not matter: they add to what none of
// them reads otherwise.
void Body::commuting_statements() {
  const std::vector<TileInfo> all = scope_.tiles;
  auto adds = [&](const TileInfo& tile) {
    const bool wide = tile.dtype == F32 || tile.dtype == F64;
    return is_float(tile.dtype) ? wide && tile.range != Range::Wild : tile.dtype != Bool;
  };
  std::vector<TileInfo> targets;
  for (const TileInfo& tile : all)
    if (adds(tile) && tile.range != Range::Small && targets.size() < 3) targets.push_back(tile);
  std::erase_if(scope_.tiles, [&](const TileInfo& tile) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const TileInfo& target) { return target.shares_bytes(tile); });
  });
  if (!scope_.tiles.empty())
    for (const TileInfo& target : targets) accumulate(target);
  const bool commute = std::all_of(scope_.atomics.begin(), scope_.atomics.end(),
                                   [](const AtomicTensor& to) { return !to.kind.empty(); });
  if (commute && !scope_.atomics.empty() && random_.chance(40)) atomics_in_tensor();
  scope_.tiles = all;
}

void Body::accumulate(const TileInfo& target) {
  const bool matrix = target.shape.size() == 2 && target.space == Space::Fragment;
  if (matrix && (target.dtype == I32 || target.range == Range::Sum) && random_.chance(60)) {
    Inner inner(scope_);
    return gemm_into(target, false);
  }
  const OpCode code = random_.pick({OpCode::Add, OpCode::Add, OpCode::Max});
  auto update = [&](Indices index, const std::vector<Leaf>& leaves) {
    const std::vector<Value> place(index.begin(), index.end());
    Value value = value_for(target.dtype, leaves), old = builder_.load(target.value, place);
    builder_.store(builder_.binary(code, old, value), target.value, place);
  };
  if (target.shape.empty()) return update({}, scalar_leaves());
  builder_.parallel(target.shape, [&](Indices index) { update(index, element_leaves(index, {})); });
}

}  // namespace kiln::differential
