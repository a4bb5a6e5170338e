// The last stage of block-sparse attention, written by hand (tests/files/late), against float64:
// any length, lists of any density and none, NaN beyond each head's end.
#include "tests/kernels/late_attention.h"

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/support/late_file.h"
#include "tests/support/on_device.h"

namespace kiln::test {
namespace {

void check_late(Device& device, AttentionCase& one, int64_t ctas) {
  LateAttention late(one);
  const Function kernel =
      compile(device, kiln::testing::late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile"));
  kiln::testing::run_on(device, *kernel.executable(),
                        bind(kernel.signature(), late.arguments(ctas)));
  INFO(one.describe() << " ctas " << ctas << " on " << device.name());
  late.check();
}

std::vector<int64_t> lengths_on(std::string_view device) {
  if (device == "interpreter") return {300};
  if (!kiln::testing::uses_host_memory(kiln::device(device)))
    return {1, 77, 128, 256, 300, 1000, 2048, 2500};
  return {1, 128, 300, 641};
}

}  // namespace

TEST_CASE("hand-written block-sparse attention equals float64", "[late]") {
  std::mt19937_64 random(run_seed());
  const auto up_to = [&](uint64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (std::string_view name : devices()) {
    const bool slow = name == "interpreter";
    for (const int64_t seq : lengths_on(name))
      for (const double density : {0.0, 0.3, 1.0}) {
        if (slow && density == 1.0) continue;
        const int64_t heads = slow ? 1 : up_to(3);
        AttentionCase one(late_config(), {slow ? 1 : up_to(2), heads, heads, seq, seq});
        one.randomize(random(), density);
        // Fewer blocks than tiles, so that streams run across tiles; and as many as a GPU has.
        check_late(device(name), one, density == 1.0 ? 132 : up_to(3));
      }
  }
}

TEST_CASE("hand-written block-sparse attention is sound on an emulated sm_90a", "[late]") {
  if (std::getenv("KILN_TEST_DEVICE")) return;
  std::mt19937_64 random(run_seed() + 2);
  for (const char* mode : {"issue", "latest", "random"}) {
    setenv("KILN_EMULATOR_ASYNC", mode, 1);
    AttentionCase one(late_config(), {1, 2, 2, 300, 300});
    one.randomize(random(), 0.5);
    check_late(device("emulator:sm_90a"), one, 2);
  }
  unsetenv("KILN_EMULATOR_ASYNC");
}

TEST_CASE("hand-written attention whose maximum keeps growing equals float64", "[late]") {
  Device& where = fast_device();
  std::mt19937_64 random(run_seed() + 1);
  for (const double factor : {12.0, 30.0}) {
    AttentionCase one(late_config(), {1, 2, 2, 640, 640});
    one.randomize(random(), 0.6);
    for (int64_t i = 0; i < one.q.size(); ++i) one.q.set(i, one.q.get(i) * factor);
    check_late(where, one, 2);
  }
}

}  // namespace kiln::test
