// Loops whose rounds first copy whole tiles in rows of chunks, to be fetched ahead: guarded and
// addressed by what is known before a round, or by what is not, or the tile holds more than one
// copy. Some are an attention's: two gemms, with work on rows between.
#include <algorithm>
#include <limits>

#include "tests/differential/generate/body.h"

namespace kiln::differential {
namespace {

constexpr int kMostRounds = 8;  // of a loop that stands in no other

// Of a gemm into which operands of a dtype go.
DType sum_of(DType dtype) {
  return !is_float(dtype) ? I32 : dtype == F64 ? F64 : F32;
}

}  // namespace

struct Body::Fetched {
  TensorInfo from;
  TileInfo tile, sum;
  const AtomicTensor* own = nullptr;  // the rows of `from` that it is, where the block writes them
};

// What a loop's rounds copy, and what they make of it.
struct Body::Schedule {
  struct Chain {
    TileInfo q, s, top, old, p, acc;
    bool ahead = false;  // as pipeline_gemms takes it: the next round's s may come before this p·v
  };
  std::vector<Fetched> fetched;
  std::optional<Fetched> late;  // under way while the others are used, but not from round to round
  std::optional<Chain> chain;   // s = q·k; p from s and its largest elements; acc += p·v
  TileInfo known, carried;      // variables: written before the loop only; in rounds
};

void Body::schedule(int depth) {
  Schedule it;
  it.known = make_tile(Space::Fragment, I32, {});
  builder_.store(views_.traced(0, 5), it.known.value);
  it.carried = make_tile(Space::Fragment, I32, {});
  builder_.fill(static_cast<double>(random_.between(0, 2)), it.carried.value);
  choose_fetched(it);
  if (it.fetched.empty()) return;
  scope_.tiles.push_back(it.carried);
  schedule_loop(it, depth, kMostRounds);
  if (random_.chance(25)) {  // another beside it, maybe on the same tiles
    if (random_.chance(70)) choose_fetched(it);
    schedule_loop(it, depth, kMaxTrips);
  }
}

void Body::choose_fetched(Schedule& it) {
  it.fetched.clear();
  it.chain.reset();
  it.late.reset();
  if (random_.chance(20) && choose_tile(it, false)) {
    it.late = it.fetched[0];
    it.fetched.clear();
    fill(it.late->tile.value, it.late->tile.dtype);
    scope_.tiles.push_back(it.late->tile);
    scope_.tiles.push_back(it.late->sum);
  }
  const bool chain = random_.chance(50);
  const int tiles = chain ? 2 : static_cast<int>(random_.between(1, 3));
  for (int i = 0; i < tiles; ++i)
    if (!choose_tile(it, chain)) break;
  for (const Fetched& each : it.fetched) scope_.tiles.push_back(each.sum);
  if (chain && it.fetched.size() == 2) make_chain(it);
}

bool Body::multiplies(DType dtype, Range range) const {
  return is_float(dtype) ? range == Range::Small : dtype == I8 || dtype == U8;
}

// Tensors with a chunk in a row; of a chain, such as a gemm takes, `like` the first one's.
std::vector<TensorInfo> Body::sources_of_tiles(bool chain, std::optional<DType> like) {
  std::vector<TensorInfo> sources;
  for (const TensorInfo& tensor : scope_.tensors) {
    const int64_t width = tensor.shape.back();
    if (tensor.dtype == Bool || tensor.shape.size() < 2) continue;
    if (width != kDynamic && width < chunk_of(tensor.dtype)) continue;
    if (chain && !multiplies(tensor.dtype, tensor.range)) continue;
    if (like && tensor.dtype != *like) continue;
    for (int i = 0; i < (tensor.is_stream ? 4 : 1); ++i) sources.push_back(tensor);
  }
  return sources;
}

// Of a chain, k [n, c] and v [n, d] of one dtype.
bool Body::choose_tile(Schedule& it, bool chain) {
  const bool second = chain && !it.fetched.empty();
  std::optional<DType> like;
  if (second) like = it.fetched[0].tile.dtype;
  std::vector<TensorInfo> sources = sources_of_tiles(chain, like);
  Fetched made;
  int64_t most_rows = 32;
  if (!chain && !scope_.owned.empty() && random_.chance(75)) {
    const AtomicTensor& own = random_.pick(scope_.owned);
    if (own.tensor.shape.back() >= chunk_of(own.tensor.dtype)) {
      sources = {own.tensor};
      made.own = &own;
      most_rows = own.rows;
    }
  }
  if (sources.empty()) return false;
  made.from = random_.pick(sources);
  const DType dtype = made.from.dtype;
  const int64_t chunk = chunk_of(dtype), width = made.from.shape.back();
  const int64_t most = std::min<int64_t>(width == kDynamic ? 32 : width, 64) / chunk;
  int64_t columns = chunk * random_.between(1, std::min<int64_t>(most, 4));
  if (random_.chance(60) && most * chunk >= 16) columns = std::max<int64_t>(16, chunk);
  int64_t rows = chain ? random_.pick({8, 16, 16, 24, 32}) : random_.pick({1, 2, 3, 5, 8, 16, 32});
  if (second) rows = it.fetched[0].tile.shape[0];
  rows = std::min(rows, most_rows);
  made.tile = make_tile(Space::Shared, dtype, {rows, columns}, made.from.range);
  const DType sum = !is_float(dtype) ? random_.pick({I32, I64}) : sum_of(dtype);
  made.sum = make_tile(any_space(), sum, {rows, columns}, std::max(Range::Sum, made.from.range));
  builder_.fill(static_cast<double>(random_.between(0, 2)), made.sum.value);
  it.fetched.push_back(made);
  return true;
}

void Body::make_chain(Schedule& it) {
  const TileInfo &k = it.fetched[0].tile, &v = it.fetched[1].tile;
  const int64_t m = random_.pick({8, 16, 16, 32, 48}), n = k.shape[0];
  const DType sum = sum_of(k.dtype);
  Schedule::Chain c;
  c.q = make_tile(any_space(), k.dtype, {m, k.shape[1]});
  initialise(c.q);
  auto fragment = [&](Shape shape) {
    return make_tile(Space::Fragment, sum, std::move(shape), Range::Sum);
  };
  c.s = fragment({m, n}), c.top = fragment({m}), c.old = fragment({m});
  c.p = make_tile(any_space(), k.dtype, {m, n});
  c.acc = fragment({m, v.shape[1]});
  builder_.fill(static_cast<double>(random_.between(-9, 0)), c.top.value);
  builder_.fill(0, c.acc.value);
  scope_.tiles.push_back(c.top);
  scope_.tiles.push_back(c.acc);
  c.ahead = random_.chance(75);
  it.chain = c;
}

void Body::schedule_loop(const Schedule& it, int depth, int most_rounds) {
  OpId op;
  bool far = false;
  const bool ahead = it.chain && it.chain->ahead;
  if (random_.chance(30)) {
    op = selected_op(true, random_.chance(30), ahead);
  } else if (random_.chance(6)) {
    op = far_loop();
    far = true;
  } else {
    op = for_op("pipelined", random_.pick({0, 1, 2, 2, 3, 3, 4, 4, 5, 5}), most_rounds, ahead);
  }
  RegionId region = builder_.add_region(op);
  Inner inner(scope_);
  Value index = builder_.kernel().add_argument(region, Type::scalar(I32));
  Builder::Scope scope(builder_, region);
  if (far) index = builder_.binary(OpCode::FloorMod, index, i32(random_.between(2, 9)));
  scope_.scalars.push_back(index);
  schedule_round(it, index, depth);
}

// Near one end of i32, where the rounds to come may be beyond it.
OpId Body::far_loop() {
  const bool low = random_.chance(40);
  const int64_t step = random_.between(1, 3), near = random_.between(0, 12);
  const int64_t other = random_.between(0, 3);
  Value from, end;
  if (low) {
    from = i32(INT32_MIN + other);
    end = i32(INT32_MIN + near);
  } else {
    from = i32(INT32_MAX - near);
    end = i32(INT32_MAX - other);
  }
  if (random_.chance(60)) {  // known only at run time
    Value moved = views_.traced(0, 1);
    end = builder_.binary(low ? OpCode::Add : OpCode::Sub, end, moved);
  }
  Attrs attrs;
  attrs.set("kind", std::string("pipelined"));
  attrs.set("stages", random_.between(0, 5));
  attrs.set("schedule", wished_schedule());
  Value by = random_.chance(30) ? views_.traced(step, step + 1) : i32(step);
  return builder_.emit(OpCode::For, {from, end, by}, std::move(attrs));
}

void Body::schedule_round(const Schedule& it, Value index, int depth) {
  for (const Fetched& each : it.fetched)  // tiles of the round alone
    if (random_.chance(5)) fill(each.tile.value, each.tile.dtype);
  if (random_.chance(12)) statement(0);
  if (random_.chance(40)) count_on(it, index);
  if (it.late) fetch_whole(it, *it.late, index);
  size_t at = 0;
  while (at < it.fetched.size()) {
    const size_t left = it.fetched.size() - at;
    const size_t group =
        it.chain ? left : static_cast<size_t>(random_.between(1, static_cast<int64_t>(left)));
    const bool ahead = it.chain && it.chain->ahead;
    const int guards = ahead ? 0 : random_.pick({0, 0, 0, 0, 0, 1, 1, 1, 1, 2});
    fetch_group(it, at, group, index, guards);
    at += group;
  }
  if (it.late) add_fetched(*it.late);
  if (random_.chance(30)) count_on(it, index);
  if (depth <= 0 || !random_.chance(15)) return;
  Schedule inner = it;
  if (random_.chance(80)) choose_fetched(inner);
  if (!inner.fetched.empty()) schedule_loop(inner, depth - 2, kMaxTrips);
}

// A scalar that goes through memory from round to round.
void Body::count_on(const Schedule& it, Value index) {
  Value more = builder_.binary(OpCode::Add, builder_.load(it.carried.value), index);
  more = builder_.binary(OpCode::FloorMod, more, i32(random_.between(3, 11)));
  builder_.store(more, it.carried.value);
}

// Was the first of the group filled in every round?
bool Body::fetch_group(const Schedule& it, size_t first, size_t count, Value index, int guards) {
  if (guards > 0) return fetch_guarded(it, first, count, index, guards);
  if (random_.chance(9)) {  // in a loop inside
    RegionId region = builder_.add_region(for_op("serial", 0));
    Inner inner(scope_);
    scope_.scalars.push_back(builder_.kernel().add_argument(region, Type::scalar(I32)));
    Builder::Scope scope(builder_, region);
    fetch_and_use(it, first, count, random_.chance(50) ? index : scope_.scalars.back());
    return false;
  }
  fetch_and_use(it, first, count, index);
  return true;
}

bool Body::fetch_guarded(const Schedule& it, size_t first, size_t count, Value index, int guards) {
  Value condition = guard_of_round(it, index);
  OpId op = builder_.emit(OpCode::If, {condition});
  const bool otherwise = random_.chance(12);
  if (otherwise) {
    Builder::Scope scope(builder_, builder_.add_region(op));
    count_on(it, index);
  }
  bool filled = false;
  {
    Builder::Scope scope(builder_, builder_.add_region(op));
    Inner inner(scope_);
    filled = fetch_group(it, first, count, index, guards - 1);
  }
  if (otherwise || random_.chance(70)) return false;
  const Fetched& one = it.fetched[first];
  {
    Builder::Scope scope(builder_, builder_.add_region(op));
    Inner inner(scope_);
    if (random_.chance(40)) {
      fetch_whole(it, one, index);
    } else {
      fill(one.tile.value, one.tile.dtype);
    }
  }
  if (filled && random_.chance(60)) use_fetched(it, one);
  return filled;
}

void Body::fetch_and_use(const Schedule& it, size_t first, size_t count, Value index) {
  const bool together = it.chain || random_.chance(50);
  const bool ahead = it.chain && it.chain->ahead;
  for (size_t i = first; i < first + count; ++i) {
    fetch_whole(it, it.fetched[i], index);
    if (!ahead) scope_.tiles.push_back(it.fetched[i].tile);
    if (!together) use_fetched(it, it.fetched[i]);
  }
  if (it.chain) multiply_twice(it);
  if (ahead) {
    if (random_.chance(40)) add_fetched(it.fetched[first + 1]);
    return;
  }
  for (size_t i = first; together && i < first + count; ++i) use_fetched(it, it.fetched[i]);
  if (random_.chance(14)) {  // once more, over what was read
    fetch_whole(it, it.fetched[first], index);
    use_fetched(it, it.fetched[first]);
  }
}

void Body::fetch_whole(const Schedule& it, const Fetched& fetched, Value index) {
  const Shape& shape = fetched.tile.shape;
  Attrs attrs;
  if (random_.chance(4))
    attrs.set("pad", static_cast<double>(random_.between(1, fetched.tile.dtype == Bool ? 1 : 2)));
  const size_t rank = fetched.from.shape.size();
  std::vector<Value> at;
  Shape sizes(rank - 2, 1);
  if (fetched.own) {
    at = fetched.own->start;
    Value moved = builder_.binary(OpCode::FloorMod, index, i32(fetched.own->rows - shape[0] + 1));
    at.back() = builder_.binary(OpCode::Add, at.back(), moved);
  } else {
    for (size_t axis = 0; axis + 2 < rank; ++axis) at.push_back(random_.pick(scope_.scalars));
    at.push_back(row_of_round(it, index, shape[0]));
  }
  const int64_t width = fetched.from.shape.back(), chunk = chunk_of(fetched.tile.dtype);
  const int64_t most = width == kDynamic ? 4 : width - shape[1];
  Value column = i32(0);
  if (random_.chance(20)) {
    column = i32(chunk * random_.between(0, most / chunk));
  } else if (random_.chance(15)) {
    column = views_.small(0, most);
  }
  at.push_back(column);
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  Value to = fetched.tile.value;
  if (shape[0] > 1 && random_.chance(5)) {  // the last rows only
    fill(to, fetched.tile.dtype);
    sizes[rank - 2] = random_.between(1, shape[0] - 1);
    to = builder_.slice(to, {i32(shape[0] - sizes[rank - 2]), i32(0)}, {sizes[rank - 2], shape[1]});
  }
  Value view = builder_.slice(fetched.from.value, at, sizes);
  builder_.emit(OpCode::Copy, {view, to}, std::move(attrs));
}

Value Body::row_of_round(const Schedule& it, Value index, int64_t rows) {
  switch (random_.weighted({40, 22, 12, 8, 18, 3, 6})) {
    case 0: return builder_.binary(OpCode::Mul, index, i32(rows));
    case 1: return index;
    case 2: return builder_.load(scope_.list.value, {scope_.scalars[0], index});
    case 3: return builder_.binary(OpCode::Add, index, builder_.load(it.known.value));
    case 4: return builder_.binary(OpCode::Add, index, builder_.load(it.carried.value));
    case 5: return views_.small(-1, 3);
    default: return builder_.binary(OpCode::Mul, index, views_.traced(0, 3));
  }
}

Value Body::guard_of_round(const Schedule& it, Value index) {
  switch (random_.weighted({20, 18, 12, 8, 8, 10, 90})) {
    case 0: {
      Value place = builder_.binary(OpCode::FloorMod, index, i32(kMaxTrips));
      Value set = builder_.load(scope_.mask.value, {scope_.scalars[0], place});
      if (scope_.mask.dtype == Bool) return set;
      return builder_.compare("ne", set, builder_.constant(scope_.mask.dtype, 0));
    }
    case 1: return builder_.compare(random_.pick({"lt", "ge", "ne"}), index, views_.small(0, 4));
    case 2: {
      Value half = builder_.binary(OpCode::FloorMod, index, i32(2));
      return builder_.compare("eq", half, views_.small(0, 1));
    }
    case 3: {
      Value number = builder_.load(scope_.list.value, {scope_.scalars[0], index});
      return builder_.compare("lt", number, views_.small(0, 3));
    }
    case 4: return builder_.compare("le", builder_.load(it.known.value), index);
    case 5: return expression(builder_, random_, scalar_leaves(), Bool, 2, numbers_);
    default: return builder_.compare("ne", builder_.load(it.carried.value), index);
  }
}

void Body::use_fetched(const Schedule& it, const Fetched& fetched) {
  const TileInfo &tile = fetched.tile, &sum = fetched.sum;
  switch (random_.weighted({52, 15, 8, 8, fetched.own ? 120 : 7, 9, 6})) {
    case 0: return add_fetched(fetched);
    case 1:
      return multiplies(tile.dtype, tile.range) ? multiply_self(fetched) : add_fetched(fetched);
    case 2: elementwise({tile}); return add_fetched(fetched);
    case 3: {
      const Part part = views_.of(tile, true);
      TileInfo made = make_tile(any_space(), tile.dtype, part.shape, tile.range);
      builder_.emit(OpCode::Copy, {part.value, made.value});
      scope_.tiles.push_back(made);
      return;
    }
    case 4: {
      add_fetched(fetched);
      if (!scope_.owned.empty()) return store_own_rows();
      if (!scope_.atomics.empty()) atomics_in_tensor();
      return;
    }
    case 5:  // bools have no bits to share
      elementwise({tile.dtype == Bool ? tile : reshaped(tile, tile.dtype)});
      return add_fetched(fetched);
    default:
      builder_.store(builder_.cast(builder_.load(tile.value, {i32(0), i32(0)}), I32),
                     it.carried.value);
      if (sum.space == Space::Shared && random_.chance(50)) fill(sum.value, sum.dtype);
      return statement(0);
  }
}

void Body::add_fetched(const Fetched& fetched) {
  const TileInfo &tile = fetched.tile, &sum = fetched.sum;
  const bool wild = is_float(tile.dtype) && tile.range == Range::Wild;
  builder_.parallel(sum.shape, [&](Indices index) {
    Value more = builder_.cast(builder_.load(tile.value, {index[0], index[1]}), sum.dtype);
    Value old = builder_.load(sum.value, {index[0], index[1]});
    Value now = builder_.binary(wild ? OpCode::Max : OpCode::Add, old, more);
    builder_.store(now, sum.value, {index[0], index[1]});
  });
}

// Adds what it multiplied with itself gives.
void Body::multiply_self(const Fetched& fetched) {
  const TileInfo &tile = fetched.tile, &sum = fetched.sum;
  const Shape shape = {tile.shape[0], tile.shape[0]};
  TileInfo c = make_tile(Space::Fragment, sum_of(tile.dtype), shape, Range::Sum);
  TileInfo shared = make_tile(Space::Shared, c.dtype, shape, Range::Sum);
  Attrs attrs;
  attrs.set("transpose_b", true);
  attrs.set("clear", true);
  builder_.emit(OpCode::Gemm, {tile.value, tile.value, c.value}, std::move(attrs));
  builder_.emit(OpCode::Copy, {c.value, shared.value});
  builder_.parallel(sum.shape, [&](Indices index) {
    Value column = builder_.binary(OpCode::FloorMod, index[1], i32(shape[1]));
    Value more = builder_.cast(builder_.load(shared.value, {index[0], column}), sum.dtype);
    Value old = builder_.load(sum.value, {index[0], index[1]});
    builder_.store(builder_.binary(OpCode::Add, old, more), sum.value, {index[0], index[1]});
  });
}

// Numbers stay small: of a score and the largest of its row, how far they are apart.
void Body::multiply_twice(const Schedule& it) {
  const Schedule::Chain& c = *it.chain;
  const TileInfo &k = it.fetched[0].tile, &v = it.fetched[1].tile;
  Attrs first;
  first.set("transpose_b", true);
  first.set("clear", true);
  first.set("policy", std::string(random_.pick({"square", "full_row"})));
  builder_.emit(OpCode::Gemm, {c.q.value, k.value, c.s.value}, std::move(first));
  builder_.emit(OpCode::Copy, {c.top.value, c.old.value});
  Attrs rows;
  rows.set("kind", std::string("max"));
  rows.set("dim", int64_t{1});
  rows.set("clear", false);
  builder_.emit(OpCode::Reduce, {c.s.value, c.top.value}, std::move(rows));
  builder_.parallel(c.s.shape, [&](Indices i) {
    Value score = builder_.load(c.s.value, {i[0], i[1]});
    Value top = builder_.load(c.top.value, {i[0]});
    Value x = builder_.binary(OpCode::Sub, score, top);
    if (is_float(k.dtype)) x = clamped(builder_, builder_.cast(x, F32));
    builder_.store(builder_.cast(x, k.dtype), c.p.value, {i[0], i[1]});
  });
  if (random_.chance(70))
    builder_.parallel(c.acc.shape, [&](Indices i) {
      Value old = builder_.load(c.old.value, {i[0]});
      Value same = builder_.compare("eq", old, builder_.load(c.top.value, {i[0]}));
      Value kept = builder_.load(c.acc.value, {i[0], i[1]});
      Value none = builder_.constant(c.acc.dtype, 0);
      builder_.store(builder_.select(same, kept, none), c.acc.value, {i[0], i[1]});
    });
  builder_.emit(OpCode::Gemm, {c.p.value, v.value, c.acc.value});
}

}  // namespace kiln::differential
