#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "runtime/overlap.h"
#include "tests/runtime/support.h"

using namespace kiln;

namespace {

constexpr intptr_t kBase = 1 << 20;

std::set<intptr_t> bytes_of(const Memory& memory) {
  std::set<intptr_t> bytes;
  std::vector<intptr_t> elements = {reinterpret_cast<intptr_t>(memory.data)};
  auto width = static_cast<intptr_t>(size_of(memory.dtype));
  for (size_t axis = 0; axis < memory.shape.size(); ++axis) {
    std::vector<intptr_t> next;
    for (intptr_t element : elements)
      for (int64_t i = 0; i < memory.shape[axis]; ++i)
        next.push_back(element + i * memory.strides[axis] * width);
    elements = std::move(next);
  }
  for (intptr_t element : elements)
    for (intptr_t byte = 0; byte < width; ++byte) bytes.insert(element + byte);
  return bytes;
}

bool share_a_byte(const Memory& a, const Memory& b) {
  std::set<intptr_t> of_a = bytes_of(a);
  for (intptr_t byte : bytes_of(b))
    if (of_a.count(byte)) return true;
  return false;
}

}  // namespace

TEST_CASE("tensors said to be apart are apart, and their extent is right") {
  std::mt19937 random(test::random_seed());
  auto up_to = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  auto any = [&] {
    Memory memory;
    memory.dtype = std::array{I8, F16, F32, I64}[static_cast<size_t>(up_to(0, 3))];
    memory.data = reinterpret_cast<void*>(kBase + up_to(0, 40) * 8);
    for (int rank = up_to(0, 3); rank > 0; --rank) {
      memory.shape.push_back(up_to(0, 4));
      memory.strides.push_back(up_to(-20, 20));
    }
    return memory;
  };
  int apart = 0;
  for (int i = 0; i < 20000; ++i) {
    Memory a = any(), b = any();
    auto bytes = bytes_of(a);
    Extent extent = byte_extent(a);
    REQUIRE(extent.fits);
    REQUIRE(extent.begin == (bytes.empty() ? 0 : *bytes.begin()));
    REQUIRE(extent.end == (bytes.empty() ? 0 : *bytes.rbegin() + 1));
    if (may_overlap(a, b)) continue;
    ++apart;
    REQUIRE_FALSE(share_a_byte(a, b));
  }
  CHECK(apart > 1000);
}

TEST_CASE("parts of one array are told apart exactly") {
  // Every pair of boxes [rows, columns] of an 6 × 8 array.
  std::vector<Memory> boxes;
  for (int64_t row = 0; row < 6; row += 2)
    for (int64_t column = 0; column < 8; column += 2)
      for (int64_t width = 2; column + width <= 8; width += 2)
        boxes.push_back(
            {reinterpret_cast<void*>(kBase + (row * 8 + column) * 4), F32, {2, width}, {8, 1}});
  for (const Memory& a : boxes)
    for (const Memory& b : boxes) CHECK(may_overlap(a, b) == share_a_byte(a, b));
}

TEST_CASE("strides that leave the address space") {
  Memory memory{reinterpret_cast<void*>(kBase), F64, {3, 2}, {int64_t{1} << 62, 1}};
  CHECK_FALSE(byte_extent(memory).fits);
  memory.strides[0] = -kBase;
  CHECK_FALSE(byte_extent(memory).fits);
  memory.shape[1] = 0;
  CHECK(byte_extent(memory).fits);
}
