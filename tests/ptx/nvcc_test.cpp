// What nvcc makes of ordinary CUDA programs (programs.cu) runs right and without findings. Where
// there is no nvcc these tests say so and do nothing.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>

#include "ir/dtype.h"
#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

std::string compile_programs() {
  if (std::system("command -v nvcc > /dev/null 2>&1") != 0) return "";
  auto file = std::filesystem::temp_directory_path() /
              ("kiln-programs-" + std::to_string(std::random_device{}()) + ".ptx");
  std::string command = std::string("nvcc -ptx -arch=sm_80 -lineinfo ") + KILN_TESTS_DIR +
                        "/ptx/programs.cu -o " + file.string();
  if (std::system(command.c_str()) != 0) return "";
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  std::filesystem::remove(file);
  return text.str();
}

// Null where there is no nvcc.
const Program* programs() {
  static const std::string text = compile_programs();
  if (text.empty()) {
    WARN("no nvcc that compiles: not tested");
    return nullptr;
  }
  static const Program program = parse(text);
  return &program;
}

template <class T>
void add(Memory& memory, std::vector<T>& array, const char* name) {
  memory.add(array.data(), array.size() * sizeof(T), name);
}

std::string run(const char* name, Dim3 grid, Dim3 block, const Parameters& parameters,
                const Memory& memory) {
  std::string all;
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest}) {
    Options options;
    options.async = mode;
    all += findings(launch(*programs(), name, grid, block, 0, parameters.bytes(), memory, options));
  }
  return all;
}

TEST_CASE("nvcc: reduction") {
  if (!programs()) return;
  std::vector<float> x(10000), out(1);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17);
  Memory memory;
  add(memory, x, "x");
  add(memory, out, "out");
  Parameters p;
  p.add(x.data()).add(out.data()).add(10000);
  CHECK(run("reduction", {7}, {256}, p, memory) == "");
  CHECK(out[0] == 2 * std::accumulate(x.begin(), x.end(), 0.0f));  // both modes added
}

TEST_CASE("nvcc: transpose") {
  if (!programs()) return;
  std::vector<int> x(50 * 70), y(50 * 70, -1);
  std::iota(x.begin(), x.end(), 0);
  Memory memory;
  add(memory, x, "x");
  add(memory, y, "y");
  Parameters p;
  p.add(x.data()).add(y.data()).add(50).add(70);
  CHECK(run("transpose", {3, 2}, {32, 8}, p, memory) == "");
  for (size_t r = 0; r < 50; ++r)
    for (size_t c = 0; c < 70; ++c) REQUIRE(y[c * 50 + r] == x[r * 70 + c]);
}

TEST_CASE("nvcc: histogram") {
  if (!programs()) return;
  std::vector<unsigned char> x(5000);
  std::vector<unsigned> bins(256), expected(256);
  std::mt19937 random(3);
  for (auto& value : x) expected[value = static_cast<unsigned char>(random() % 200)] += 2;
  Memory memory;
  add(memory, x, "x");
  add(memory, bins, "bins");
  Parameters p;
  p.add(x.data()).add(bins.data()).add(5000);
  CHECK(run("histogram", {3}, {256}, p, memory) == "");
  CHECK(bins == expected);
}

TEST_CASE("nvcc: scan") {
  if (!programs()) return;
  std::vector<long long> x(256), y(256), expected(256);
  for (size_t i = 0; i < 256; ++i) x[i] = static_cast<long long>(i * i) << 30;
  std::partial_sum(x.begin(), x.end(), expected.begin());
  Memory memory;
  add(memory, x, "x");
  add(memory, y, "y");
  Parameters p;
  p.add(x.data()).add(y.data());
  CHECK(run("scan", {1}, {256}, p, memory) == "");
  CHECK(y == expected);
}

TEST_CASE("nvcc: wmma") {
  if (!programs()) return;
  std::vector<uint16_t> a(1024), b(1024);
  std::vector<float> c(1024);
  auto value = [](size_t i) { return static_cast<double>(i * 7 % 13) - 6; };
  for (size_t i = 0; i < 1024; ++i) {
    a[i] = to_bits16(kiln::F16, value(i));
    b[i] = to_bits16(kiln::F16, value(i + 5));
  }
  Memory memory;
  add(memory, a, "a");
  add(memory, b, "b");
  add(memory, c, "c");
  Parameters p;
  p.add(a.data()).add(b.data()).add(c.data());
  CHECK(run("wmma_gemm", {1}, {128}, p, memory) == "");
  for (size_t row = 0; row < 32; ++row)
    for (size_t column = 0; column < 32; ++column) {
      double sum = 0.5;
      for (size_t k = 0; k < 32; ++k) sum += value(row * 32 + k) * value(column * 32 + k + 5);
      REQUIRE(c[row * 32 + column] == 2 * sum);
    }
}

