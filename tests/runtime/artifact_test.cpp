#include <catch2/catch.hpp>
#include <random>

#include "runtime/gpu_artifact.h"
#include "runtime/host_artifact.h"
#include "tests/runtime/support.h"

using namespace kiln;

namespace {

HostObject example() {
  HostObject object;
  object.code = std::string(
      "\x7f"
      "ELF\0code",
      9);
  object.launches.push_back(
      {"first", {{Slot::Kind::Pointer, "q"}, {Slot::Kind::Stride, "q", 2}}, 4096});
  object.launches.push_back({"second",
                             {},
                             0,
                             {{"producer", "second_role_0"}, {"consumer", "second_role_1"}},
                             {{{"kernel.tile", 7}, "pop: nothing was pushed"}}});
  object.launches.push_back(
      {"third", {{Slot::Kind::Dim, "seq"}, {Slot::Kind::Param, "scale"}}, uint64_t{1} << 40});
  return object;
}

GpuCode gpu_example() {
  return {std::string(".version 8.0\n\0bytes", 20),
          {{"first",
            {{Slot::Kind::Map, "q", 0, {{1, 64, 128}, 64, true}},
             {Slot::Kind::Pointer, "q"},
             {Slot::Kind::Stride, "q", 2}},
            128,
            65536},
           {"second", {}, 32, 0},
           {"third", {{Slot::Kind::Dim, "seq"}, {Slot::Kind::Param, "scale"}}, 1024, 1}}};
}

}  // namespace

TEST_CASE("an object survives its encoding") {
  HostObject object = example();
  auto back = decode_host_object(encode(object));
  REQUIRE(back);
  CHECK(back->code == object.code);
  REQUIRE(back->launches.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(back->launches[i].entry == object.launches[i].entry);
    CHECK(back->launches[i].slots == object.launches[i].slots);
    CHECK(back->launches[i].scratch_bytes == object.launches[i].scratch_bytes);
  }
  CHECK(back->launches[1].roles == object.launches[1].roles);
  REQUIRE(back->launches[1].waits.size() == 1);
  CHECK(str(back->launches[1].waits[0].loc) == "kernel.tile:7");
  CHECK(back->launches[1].waits[0].what == "pop: nothing was pushed");
}

TEST_CASE("bytes that are not one object are refused") {
  const std::string good = encode(example());
  for (size_t length = 0; length < good.size(); ++length)
    REQUIRE_FALSE(decode_host_object(std::string_view(good).substr(0, length)));
  CHECK_FALSE(decode_host_object(good + '\0'));
  std::string many = good;
  many[7] = '\x7f';  // 2^62 launches
  CHECK_FALSE(decode_host_object(many));
  std::string kind = good;
  kind[8 + 8 + 5 + 8 + 8] = 9;  // of the first slot
  CHECK_FALSE(decode_host_object(kind));
}

TEST_CASE("random bytes never do harm") {
  std::mt19937 random(test::random_seed());
  const std::string good = encode(example());
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      bad[random() % bad.size()] = static_cast<char>(random());
    if (auto object = decode_host_object(bad)) REQUIRE(encode(*object) == bad);
  }
}

TEST_CASE("code for a GPU survives its encoding, and nothing else is decoded") {
  const std::string good = encode(gpu_example());
  CHECK(decode_gpu_code(good) == gpu_example());
  CHECK(decode_gpu_code(encode(GpuCode())) == GpuCode());
  for (size_t length = 0; length < good.size(); ++length)
    REQUIRE_FALSE(decode_gpu_code(std::string_view(good).substr(0, length)));
  CHECK_FALSE(decode_gpu_code(good + '\0'));
  std::string many = good;
  many[7] = '\x7f';  // 2^62 launches
  CHECK_FALSE(decode_gpu_code(many));
  GpuCode bad = gpu_example();
  bad.launches[1].threads = 0;
  CHECK_FALSE(decode_gpu_code(encode(bad)));
  bad = gpu_example();
  bad.launches[1].shared_bytes = -1;
  CHECK_FALSE(decode_gpu_code(encode(bad)));
  std::mt19937 random(test::random_seed());
  for (int i = 0; i < 20000; ++i) {
    std::string flipped = good;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      flipped[random() % flipped.size()] = static_cast<char>(random());
    if (auto code = decode_gpu_code(flipped)) REQUIRE(encode(*code) == flipped);
  }
}
