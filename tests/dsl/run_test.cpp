// Traced programs, run by the reference interpreter and compared with plain C++.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "dsl/dsl.h"
#include "ir/interp.h"
#include "tests/dsl/programs.h"

namespace kiln {
namespace {

// A contiguous tensor of T.
template <class T>
struct Buffer {
  Shape shape;
  std::vector<T> data;
  Buffer(Shape extents, T value)
      : shape(std::move(extents)), data(static_cast<size_t>(count(shape)), value) {}
  Memory memory(DType dtype) { return Memory::contiguous(data.data(), dtype, shape); }
};
using Floats = Buffer<float>;

// Runs a kernel whose only tensor is the output "out" of 32-bit integers.
std::vector<int32_t> run_ints(int64_t size, const std::function<void(Tensor&)>& body) {
  Buffer<int32_t> out({size}, -1);
  Kernel kernel = trace("ints", [&] {
    Tensor tensor = inout("out", I32, {size});
    launch({1});
    body(tensor);
  });
  Bindings bindings;
  bindings.tensors["out"] = out.memory(I32);
  interpret(kernel, bindings);
  return out.data;
}

TEST_CASE("integer arithmetic rounds down", "[run]") {
  auto got = run_ints(8, [](Tensor& out) {
    Var a = -7;
    out(0) = a / 2;
    out(1) = a % 2;
    out(2) = ceildiv(a, 2);
    out(3) = 7 - a;
    out(4) = (a & 15) | 64;
    out(5) = a >> 1;
    out(6) = cast(floor(cast(a, F32) / 2), I32);
    out(7) = select(a < 0 && !(a == 3), abs(a), 0) ^ 1;
  });
  CHECK(got == std::vector<int32_t>{-4, 1, -3, 14, 73, -4, -4, 6});
}

TEST_CASE("every n-th row, between two ends", "[run]") {
  constexpr int64_t kHeads = 2, kRows = 23, kColumns = 3, kTile = 5;
  Floats x({kHeads, kRows, kColumns}, 0), y({kHeads, kTile, kColumns}, 0);
  for (size_t i = 0; i < x.data.size(); ++i) x.data[i] = static_cast<float>(i);
  for (int step : {1, 2, 3, 7, 40}) {
    const Kernel kernel = trace("some", [&] {
      Tensor in = input("x", F32, {kHeads, dim("rows"), kColumns});
      Tensor out = output("y", F32, {kHeads, kTile, kColumns});
      auto first = param("first", I32), end = param("end", I32), row = param("row", I32);
      auto [head, b, c] = launch({kHeads});
      Tile tile = alloc_shared({kTile, kColumns}, F32);
      copy(every(in, 1, step, first, end)(head, span(row, kTile), all), tile, {.pad = -1});
      copy(tile, out(head, all, all));
    });
    for (int first : {-1, 0, 4, 22, 30})
      for (int end : {-3, 0, 5, 22, 23, 100})
        for (int row : {-2, 0, 3}) {
          Bindings bindings;
          bindings.dims["rows"] = kRows;
          bindings.tensors["x"] = x.memory(F32);
          bindings.tensors["y"] = y.memory(F32);
          for (auto [name, value] : {std::pair("first", first), {"end", end}, {"row", row}})
            bindings.params[name] = Scalar::of_int(I32, value);
          interpret(kernel, bindings);
          INFO("step " << step << ", first " << first << ", end " << end << ", row " << row);
          size_t at = 0;
          for (int64_t head = 0; head < kHeads; ++head)
            for (int i = 0; i < kTile; ++i)
              for (int j = 0; j < kColumns; ++j) {
                const int64_t from = first + int64_t{row + i} * step;
                const bool there = first >= 0 && row + i >= 0 && from < end && from < kRows;
                const int64_t place = (head * kRows + from) * kColumns + j;
                CHECK(y.data[at++] == (there ? static_cast<float>(place) : -1.f));
              }
        }
  }
}

TEST_CASE("loops, branches and variables", "[run]") {
  auto got = run_ints(6, [](Tensor& out) {
    Var sum = 0;
    for (auto i : serial(1, 10, 3)) sum += i;
    out(0) = sum;
    Var copied = sum;
    for (auto i : unroll(4)) sum = sum * 2 + i;
    out(1) = sum;
    out(2) = copied;
    for (auto i : pipelined(5))
      when(
          i % 2 == 0, [&] { copied += 10; }, [&] { copied -= 1; });
    out(3) = copied;
    auto before = copied;
    Expr value = copied;
    copied = 0;
    out(4) = before;
    out(5) = value;
  });
  CHECK(got == std::vector<int32_t>{12, 203, 12, 40, 40, 40});
}

TEST_CASE("selected: lists and masks", "[run]") {
  Kernel kernel = trace("lists", [] {
    Dim n = dim("n");
    Tensor list = input("list", I32, {n}), mask = input("mask", Bool, {2, n});
    Tensor out = inout("out", I32, {3});
    launch({1});
    for (auto i : selected(list(all), {.limit = 6, .count = 5})) out(0) += i;
    for (auto i : selected(mask(1, all), {.limit = 3})) out(1) = out(1) * 10 + i + 1;
    for (auto i : selected(mask(0, all), {.ordered = true})) out(2) = out(2) * 10 + i;
  });
  Buffer<int32_t> list({6}, 0), out({3}, 0);
  list.data = {5, -1, 2, 5, 9, 4};
  Buffer<uint8_t> mask({2, 6}, 0);
  mask.data = {0, 1, 0, 1, 1, 0, 0, 0, 1, 0, 1, 1};
  Bindings bindings;
  bindings.dims["n"] = 6;
  bindings.tensors["list"] = list.memory(I32);
  bindings.tensors["mask"] = mask.memory(Bool);
  bindings.tensors["out"] = out.memory(I32);
  interpret(kernel, bindings);
  CHECK(out.data == std::vector<int32_t>{7, 3, 134});
}

TEST_CASE("a workspace carries from launch to launch", "[run]") {
  Kernel kernel = trace("split", [] {
    Dim n = dim("n");
    Tensor x = input("x", F32, {n}), y = output("y", F32, {n});
    Tensor w = workspace("w", F32, {n});
    auto [i, j, k] = launch({n});
    w(i) = x(i) * 2;
    auto [u, v, t] = launch({ceildiv(n, 2)});
    for (auto e : serial(u * 2, min(u * 2 + 2, n))) y(e) = w(n - 1 - e);
  });
  Floats x({5}, 0), y({5}, 0);
  x.data = {1, 2, 3, 4, 5};
  Bindings bindings;
  bindings.dims["n"] = 5;
  bindings.tensors["x"] = x.memory(F32);
  bindings.tensors["y"] = y.memory(F32);
  interpret(kernel, bindings);
  CHECK(y.data == std::vector<float>{10, 8, 6, 4, 2});
}

TEST_CASE("row softmax", "[run]") {
  const int rows = 11, cols = 13;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  Floats x({rows, cols}, 0), y({rows, cols}, 0);
  for (float& value : x.data) value = 3 * normal(random);
  Bindings bindings;
  bindings.dims = {{"rows", rows}, {"cols", cols}};
  bindings.tensors["x"] = x.memory(F32);
  bindings.tensors["y"] = y.memory(F32);
  interpret(row_softmax(4, 16), bindings);
  for (int row = 0; row < rows; ++row) {
    double sum = 0;
    for (int col = 0; col < cols; ++col) sum += std::exp(double{x.data[row * cols + col]});
    for (int col = 0; col < cols; ++col)
      CHECK(y.data[row * cols + col] ==
            Approx(std::exp(double{x.data[row * cols + col]}) / sum).epsilon(1e-5));
  }
}

struct Attention {
  int heads = 2, seq = 40, dim = 16, dim_v = 8, block = 16;
  bool causal = false;
  std::vector<float> q, k, v;
  std::vector<uint8_t> mask;