TEST_CASE("nvcc: cp.async pipeline") {
  if (!programs()) return;
  for (int steps : {1, 2, 3, 9}) {
    std::vector<float> x(256 * static_cast<size_t>(steps)), y(x.size());
    std::iota(x.begin(), x.end(), 0.0f);
    Memory memory;
    add(memory, x, "x");
    add(memory, y, "y");
    Parameters p;
    p.add(x.data()).add(y.data()).add(steps);
    CHECK(run("pipeline", {1}, {64}, p, memory) == "");
    for (size_t i = 0; i < x.size(); ++i) {
      size_t step = i / 256, thread = i % 256 / 4, part = i % 4;
      float expected = x[step * 256 + (63 - thread) * 4 + part];
      if (part == 0) expected += static_cast<float>(step);
      REQUIRE(y[i] == expected);
    }
  }
}

TEST_CASE("nvcc: warp functions") {
  if (!programs()) return;
  std::vector<unsigned> x(32), y(32);
  for (unsigned i = 0; i < 32; ++i) x[i] = i * i % 67;
  Memory memory;
  add(memory, x, "x");
  add(memory, y, "y");
  Parameters p;
  p.add(x.data()).add(y.data());
  CHECK(run("warp_functions", {1}, {32}, p, memory) == "");
  unsigned odd = 0, most = *std::max_element(x.begin(), x.end());
  for (unsigned i = 0; i < 32; ++i) odd += x[i] & 1;
  for (unsigned i = 0; i < 32; ++i) {
    unsigned first = 0;
    while (x[first] % 4 != x[i] % 4) ++first;
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (x[i] >> bit & 1) << (31 - bit);
    unsigned zeros = x[i] == 0 ? 32 : static_cast<unsigned>(__builtin_clz(x[i]));
    unsigned up = i % 8 == 0 ? x[i] : x[i - 1];
    CHECK(y[i] == (odd * 31 + first + 1) * 31 + most + up + 11 + zeros + reversed % 5);
  }
}

TEST_CASE("nvcc: math") {
  if (!programs()) return;
  int n = 1000;
  std::vector<float> x(1000), y(1000);
  std::vector<double> u(1000), v(1000);
  for (size_t i = 0; i < 1000; ++i) {
    x[i] = static_cast<float>(i * 37 % 1000) * 0.01f - 5;
    u[i] = static_cast<double>(i * 53 % 1000) * 0.01 - 5;
  }
  Memory memory;
  add(memory, x, "x");
  add(memory, y, "y");
  add(memory, u, "u");
  add(memory, v, "v");
  Parameters p;
  p.add(x.data()).add(y.data()).add(u.data()).add(v.data()).add(n);
  CHECK(run("math", {8}, {128}, p, memory) == "");
  for (size_t i = 0; i < 1000; ++i) {
    double t = x[i], w = u[i], a = std::fabs(t);
    double single = std::exp(t) + std::log(a + 1) * std::sin(t) + std::cos(x[i] * 1000) +
                    std::pow(a, 1.7f) + std::tanh(t) + t / 3.7f + std::sqrt(a) +
                    from_bits16(kiln::F16, to_bits16(kiln::F16, t));
    CHECK(y[i] == Approx(single).epsilon(1e-6).margin(1e-5));
    double twice = std::exp(w) + std::log(std::fabs(w) + 1) / 3 + std::sqrt(std::fabs(w)) +
                   static_cast<double>(static_cast<long long>(w * 1e6) % 1000);
    CHECK(v[i] == Approx(twice).epsilon(1e-14));
  }
}

TEST_CASE("nvcc: the last block to arrive sums up") {
  if (!programs()) return;
  std::vector<unsigned> partial(20), total(1);
  Memory memory;
  add(memory, partial, "partial");
  add(memory, total, "total");
  Parameters p;
  p.add(partial.data()).add(total.data());
  CHECK(run("last_block", {20}, {64}, p, memory) == "");
  CHECK(total[0] == 19 * 20 * 39 / 6);
}

}  // namespace
}  // namespace kiln::ptx
