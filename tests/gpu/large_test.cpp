// Tensors of more than 2^31 elements: offsets are 64-bit.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <random>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/sparse_decode/sparse_decode.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

namespace kiln::test {
namespace {

// A tensor of many heads in device memory of which only the last head is ever filled.
class LastHead {
 public:
  LastHead(Device& device, const Memory& head, int64_t heads) : device_(device), memory_(head) {
    const int64_t elements = count(head.shape);
    const auto bytes = static_cast<size_t>(elements) * size_of(head.dtype);
    memory_.shape[1] = heads;
    data_ = static_cast<std::byte*>(device.allocate(bytes * static_cast<size_t>(heads)));
    memory_.data = data_;
    device.upload(data_ + bytes * static_cast<size_t>(heads - 1), head.data, bytes);
  }
  ~LastHead() { device_.release(data_); }
  LastHead(const LastHead&) = delete;
  const Memory& memory() const { return memory_; }
  void fetch(Array& head) const {
    const size_t bytes = head.bytes();
    device_.download(head.data(), data_ + bytes * static_cast<size_t>(memory_.shape[1] - 1), bytes);
  }

 private:
  Device& device_;
  Memory memory_;
  std::byte* data_ = nullptr;
};

// A tensor of many sequences in device memory; of all but the last nothing is ever written.
class LastSequence {
 public:
  LastSequence(Device& device, DType dtype, Shape shape)
      : device_(device),
        all_(Memory::contiguous(nullptr, dtype, std::move(shape))),
        last_(all_),
        bytes_(static_cast<size_t>(count(all_.shape) / all_.shape[0]) * size_of(dtype)) {
    const size_t before = bytes_ * static_cast<size_t>(all_.shape[0] - 1);
    all_.data = device.allocate(before + bytes_);
    last_.data = static_cast<std::byte*>(all_.data) + before;
    last_.shape[0] = 1;
  }
  ~LastSequence() { device_.release(all_.data); }
  LastSequence(const LastSequence&) = delete;

  const Memory& all() const { return all_; }
  const Memory& last() const { return last_; }
  // Over and over; its length should divide nothing.
  void fill(const Array& pattern) const {
    for (size_t at = 0; at < bytes_; at += pattern.bytes())
      device_.upload(static_cast<std::byte*>(last_.data) + at, pattern.data(),
                     std::min(pattern.bytes(), bytes_ - at));
  }
  Array fetch() const {
    Array copy(last_.dtype, last_.shape);
    device_.download(copy.data(), last_.data, copy.bytes());
    return copy;
  }

 private:
  Device& device_;
  Memory all_, last_;
  size_t bytes_;
};

}  // namespace

TEST_CASE("decode beyond 2^31 elements of keys gives the last sequence as alone", "[large]") {
  Device& where = fast_device();
  if (testing::uses_host_memory(where)) return;  // 10 GB: for a GPU's memory
  const int64_t batch = 9, room = 131072, heads_kv = 8, dim = 256, blocks = room / 64;
  const DecodeConfig config{.dtype = F16, .head_dim = dim, .group = 4, .block = 64, .lse = true};
  const LastSequence q(where, F16, {batch, 32, dim}), k(where, F16, {batch, room, heads_kv, dim}),
      v(where, F16, {batch, room, heads_kv, dim}), o(where, F16, {batch, 32, dim});
  const LastSequence lengths(where, I32, {batch}), chosen(where, I32, {batch, heads_kv, 64}),
      lse(where, F32, {batch, 32});
  std::mt19937_64 random(run_seed());
  std::normal_distribution<double> normal;
  Array numbers(F16, {1000003}), list(I32, {heads_kv, 64}), length(I32, {1});
  for (int64_t i = 0; i < numbers.size(); ++i) numbers.set(i, normal(random));
  for (int64_t i = 0; i < list.size(); ++i)
    list.set(i, static_cast<double>(random() % static_cast<uint64_t>(blocks)));
  length.set(0, static_cast<double>(room - 17));
  q.fill(numbers), k.fill(numbers), v.fill(numbers), chosen.fill(list), lengths.fill(length);

  const SparseDecode decode = sparse_decode(where, config);
  const auto run = [&](auto part) {
    DecodeArgs args{part(q), part(k), part(v), part(o), part(lengths)};
    args.chosen = part(chosen);
    args.lse = part(lse);
    args.batch_invariant = true;
    decode(args);
    return std::pair(o.fetch().values(), lse.fetch().values());
  };
  const auto alone = run([](const LastSequence& tensor) { return tensor.last(); });
  CHECK(std::isfinite(alone.second[0]));
  CHECK(run([](const LastSequence& tensor) { return tensor.all(); }) == alone);
}

TEST_CASE("keys and values beyond 2^31 elements give the rows of the same data alone", "[large]") {
  Device& where = fast_device();
  if (testing::uses_host_memory(where)) return;  // 9 GB: for a GPU's memory
  AttentionConfig config{.dtype = F16, .head_dim = 128, .causal = true};
  AttentionCase one(config, {.seq = 8192, .seq_kv = 8192});
  one.randomize(run_seed(), 0.1);
  one.run(where);

  const int64_t heads = (int64_t{1} << 31) / (8192 * 128) + 2;  // the last starts beyond 2^31
  LastHead q(where, one.q.view(), heads), k(where, one.k.view(), heads),
      v(where, one.v.view(), heads), o(where, one.o.view(), heads);
  LastHead mask(where, one.mask.view(), heads);
  AttentionArgs args = one.args;
  args.q = q.memory(), args.k = k.memory(), args.v = v.memory(), args.o = o.memory();
  args.mask = mask.memory();
  args.lse.reset();
  config.lse = false;
  block_sparse_attention(where, config)(args);
  Array last(F16, one.o.shape());
  o.fetch(last);
  int64_t different = 0;
  for (int64_t i = 0; i < last.size(); ++i) different += last.get(i) != one.o.get(i);
  CHECK(different == 0);
}

TEST_CASE("a hundred runs give the same bits", "[repeat]") {
  AttentionCase one({.dtype = F16, .head_dim = 128, .block = 128},
                    {.heads = 4, .heads_kv = 2, .seq = 1500, .seq_kv = 1500});
  one.randomize(run_seed(), 0.4);
  one.run(fast_device());
  const std::vector<double> first = one.o.values();
  for (int repetition = 1; repetition < 100; ++repetition) {
    one.run(fast_device());
    REQUIRE(one.o.values() == first);
  }
}

}  // namespace kiln::test
