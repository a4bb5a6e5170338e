// Memory layouts, and what lies beyond the ends and in unselected blocks.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/attention_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

AttentionConfig causal_config() {
  AttentionConfig config;
  config.head_dim = 64;
  config.head_dim_v = 32;
  config.causal = true;
  config.lse = true;
  return config;
}

// A copy of `from` inside a larger array of `guard`s, `pad` elements longer on every axis but the
// last, which stays contiguous; the view of the copy.
struct Guarded {
  Array storage;
  Memory view;
  Guarded(const Array& from, double guard, int64_t pad) {
    Shape shape = from.shape();
    for (size_t axis = 0; axis + 1 < shape.size(); ++axis) shape[axis] += pad;
    storage = Array(from.dtype(), shape);
    fill(storage, guard);
    view = storage.view();
    view.shape = from.shape();
    for (int64_t i = 0; i < from.size(); ++i) storage.set(position(from.shape(), i), from.get(i));
  }
  int64_t position(const Shape& shape, int64_t flat) const {
    int64_t position = 0;
    for (size_t axis = shape.size(); axis-- > 0; flat /= shape[axis])
      position += flat % shape[axis] * view.strides[axis];
    return position;
  }
};

// [B, H, S, D] kept as [B, S, H, D].
struct Interleaved {
  Array storage;
  Memory view;
  explicit Interleaved(const Array& from) {
    const Shape& s = from.shape();
    storage = Array(from.dtype(), {s[0], s[2], s[1], s[3]});
    view = storage.view();
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.strides[1], view.strides[2]);
    for (int64_t i = 0; i < from.size(); ++i) {
      int64_t d = i % s[3], row = i / s[3] % s[2], h = i / s[3] / s[2] % s[1],
              b = i / s[3] / s[2] / s[1];
      storage.set(((b * s[2] + row) * s[1] + h) * s[3] + d, from.get(i));
    }
  }
};

}  // namespace

TEST_CASE("NaN beyond every end of padded buffers never reaches a result", "[attention]") {
  for (auto where : devices())
    for (auto form : {BlockForm::MaskBool, BlockForm::Dense}) {
      AttentionConfig config = causal_config();
      config.form = form;
      AttentionCase one(config, {.batch = 2, .heads = 2, .heads_kv = 1, .seq = 70, .seq_kv = 75});
      one.randomize(21);
      Guarded q(one.q, NAN, 3), k(one.k, NAN, 3), v(one.v, NAN, 3);
      one.args.q = q.view;
      one.args.k = k.view;
      one.args.v = v.view;
      one.check(device(where));
    }
}

TEST_CASE("[B, S, H, D] by strides, results too", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(causal_config(),
                      {.batch = 2, .heads = 4, .heads_kv = 2, .seq = 50, .seq_kv = 65});
    one.randomize(22);
    Interleaved q(one.q), k(one.k), v(one.v), o(one.o);
    one.args.q = q.view;
    one.args.k = k.view;
    one.args.v = v.view;
    one.args.o = o.view;
    one.check(device(where));
  }
}

TEST_CASE("strides of 0 share, negative strides reverse", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(causal_config(),
                      {.batch = 2, .heads = 2, .heads_kv = 2, .seq = 40, .seq_kv = 70});
    one.randomize(23);
    one.args.k.strides[1] = 0;
    one.args.v.strides[0] = 0;
    one.args.q.data = static_cast<char*>(one.args.q.data) + 39 * 64 * 2;
    one.args.q.strides[2] = -64;
    one.args.mask->strides[1] = 0;
    one.check(device(where));
  }
}

TEST_CASE("infinities and NaN in unselected blocks never reach a result", "[attention]") {
  for (auto where : devices())
    for (auto form : {BlockForm::MaskBool, BlockForm::Lists})
      for (double poison : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
        AttentionConfig config = causal_config();
        config.form = form;
        config.causal = false;
        AttentionCase one(config, {.seq = 64, .seq_kv = 190});
        one.randomize(24);
        one.use(Array(Bool, {1, 1, 1, 3}, std::vector<double>{1, 0, 1}));
        for (int64_t j = 64; j < 128; ++j) {
          for (int64_t d = 0; d < 64; ++d) one.k.set(j * 64 + d, poison);
          for (int64_t d = 0; d < 32; ++d) one.v.set(j * 32 + d, poison);
        }
        one.check(device(where));
        CHECK(std::isfinite(one.o.get(0)));
      }
}

TEST_CASE("NaN keys in the causal future of a visited tile never reach a result", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(causal_config(), {.seq = 64, .seq_kv = 64});
    one.randomize(25, 1);
    for (int64_t d = 0; d < 64; ++d) one.k.set(63 * 64 + d, NAN);
    one.run(device(where));
    for (int64_t i = 0; i < 63 * 32; ++i) REQUIRE(std::isfinite(one.o.get(i)));
    CHECK(std::isnan(one.o.get(63 * 32)));
  }
}

TEST_CASE("a mask may be larger than needed", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(causal_config(), {.heads = 2, .seq = 100, .seq_kv = 130});
    one.randomize(26);
    Array larger(Bool, {1, 2, 5, 9});
    fill(larger, 1);
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t r = 0; r < 2; ++r)
        for (int64_t c = 0; c < 3; ++c)
          larger.set((h * 5 + r) * 9 + c, one.mask.get((h * 2 + r) * 3 + c));
    one.args.mask = larger.view();
    one.check(device(where));
  }
}

TEST_CASE("a mask row belongs to a query block of this call", "[attention]") {
  // With a history of 128 keys, row 0 of the mask is for queries 0 … 63, which are positions 128 ….
  for (auto where : devices()) {
    AttentionConfig config = causal_config();
    AttentionCase one(config, {.seq = 64, .seq_kv = 192});
    one.randomize(27);
    one.use(Array(Bool, {1, 1, 1, 3}, std::vector<double>{0, 1, 0}));
    one.check(device(where));
    CHECK(one.lse.get(0) > -INFINITY);
  }
}
