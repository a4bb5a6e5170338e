// The hand-written attention again and again: the order in which blocks take tiles, and roles meet,
// differs each time; the result, once compared with float64, never may.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "runtime/cuda_device.h"
#include "tests/kernels/late_attention.h"
#include "tests/support/late_file.h"
#include "tests/support/on_device.h"

namespace kiln::test {
namespace {

// KILN_TEST_REPEATS: how often in all.
int64_t repeats() {
  const char* given = std::getenv("KILN_TEST_REPEATS");
  return given ? std::strtoll(given, nullptr, 10) : 2000;
}

}  // namespace

TEST_CASE("hand-written attention gives the same bits every time", "[late]") {
  Device& where = fast_device();
  if (kiln::testing::uses_host_memory(where)) return;  // its threads have no such freedom
  const Function kernel =
      compile(where, kiln::testing::late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile"));
  const CudaExecutable& code = *cuda_executable(kernel);
  std::mt19937_64 random(run_seed() + 2);
  constexpr int kProblems = 10;
  int64_t different = 0, runs = 0;
  for (int i = 0; i < kProblems; ++i) {
    AttentionCase one(late_config(), {1, 1 + i % 3, 1 + i % 3, 100 + 97 * i, 100 + 97 * i});
    one.randomize(random(), 0.1 * (i + 1));
    LateAttention late(one);
    const Bindings bindings = bind(kernel.signature(), late.arguments(i % 2 ? 132 : 3 + i));
    kiln::testing::OnDevice there(where, bindings);
    code.run(there.bindings());
    there.fetch();
    late.check();

    const Memory& output = there.bindings().tensors.at("o");
    const auto bytes =
        static_cast<size_t>(output.shape[1] * output.strides[1]) * 2 -
        static_cast<size_t>(output.strides[1] - output.shape[2] * output.strides[2]) * 2;
    std::vector<std::byte> first(bytes), again(bytes);
    where.download(first.data(), output.data, bytes);
    for (int64_t run = 0; run < repeats() / kProblems; ++run, ++runs) {
      code.run(there.bindings());
      where.download(again.data(), output.data, bytes);
      different += std::memcmp(first.data(), again.data(), bytes) != 0;
    }
  }
  WARN(runs << " runs, " << different << " different");
  CHECK(different == 0);
}

}  // namespace kiln::test
