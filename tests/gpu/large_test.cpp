// Tensors of more than 2^31 elements: offsets are 64-bit.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
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

}  // namespace

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
