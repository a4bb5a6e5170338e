// The last stage of block-sparse attention, written by hand (tests/files/late), against float64:
// any length, lists of any density and none, NaN beyond each head's end.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/runtime.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/late_file.h"
#include "tests/support/on_device.h"

namespace kiln::test {
namespace {

constexpr int64_t kTail = 9;  // rows of NaN between heads

AttentionConfig late_config() {
  return {.dtype = F16,
          .block_m = 128,
          .block_n = 128,
          .form = BlockForm::Lists,
          .causal = true,
          .lse = false};
}

// A copy of [batch, heads, seq, dim] with NaN behind every head.
class Spaced {
 public:
  explicit Spaced(const Array& dense) : memory_(dense.view()) {
    Shape wide = dense.shape();
    const int64_t seq = wide[2], dim = wide[3];
    wide[2] += kTail;
    array_ = Array(dense.dtype(), wide);
    fill(array_, NAN);
    for (int64_t head = 0; head < wide[0] * wide[1]; ++head)
      for (int64_t i = 0; i < seq * dim; ++i)
        array_.set(head * (seq + kTail) * dim + i, dense.get(head * seq * dim + i));
    const Memory whole = array_.view();
    memory_.data = whole.data;
    memory_.strides = whole.strides;
  }
  const Memory& memory() const { return memory_; }
  // The elements of the tensor, and whether all others are NaN still.
  bool take(Array& dense) const {
    const int64_t seq = dense.shape()[2], dim = dense.shape()[3];
    bool untouched = true;
    for (int64_t i = 0; i < array_.size(); ++i) {
      const int64_t head = i / ((seq + kTail) * dim), at = i % ((seq + kTail) * dim);
      if (at < seq * dim)
        dense.set(head * seq * dim + at, array_.get(i));
      else
        untouched = untouched && std::isnan(array_.get(i));
    }
    return untouched;
  }

 private:
  Array array_ = Array(F16, {});
  Memory memory_;
};

void check_late(Device& device, AttentionCase& one, int64_t ctas) {
  one.use(effective_mask(one.config, one.args));
  fill(one.o, NAN);
  const Spaced q(one.q), k(one.k), v(one.v), o(one.o);
  Arguments arguments;
  arguments.tensor("q", q.memory()).tensor("k", k.memory()).tensor("v", v.memory());
  arguments.tensor("o", o.memory()).tensor("counts", *one.args.counts);
  arguments.tensor("indices", *one.args.indices).dim("ctas", ctas);
  arguments.param("scale", scale_of(one.config, one.args));
  const Compiled kernel =
      compile(device, kiln::testing::late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile"));
  kiln::testing::run_on(device, *kernel.executable(), bind(kernel.signature(), arguments));
  INFO(one.describe() << " ctas " << ctas << " on " << device.name());
  CHECK(o.take(one.o));
  const AttentionReference reference =
      attention_reference(one.config, one.args, all_rows(one.args));
  const Comparison outputs =
      compare(to_doubles(one.args.o), reference.o, one.config.dim_v, accuracy_rule(F16));
  INFO("o: " << outputs.str());
  CHECK(outputs.ok());
}

void scale_by(Array& array, double factor) {
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, array.get(i) * factor);
}

}  // namespace

TEST_CASE("hand-written block-sparse attention equals float64", "[late]") {
  const bool large = !kiln::testing::uses_host_memory(fast_device());
  std::mt19937_64 random(run_seed());
  for (std::string_view name : devices()) {
    const bool slow = name == "interpreter";
    const std::vector<int64_t> lengths =
        slow    ? std::vector<int64_t>{300}
        : large ? std::vector<int64_t>{1, 77, 128, 256, 300, 1000, 2048, 2500}
                : std::vector<int64_t>{1, 128, 300, 641};
    for (const int64_t seq : lengths)
      for (const double density : {0.0, 0.3, 1.0}) {
        if (slow && density == 1.0) continue;
        const int64_t heads = slow ? 1 : 1 + static_cast<int64_t>(random() % 3);
        AttentionCase one(late_config(), {slow ? 1 : 1 + static_cast<int64_t>(random() % 2), heads,
                                          heads, seq, seq});
        one.randomize(random(), density);
        check_late(device(name), one, large ? 132 : 1 + static_cast<int64_t>(random() % 3));
      }
  }
}

TEST_CASE("hand-written attention whose maximum keeps growing equals float64", "[late]") {
  Device& where = fast_device();
  std::mt19937_64 random(run_seed() + 1);
  for (const double factor : {12.0, 30.0}) {
    AttentionCase one(late_config(), {1, 2, 2, 640, 640});
    one.randomize(random(), 0.6);
    scale_by(one.q, factor);
    check_late(where, one, 2);
  }
}

}  // namespace kiln::test
