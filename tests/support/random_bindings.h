// Random inputs for any kernel's interface, and comparison of what it made of them.
//
// Every tensor lies in a buffer of its own with a guard zone on both sides and gaps between rows,
// all filled with a pattern, so that reads and writes outside are seen. Outputs start with the
// pattern too: an element that a kernel forgets differs from one that it writes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <random>

#include "ir/error.h"
#include "ir/interp.h"

namespace kiln::testing {

struct RandomOptions {
  uint64_t seed = 1;
  // Small integers: sums and products are exact, so results are equal bit for bit in any order.
  // Else floats are real numbers in [−2, 2].
  bool integers = true;
  int64_t low = -4, high = 4;  // of integers; unsigned ones start at 0
  double specials = 0;         // share of float inputs that are ±0, ±infinity or NaN
  bool any_bits = false;       // every other element is any value of its dtype
  bool padded = true;          // gaps between rows
  bool odd_strides = false;    // inputs may have broadcast (0) and negative strides
};

// Copies are independent: bind the same inputs twice by copying before the first run.
class RandomBindings {
 public:
  // Dims and params that are not given are chosen: dims from 1 to 40, params like elements.
  RandomBindings(const Kernel& kernel, std::map<std::string, int64_t> dims = {},
                 std::map<std::string, Scalar> params = {}, const RandomOptions& options = {})
      : options_(options),
        random_(options.seed),
        dims_(std::move(dims)),
        params_(std::move(params)) {
    const std::vector<OpId>& ops = kernel.region(kernel.body).ops;
    for (OpId id : ops) choose_scalar(kernel, kernel.op(id));
    TopLevel top(kernel, dims_, params_);
    for (OpId id : ops) {
      const Op& op = kernel.op(id);
      if (op.code == OpCode::Tensor && op.word("role") != "workspace")
        add_tensor(op.word("name"), op.word("role"), kernel.type(op.result).dtype, top.shape(op));
    }
  }

  // Refers to this object's storage.
  Bindings bindings() {
    Bindings result;
    for (auto& [name, tensor] : tensors_) result.tensors[name] = tensor.memory();
    result.dims = dims_;
    result.params = params_;
    return result;
  }

  // Sets every element of a tensor: value(index), converted as `cast` does.
  void fill(const std::string& name, const std::function<double(const Shape&)>& value) {
    Tensor& tensor = tensors_.at(name);
    tensor.for_each([&](const Shape& index, std::byte* address) {
      store_element(convert(Scalar::of_float(F64, value(index)), tensor.dtype), address);
    });
    tensor.original = tensor.bytes;
  }

  Scalar at(const std::string& name, const Shape& index) {
    Tensor& tensor = tensors_.at(name);
    return load_element(tensor.dtype, tensor.address(index));
  }

  // What a run did that it must not: a changed input, a write outside a tensor. Empty if nothing.
  std::string damage() {
    for (auto& entry : tensors_) {
      const std::string& name = entry.first;
      Tensor& tensor = entry.second;
      std::vector<std::byte> rest = tensor.bytes;  // as it would be without the legal writes
      if (tensor.role != "input")
        tensor.for_each([&](const Shape&, std::byte* address) {
          const auto at = static_cast<size_t>(address - tensor.bytes.data());
          std::copy_n(&tensor.original[at], size_of(tensor.dtype), &rest[at]);
        });
      const auto changed = std::mismatch(rest.begin(), rest.end(), tensor.original.begin()).first;
      if (changed != rest.end())
        return fmt::format("{} '{}': byte {} of {} (guards included) was written", tensor.role,
                           name, changed - rest.begin(), rest.size());
    }
    return "";
  }

  // The first difference of the outputs; empty if none. Without a tolerance bit for bit (one NaN
  // equals another); else |a − b| ≤ tolerance · max(1, |b|).
  std::string difference(RandomBindings& other, std::optional<double> tolerance = {}) {
    std::string found;
    for (auto& entry : tensors_) {
      const std::string& name = entry.first;
      Tensor& tensor = entry.second;
      if (tensor.role == "input" || !found.empty()) continue;
      tensor.for_each([&](const Shape& index, std::byte* address) {
        Scalar a = load_element(tensor.dtype, address), b = other.at(name, index);
        if (found.empty() && !same(a, b, tolerance))
          found = fmt::format("{}{}: {} and {} (seed {})", name, str(index), text(a), text(b),
                              options_.seed);
      });
    }
    return found;
  }

  const std::map<std::string, int64_t>& dims() const { return dims_; }
  const std::map<std::string, Scalar>& params() const { return params_; }

 private:
  static constexpr size_t kGuard = 256;  // bytes on each side

  struct Tensor {
    std::string role;
    DType dtype;
    Shape shape, strides;
    size_t first = 0;  // byte offset of element 0
    std::vector<std::byte> bytes, original;

