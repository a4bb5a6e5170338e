// A kernel of one's own: y = x / sqrt(mean of the row's squares), in a library that a program
// opens.
#include <kiln/kiln.h>

#include <cmath>
#include <random>
#include <string>

using namespace kiln;

static Kernel rms_norm(int64_t columns) {
  return trace("rms_norm", [&] {
    Dim rows = dim("rows");
    Tensor X = input("x", F32, {rows, columns}), Y = output("y", F32, {rows, columns});
    auto first = launch({ceildiv(rows, 16)})[0] * 16;
    Tile x = alloc_fragment({16, columns}, F32), squares = alloc_fragment({16, columns}, F32);
    Tile sum = alloc_fragment({16}, F32);
    copy(X(span(first, 16), all), x);
    for (auto [i, j] : parallel(16, columns)) squares(i, j) = x(i, j) * x(i, j);
    reduce_sum(squares, sum, 1);
    for (auto [i, j] : parallel(16, columns)) x(i, j) = x(i, j) / sqrt(sum(i) / columns + 1e-6);
    copy(x, Y(span(first, 16), all));
  });
}

// Empty, or what went wrong.
static std::string run_and_check(std::string_view device_name) {
  constexpr int64_t kRows = 1000, kColumns = 96;
  Array x(F32, {kRows, kColumns}), y(F32, {kRows, kColumns});
  std::mt19937 random(std::random_device{}());
  for (float& value : x.span<float>()) value = std::normal_distribution<float>()(random);
  run(device(device_name), rms_norm(kColumns), Arguments().tensor("x", x).tensor("y", y));

  const std::vector<double> in = x.values(), out = y.values();
  std::vector<double> expected;
  for (int64_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int64_t j = 0; j < kColumns; ++j) sum += in[row * kColumns + j] * in[row * kColumns + j];
    for (int64_t j = 0; j < kColumns; ++j)
      expected.push_back(in[row * kColumns + j] / std::sqrt(sum / kColumns + 1e-6));
  }
  const Comparison result = compare(out, expected, kColumns, accuracy_rule(F32));
  return result.ok() ? "" : result.str();
}

// An error of the library, by its class, in a program that is not the library.
static std::string mistake() {
  Array x(F16, {4, 96}), y(F32, {4, 96});
  try {
    run(device("host"), rms_norm(96), Arguments().tensor("x", x).tensor("y", y));
  } catch (const UserError& error) {
    return std::string(error.what()).find("x: expected f32") != std::string::npos ? ""
                                                                                  : error.what();
  }
  return "f16 was taken where f32 is expected";
}

// Null, or what went wrong.
extern "C" const char* own_kernel(const char* device_name) {
  static std::string problem;
  try {
    problem = run_and_check(device_name);
    if (problem.empty()) problem = mistake();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  return problem.empty() ? nullptr : problem.c_str();
}
