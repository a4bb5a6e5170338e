#include <catch2/catch.hpp>

#include "ir/error.h"
#include "runtime/array.h"
#include "runtime/device.h"
#include "tests/runtime/support.h"

using namespace kiln;
using kiln::test::error_of;

TEST_CASE("an array holds zeros, then what is put into it") {
  Array array(F16, {2, 3});
  CHECK(array.size() == 6);
  CHECK(array.bytes() == 12);
  CHECK(reinterpret_cast<uintptr_t>(array.data()) % 64 == 0);
  CHECK(array.values() == std::vector<double>(6, 0.0));
  array.set(4, 0.1);
  CHECK(array.get(4) == round_to(F16, 0.1));
  CHECK(array.span<uint16_t>()[4] == to_bits16(F16, 0.1));
  CHECK(array.view().strides == Shape{3, 1});

  Array copy = array;
  copy.set(4, 7);
  CHECK(array.get(4) == round_to(F16, 0.1));
  Array moved = std::move(copy);
  CHECK(moved.get(4) == 7);
  array = moved;
  CHECK(array.get(4) == 7);
}

TEST_CASE("arrays of every dtype, of rank 0, and without elements") {
  for (DType dtype : kAllDTypes) {
    Array array(dtype, {3}, std::vector<double>{1, 0, 1});
    CHECK(array.values() == std::vector<double>{1, 0, 1});
  }
  CHECK(Array(F32, {}).size() == 1);
  CHECK(Array(F32, {3, 0, 5}).size() == 0);
  CHECK(Array(F32, {int64_t{1} << 40, int64_t{1} << 40, 0}).size() == 0);
  CHECK(Array().size() == 0);
}

TEST_CASE("arrays that cannot be") {
  CHECK(error_of([] { Array(F32, {2, -1}); }) == "shape [2, ?]: negative extent");
  CHECK(error_of([] {
          Array(F32, {int64_t{1} << 40, int64_t{1} << 40});
        }) == "shape [1099511627776, 1099511627776]: too many elements");
  CHECK_THROWS_WITH(Array(F64, {int64_t{1} << 59}),
                    Catch::Contains("cannot allocate 4611686018427387904 bytes"));
  CHECK(error_of([] {
          Array(F32, {2}, std::vector<double>{1, 2, 3});
        }) == "array f32 [2]: expected 2 values, got 3");
  CHECK(error_of([] { Array(F32, {2}).get(2); }) == "array f32 [2]: no element 2");
}

TEST_CASE("devices by name") {
  CHECK(device("host").name() == "host");
  CHECK(device("interpreter").name() == "interpreter");
  CHECK(device("host").target() != device("interpreter").target());
  for (std::string_view name : test::cpu_devices()) CHECK_FALSE(device(name).description().empty());
  CHECK(error_of([] { device("gpu"); }) ==
        "there is no device 'gpu' | one of host, interpreter, emulator, cuda, cuda:1, …");
}

TEST_CASE("device memory") {
  for (std::string_view name : test::cpu_devices()) {
    Device& one = device(name);
    void* memory = one.allocate(100);
    std::vector<char> in(100, 'x'), out(100);
    one.upload(memory, in.data(), 100);
    one.synchronize();
    one.download(out.data(), memory, 100);
    CHECK(in == out);
    one.upload(nullptr, nullptr, 0);
    one.release(memory);
    one.release(nullptr);
    CHECK_THROWS_AS(one.allocate(~size_t{0}), DeviceError);
    CHECK_THROWS_AS(one.allocate(size_t{1} << 62), DeviceError);
  }
}