    Memory memory() { return {bytes.data() + first, dtype, shape, strides}; }
    std::byte* address(const Shape& index) {
      int64_t offset = 0;
      for (size_t axis = 0; axis < shape.size(); ++axis) offset += index[axis] * strides[axis];
      return bytes.data() + static_cast<int64_t>(first) +
             offset * static_cast<int64_t>(size_of(dtype));
    }
    template <class Visit>
    void for_each(Visit&& visit) {
      Shape index(shape.size(), 0);
      for (int64_t left = count(shape); left > 0; --left) {
        visit(std::as_const(index), address(index));
        for (size_t axis = shape.size(); axis-- > 0;) {
          if (++index[axis] < shape[axis]) break;
          index[axis] = 0;
        }
      }
    }
  };

  static bool same(const Scalar& a, const Scalar& b, std::optional<double> tolerance) {
    if (!is_float(a.dtype)) return a.i == b.i;
    if (std::isnan(a.f) || std::isnan(b.f)) return std::isnan(a.f) && std::isnan(b.f);
    if (!tolerance) return a.i == b.i;
    if (std::isinf(a.f) || std::isinf(b.f)) return a.f == b.f;
    return std::fabs(a.f - b.f) <= *tolerance * std::max(1.0, std::fabs(b.f));
  }
  static std::string text(const Scalar& value) {
    return is_float(value.dtype) ? fmt::format("{}", value.f) : fmt::format("{}", value.i);
  }

  int64_t uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  Scalar element(DType dtype) {
    if (dtype == Bool) return Scalar::of_int(Bool, uniform(0, 1));
    if (options_.any_bits && uniform(0, 1)) {
      const uint64_t bits = random_();
      return load_element(dtype, &bits);
    }
    if (is_float(dtype)) {
      constexpr double kInfinity = std::numeric_limits<double>::infinity();
      constexpr double kSpecial[] = {0.0, -0.0, kInfinity, -kInfinity,
                                     std::numeric_limits<double>::quiet_NaN()};
      if (options_.specials > 0 && std::bernoulli_distribution(options_.specials)(random_))
        return Scalar::of_float(dtype, kSpecial[uniform(0, 4)]);
      if (!options_.integers)
        return Scalar::of_float(dtype, std::uniform_real_distribution<double>(-2, 2)(random_));
      return Scalar::of_float(dtype, static_cast<double>(uniform(options_.low, options_.high)));
    }
    int64_t low = is_unsigned_int(dtype) ? std::max<int64_t>(0, options_.low) : options_.low;
    return Scalar::of_int(dtype, uniform(low, std::max(low, options_.high)));
  }

  void choose_scalar(const Kernel& kernel, const Op& op) {
    if (op.code == OpCode::Dim && !dims_.contains(op.word("name")))
      dims_[op.word("name")] = uniform(1, 40);
    if (op.code != OpCode::Param) return;
    DType dtype = kernel.type(op.result).dtype;
    auto [it, is_new] = params_.try_emplace(op.word("name"));
    // A number given without its type takes the param's.
    it->second = is_new ? element(dtype) : convert(it->second, dtype);
  }

  void add_tensor(const std::string& name, const std::string& role, DType dtype, Shape shape) {
    Tensor tensor{role, dtype, shape, Shape(shape.size(), 1), 0, {}, {}};
    int64_t lowest = 0, stride = 1, end = 1;  // elements spanned: lowest … end − 1
    for (size_t axis = shape.size(); axis-- > 0;) {
      tensor.strides[axis] = stride;
      const bool odd = options_.odd_strides && role == "input" && axis + 1 < shape.size();
      const int64_t kind = odd ? uniform(0, 3) : 3;
      if (kind == 0) tensor.strides[axis] = 0;
      if (kind == 1) tensor.strides[axis] = -stride;
      const int64_t reach = tensor.strides[axis] * std::max<int64_t>(0, shape[axis] - 1);
      (reach < 0 ? lowest : end) += reach;
      stride = stride * std::max<int64_t>(1, shape[axis]) + (options_.padded ? uniform(0, 5) : 0);
    }
    const size_t width = size_of(dtype);
    tensor.bytes.assign(2 * kGuard + static_cast<size_t>(end - lowest) * width, std::byte{0xCD});
    tensor.first = kGuard + static_cast<size_t>(-lowest) * width;
    if (role != "output")
      tensor.for_each([&](const Shape&, std::byte* at) { store_element(element(dtype), at); });
    tensor.original = tensor.bytes;
    tensors_.emplace(name, std::move(tensor));
  }

  RandomOptions options_;
  std::mt19937_64 random_;
  std::map<std::string, int64_t> dims_;
  std::map<std::string, Scalar> params_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace kiln::testing
