// An owned, contiguous array in host memory; for callers, tests and tools.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ir/memory.h"

namespace kiln {

// Storage is 64-byte aligned and starts as zeros. Copying copies the elements.
class Array {
 public:
  Array() = default;
  Array(DType dtype, Shape shape);
  Array(DType dtype, Shape shape, std::span<const double> values);  // rounded to dtype
  Array(const Array& other);
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array other) noexcept {
    swap(other);
    return *this;
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return size_; }  // elements
  size_t bytes() const { return static_cast<size_t>(size_) * size_of(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  template <class T>
  std::span<T> span() {  // T as wide as the dtype
    return {static_cast<T*>(data()), bytes() / sizeof(T)};
  }
  template <class T>
  std::span<const T> span() const {
    return {static_cast<const T*>(data()), bytes() / sizeof(T)};
  }

  // The whole array, for a launch. Const: the kernel must not write it.
  Memory view() { return Memory::contiguous(data(), dtype_, shape_); }
  Memory view() const { return const_cast<Array*>(this)->view(); }

  double get(int64_t index) const;        // in row-major order; UserError outside
  void set(int64_t index, double value);  // converted as the op `cast` does
  std::vector<double> values() const;

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  void* element(int64_t index) const;
  void swap(Array& other) noexcept;

  DType dtype_ = F32;
  Shape shape_ = {0};
  int64_t size_ = 0;
  std::unique_ptr<void, Free> data_;
};

// Bytes of host memory, 64-byte aligned, never null. DeviceError naming the size if there is none.
void* allocate_aligned(size_t bytes);
void release_aligned(void* memory);

// Product of extents and element size. UserError if an extent is negative or the product overflows.
size_t bytes_of(DType dtype, const Shape& shape);

}  // namespace kiln