  int blocks() const { return ceildiv(seq, block); }
  bool sees(int head, int row, int col) const {
    int at = (head * blocks() + row / block) * blocks() + col / block;
    return mask[at] && (!causal || col <= row);
  }
};

// The float64 output row and lse of one query.
std::pair<std::vector<double>, double> reference(const Attention& a, int head, int row,
                                                 double scale) {
  std::vector<double> out(a.dim_v);
  double sum = 0;
  for (int col = 0; col < a.seq; ++col) {
    if (!a.sees(head, row, col)) continue;
    double score = 0;
    for (int d = 0; d < a.dim; ++d)
      score +=
          double{a.q[(head * a.seq + row) * a.dim + d]} * a.k[(head * a.seq + col) * a.dim + d];
    double weight = std::exp(scale * score);
    sum += weight;
    for (int d = 0; d < a.dim_v; ++d) out[d] += weight * a.v[(head * a.seq + col) * a.dim_v + d];
  }
  for (double& value : out) value = sum > 0 ? value / sum : 0;
  return {out, std::log(sum)};
}

TEST_CASE("block-sparse attention", "[run]") {
  const float scale = 0.25f;
  for (bool causal : {false, true}) {
    Attention a{.causal = causal};
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    for (auto [data, dim] : {std::pair(&a.q, a.dim), {&a.k, a.dim}, {&a.v, a.dim_v}}) {
      data->resize(a.heads * a.seq * dim);
      for (float& value : *data) value = normal(random);
    }
    // Head 1 has an empty row of blocks; block (0, 2) is above the diagonal.
    a.mask = {1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1};

    Shape qk = {1, a.heads, a.seq, a.dim}, vo = {1, a.heads, a.seq, a.dim_v};
    Floats o(vo, NAN), lse({1, a.heads, a.seq}, NAN);
    Bindings bindings;
    bindings.dims = {{"batch", 1}, {"heads", a.heads}, {"seq", a.seq}, {"blocks", a.blocks()}};
    bindings.params["scale"] = Scalar::of_float(F32, scale);
    bindings.tensors["q"] = Memory::contiguous(a.q.data(), F32, qk);
    bindings.tensors["k"] = Memory::contiguous(a.k.data(), F32, qk);
    bindings.tensors["v"] = Memory::contiguous(a.v.data(), F32, vo);
    bindings.tensors["block_mask"] =
        Memory::contiguous(a.mask.data(), Bool, {1, a.heads, a.blocks(), a.blocks()});
    bindings.tensors["o"] = o.memory(F32);
    bindings.tensors["lse"] = lse.memory(F32);
    interpret(block_sparse_forward({.dim_v = a.dim_v, .causal = causal}), bindings);

    for (int head = 0; head < a.heads; ++head)
      for (int row = 0; row < a.seq; ++row) {
        auto [expected, expected_lse] = reference(a, head, row, scale);
        float got_lse = lse.data[head * a.seq + row];
        if (std::isinf(expected_lse))
          CHECK(got_lse == -INFINITY);
        else
          CHECK(got_lse == Approx(expected_lse).epsilon(1e-5).margin(1e-5));
        for (int d = 0; d < a.dim_v; ++d)
          CHECK(o.data[(head * a.seq + row) * a.dim_v + d] ==
                Approx(expected[d]).epsilon(1e-4).margin(1e-5));
      }
  }
}

}  // namespace
}  // namespace kiln
