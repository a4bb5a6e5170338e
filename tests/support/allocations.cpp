#include "tests/support/allocations.h"

#include <cstdlib>
#include <new>

static thread_local int64_t allocated = 0;

// Of the whole test program. All the forms that may be mixed, so that a sanitizer's own are not.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocated;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace kiln::test {

int64_t allocations() {
  return allocated;
}

}  // namespace kiln::test
