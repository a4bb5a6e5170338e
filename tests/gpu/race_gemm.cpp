// c = a · b^T in f16 by the kernel in tests/files/late, beside cuBLAS, in turn.
#include <dlfcn.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "ir/error.h"
#include "kernels/kernels.h"
#include "runtime/cuda_error.h"
#include "runtime/runtime.h"
#include "tests/gpu/race.h"
#include "tests/support/late_file.h"

namespace kiln {
namespace {

constexpr int kMultiprocessors = 132;

// The few entry points that are needed (cuBLAS library documentation, "cublasGemmEx").
class Cublas {
 public:
  explicit Cublas(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library) throw DeviceError(fmt::format("cannot open '{}': {}", path, dlerror()));
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
    gemm_ = reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"));
    if (!create || !gemm_ || create(&handle_) != 0) throw DeviceError("cuBLAS does not start");
  }
  // Row-major c[m, n] = a[m, k] · b[n, k]^T: by columns, c^T = b · a^T.
  void multiply(int m, int n, int k, const void* a, const void* b, void* c) const {
    constexpr int kTransposed = 1, kPlain = 0, kHalf = 2, kCompute32F = 68, kDefault = -1;
    const float one = 1, zero = 0;
    const int status = gemm_(handle_, kTransposed, kPlain, n, m, k, &one, b, kHalf, k, a, kHalf, k,
                             &zero, c, kHalf, n, kCompute32F, kDefault);
    if (status != 0) throw DeviceError(fmt::format("cublasGemmEx: status {}", status));
  }

 private:
  using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                       const void*, int, int, const void*, void*, int, int, int, int);
  void* handle_ = nullptr;
  Gemm gemm_ = nullptr;
};

Array normal(const Shape& shape, uint64_t seed) {
  Array array(F16, shape);
  fill_normal(array, seed);
  return array;
}

bool check(const Array& a, const Array& b, const Array& c) {
  const int64_t m = c.shape()[0], n = c.shape()[1], k = a.shape()[1];
  std::mt19937_64 random(5);
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(m)),
               column = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    double sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += a.get(row * k + j) * b.get(column * k + j);
    const double error = std::abs(c.get(row * n + column) - sum) / (1 + std::abs(sum));
    worst = error <= worst ? worst : error;
  }
  fmt::print("  check of 2000 elements: {} (worst {:.2e})\n", worst < 2e-3 ? "ok" : "FAIL", worst);
  return worst < 2e-3;
}

bool run(CudaDevice& gpu, const Cublas& cublas, int64_t m, int64_t n, int64_t k) {
  const Array a = normal({m, k}, 1), b = normal({n, k}, 2);
  Array c(F16, {m, n});
  Memory ga = a.view(), gb = b.view(), gc = c.view(), gd = c.view();
  for (Memory* memory : {&ga, &gb, &gc, &gd}) {
    const size_t bytes = 2 * static_cast<size_t>(count(memory->shape));
    const void* host = memory->data;
    memory->data = gpu.allocate(bytes);
    gpu.upload(memory->data, host, bytes);
  }
  const auto kernel =
      cuda_executable(compile(gpu, kiln::testing::late_kernel(KILN_TESTS_DIR, "gemm.tile")));
  Arguments named;
  named.tensor("a", ga).tensor("b", gb).tensor("c", gc).dim("ctas", kMultiprocessors);
  const Bindings bindings = bind(kernel->plan().signature(), named);
  const CallPlan::Positional call = kernel->plan().positional(bindings);
  cuda::Current current(gpu.context());
  const std::vector<RaceResult> results =
      race(gpu, {{"kiln", [&] { kernel->launch(call.view(), nullptr); }},
                 {"cuBLAS", [&] {
                    cublas.multiply(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
                                    ga.data, gb.data, gd.data);
                  }}});
  gpu.download(c.data(), gc.data, c.bytes());
  fmt::print("c[{}, {}] = a[{}, {}] b[{}, {}]^T, f16\n", m, n, m, k, n, k);
  for (const RaceResult& result : results)
    fmt::print("  {:10} {:9.3f} ms {:7.1f} TFLOP/s  speed of the last, by rounds: x{:.3f}\n",
               result.name, result.median_ms(),
               2e-9 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) /
                   result.median_ms(),
               1 / time_ratio(result, results.back()));
  for (Memory* memory : {&ga, &gb, &gc, &gd}) gpu.release(memory->data);
  return check(a, b, c);
}

}  // namespace

int race_gemm(const std::string& path) {
  CudaDevice& gpu = cuda_device(0, "sm_90a");
  cuda::Current current(gpu.context());
  const Cublas cublas(path);
  bool good = true;
  for (const int64_t edge : {4096, 8192}) good = run(gpu, cublas, edge, edge, edge) && good;
  good = run(gpu, cublas, 1000, 2000, 1544) && good;
  return good ? 0 : 1;
}

}  // namespace kiln
