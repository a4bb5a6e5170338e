#include "runtime/array.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ir/error.h"

namespace kiln {

static constexpr size_t kAlignment = 64;
static constexpr size_t kAddressSpace = size_t{1} << 47;

void* allocate_aligned(size_t bytes) {
  void* memory = nullptr;
  if (bytes < kAddressSpace)  // allocators of sanitizers end the process for more
    memory = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (!memory)
    throw DeviceError(fmt::format("host: out of memory: cannot allocate {} bytes", bytes),
                      "use smaller tensors or a machine with more memory");
  return memory;
}

void release_aligned(void* memory) {
  std::free(memory);
}

size_t bytes_of(DType dtype, const Shape& shape) {
  int64_t bytes = static_cast<int64_t>(size_of(dtype));
  bool empty = false, overflow = false;
  for (int64_t extent : shape) {
    if (extent < 0) throw UserError(fmt::format("shape {}: negative extent", str(shape)));
    if (extent == 0)
      empty = true;
    else
      overflow = __builtin_mul_overflow(bytes, extent, &bytes) || overflow;
  }
  if (empty) return 0;
  if (overflow) throw UserError(fmt::format("shape {}: too many elements", str(shape)));
  return static_cast<size_t>(bytes);
}

void Array::Free::operator()(void* memory) const {
  release_aligned(memory);
}

Array::Array(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  size_t bytes = bytes_of(dtype_, shape_);
  size_ = static_cast<int64_t>(bytes / size_of(dtype_));
  data_.reset(allocate_aligned(bytes));
  std::memset(data_.get(), 0, bytes);
}

Array::Array(DType dtype, Shape shape, std::span<const double> values)
    : Array(dtype, std::move(shape)) {
  if (static_cast<int64_t>(values.size()) != size_)
    throw UserError(fmt::format("array {} {}: expected {} values, got {}", name(dtype_),
                                str(shape_), size_, values.size()));
  for (int64_t i = 0; i < size_; ++i) set(i, values[static_cast<size_t>(i)]);
}

Array::Array(const Array& other) : dtype_(other.dtype_), shape_(other.shape_), size_(other.size_) {
  if (!other.data_) return;
  data_.reset(allocate_aligned(bytes()));
  std::memcpy(data_.get(), other.data_.get(), bytes());
}

void Array::swap(Array& other) noexcept {
  std::swap(dtype_, other.dtype_);
  std::swap(shape_, other.shape_);
  std::swap(size_, other.size_);
  std::swap(data_, other.data_);
}

void* Array::element(int64_t index) const {
  if (index < 0 || index >= size_)
    throw UserError(fmt::format("array {} {}: no element {}", name(dtype_), str(shape_), index));
  return static_cast<char*>(data_.get()) + static_cast<size_t>(index) * size_of(dtype_);
}

double Array::get(int64_t index) const {
  return convert(load_element(dtype_, element(index)), F64).f;
}

void Array::set(int64_t index, double value) {
  store_element(convert(Scalar::of_float(F64, value), dtype_), element(index));
}

std::vector<double> Array::values() const {
  std::vector<double> all(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i) all[static_cast<size_t>(i)] = get(i);
  return all;
}

}  // namespace kiln
