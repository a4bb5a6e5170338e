// What is compiled, how often, and what comes from where.
#include <fmt/format.h>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>
#include <thread>

#include "ir/error.h"
#include "ir/parse.h"
#include "runtime/cache.h"
#include "runtime/compile.h"
#include "runtime/host_artifact.h"
#include "runtime/host_code.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
namespace fs = std::filesystem;

namespace {

struct Counts {
  int64_t compilations, disk_loads, memory_hits;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.compilations << " compilations, " << counts.disk_loads << " disk loads, "
             << counts.memory_hits << " memory hits";
}

// What has been counted since the object was made.
class Counter {
 public:
  Counts since() const {
    CompileStats now = compile_stats();
    return {now.compilations - start_.compilations, now.disk_loads - start_.disk_loads,
            now.memory_hits - start_.memory_hits};
  }

 private:
  CompileStats start_ = compile_stats();
};

// Runs the scale kernel on 0, 1, …, n-1; is the result right?
bool scales(Device& on, const Kernel& kernel, int64_t n, int bias = 0) {
  Array x(F32, {n}), y(F32, {n});
  for (int64_t i = 0; i < n; ++i) x.set(i, static_cast<double>(i));
  run(on, kernel, Arguments().tensor("x", x).tensor("y", y).param("factor", 3));
  for (int64_t i = 0; i < n; ++i)
    if (y.get(i) != static_cast<double>(3 * i + bias)) return false;
  return true;
}

fs::path only_entry(const FreshCache& cache) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(cache.path())) files.push_back(file.path());
  REQUIRE(files.size() == 1);
  return files[0];
}

}  // namespace

TEST_CASE("100 calls with random dims cause one compilation") {
  FreshCache cache;
  std::mt19937 random(random_seed());
  for (std::string_view name : cpu_devices()) {
    Counter counter;
    for (int call = 0; call < 100; ++call)
      REQUIRE(scales(device(name), scale_kernel(), static_cast<int64_t>(random() % 500)));
    CHECK(counter.since() == Counts{1, 0, 99});
  }
}

TEST_CASE("threads that want one kernel compile it once") {
  for (std::string_view name : cpu_devices()) {
    FreshCache cache;
    Counter counter;
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] { right += scales(device(name), scale_kernel(), 100 + i); });
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 8);
    CHECK(counter.since() == Counts{1, 0, 7});
  }
}

TEST_CASE("different kernels compile side by side") {
  FreshCache cache;
  Counter counter;
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back(
        [&, i] { right += scales(device("host"), scale_kernel(i % 4), 1000, i % 4); });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 8);
  CHECK(counter.since() == Counts{4, 0, 4});
}

TEST_CASE("a handle outlives the caches and is shared by threads") {
  FreshCache cache;
  Function handle = compile(device("host"), scale_kernel());
  forget_compiled();
  Counter counter;
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, copy = handle] {
      for (int round = 0; round < 50; ++round) {
        Array x(F32, {70}, std::vector<double>(70, 2)), y(F32, {70});
        copy(Arguments().tensor("x", x).tensor("y", y).param("factor", 4));
        if (y.values() != std::vector<double>(70, 8)) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(counter.since() == Counts{0, 0, 0});
}

TEST_CASE("what matters to the code makes it another kernel; who uses it keeps it") {
  FreshCache cache;
  Counter counter;
  std::vector<Kernel> kernels = {scale_kernel(), scale_kernel(1), scale_kernel(), scale_kernel(),
                                 scale_kernel()};
  kernels[2].fast_math = !kernels[2].fast_math;
  kernels[3].name = "another";  // of messages and of the function on a GPU
  kernels[4].without = "simplify";
  std::vector<const Executable*> code;
  for (const Kernel& kernel : kernels)
    for (const char* name : {"host", "interpreter", "emulator", "emulator:sm_90"})
      code.push_back(compile(device(name), kernel).executable().get());
  CHECK(counter.since() == Counts{20, 0, 0});
  {
    EnvironmentGuard without("KILN_WITHOUT", "dead_code");
    compile(device("host"), kernels[0]);
    CHECK(counter.since() == Counts{21, 0, 0});
  }
  size_t next = 0;
  for (const Kernel& kernel : kernels)
    for (const char* name : {"host", "interpreter", "emulator", "emulator:sm_90"})
      CHECK(compile(device(name), kernel).executable().get() == code[next++]);
  CHECK(counter.since() == Counts{21, 0, 20});
}

TEST_CASE("so many kernels are remembered, those used last") {
  FreshCache cache;
  Device& where = device("interpreter");
  const Function kept = compile(where, scale_kernel(-1));
  const std::weak_ptr<const Executable> dropped = compile(where, scale_kernel(-2)).executable();
  Counter counter;
  for (int i = 0; i < static_cast<int>(kMostCompiled) + 10; ++i) {
    compile(where, scale_kernel(i));
    if (i % 100 == 0) compile(where, scale_kernel(-1));
  }
  CHECK(counter.since().compilations == kMostCompiled + 10);
  CHECK(compile(where, scale_kernel(-1)).executable() == kept.executable());
  CHECK(dropped.expired());
  const Function oldest = compile(where, scale_kernel(0));
  CHECK(counter.since().compilations == kMostCompiled + 11);
  Array x(F32, {3}, std::vector<double>{1, 2, 3}), y(F32, {3});
  const std::weak_ptr<const Executable> held = oldest.executable();
  for (int i = 0; i < static_cast<int>(kMostCompiled); ++i) compile(where, scale_kernel(2000 + i));
  oldest(Arguments().tensor("x", x).tensor("y", y).param("factor", 2));
  CHECK(y.values() == std::vector<double>{2, 4, 6});
  CHECK_FALSE(held.expired());
}

TEST_CASE("a kernel that is wrong is refused every time, and poisons nothing") {
  FreshCache cache;
  Kernel bad = scale_kernel();
  bad.op(bad.region(bad.body).ops.back()).regions.clear();  // a launch without a body
  for (int i = 0; i < 2; ++i) CHECK_THROWS_AS(compile(device("host"), bad), UserError);
  CHECK(scales(device("host"), scale_kernel(), 65));
}

TEST_CASE("another process finds the code on disk") {
  FreshCache cache;
  CHECK(scales(device("host"), scale_kernel(), 1000));
  forget_compiled();  // as a new process would be
  Counter counter;
  CHECK(scales(device("host"), scale_kernel(), 1000));
  CHECK(counter.since() == Counts{0, 1, 0});
  CHECK(compile_stats().codegen_ms == 0);
  CHECK(compile_stats().load_ms > 0);
  forget_compiled();
  EnvironmentGuard off("KILN_CACHE", "off");
  CHECK(scales(device("host"), scale_kernel(), 1000));
  CHECK(counter.since() == Counts{1, 1, 0});
  CHECK(compile_stats().codegen_ms > 0);
}

TEST_CASE("a damaged entry is compiled again and repaired") {
  FreshCache cache;
  CHECK(scales(device("host"), scale_kernel(), 100));
  const fs::path file = only_entry(cache);
  const std::string good = read_file(file);
  std::mt19937 random(random_seed());
  auto rebuilds = [&](const std::string& text) {
    write_file(file, text);
    forget_compiled();
    Counter counter;
    bool right = scales(device("host"), scale_kernel(), 100);
    return right && counter.since() == Counts{1, 0, 0} && read_file(file) == good;
  };
  CHECK(rebuilds(good.substr(0, random() % good.size())));
  std::string flipped = good;
  flipped[random() % good.size()] ^= 1;
  CHECK(rebuilds(flipped));
  CHECK(rebuilds(""));
  std::string version = good;
  ++version[8];
  CHECK(rebuilds(version));
  // Sound as an entry, but no code in it, or code for nothing.
  const std::string key = host_cache_key(scale_kernel());
  CHECK(file.filename() == key + ".kiln");
  HostObject no_code{
      "\x7f"
      "ELF, but not really",
      {{"entry", {}, 0}}},
      no_launch{"", {}};
  for (const std::string& payload : {std::string("nonsense"), encode(no_code), encode(no_launch)}) {
    disk_cache().store(key, payload);
    CHECK(rebuilds(read_file(file)));
  }
}

TEST_CASE("without a usable directory kernels run all the same") {
  FreshCache cache;
  write_file(cache.path() / "file", "");
  for (const std::string& directory :
       {std::string("/proc/self"), (cache.path() / "file").string(),
        (cache.path() / "file" / "below").string(), std::string("/dev/null")}) {
    EnvironmentGuard guard("KILN_CACHE_DIR", directory);
    forget_compiled();
    Counter counter;
    CHECK(scales(device("host"), scale_kernel(), 100));
    CHECK(counter.since() == Counts{1, 0, 0});
  }
}

TEST_CASE("the key depends on the program and nothing else") {
  const std::string key = host_cache_key(scale_kernel());
  CHECK(host_cache_key(scale_kernel()) == key);
  CHECK(host_cache_key(scale_kernel(1)) != key);
  Kernel fast = scale_kernel();
  fast.fast_math = true;
  CHECK(host_cache_key(fast) != key);
  for (int i = 1; i <= 50; ++i) host_cache_key(scale_kernel(i));
  CHECK(host_cache_key(scale_kernel()) == key);
  // Where the program stands and the order of independent ops do not matter.
  const char* text[] = {"%a = dim {name = \"a\"} : i32", "%s = add %a, %one : i32\n",
                        "%t = mul %a, %two : i32\n"};
  auto kernel = [&](bool swapped, const char* file) {
    return parse(fmt::format(R"(kernel @order {{
  {}
  %one = const {{value = 1}} : i32
  %two = const {{value = 2}} : i32
  {}{}
  %y = tensor %s, %t {{name = "y", role = output}} : tensor f32[?, ?]
  launch %s do |%x: i32| {{
    %v = const {{value = 1.0}} : f32
    store %v, %y, %x, %x
  }}
}})",
                             text[0], text[swapped ? 2 : 1], text[swapped ? 1 : 2]),
                 file);
  };
  CHECK(host_cache_key(kernel(false, "one.tile")) == host_cache_key(kernel(true, "two.tile")));
}

// Run by the tests below, in processes of their own.
TEST_CASE("child: compile and run", "[.child-run]") {
  for (int i = 0; i < 3; ++i) REQUIRE(scales(device("host"), scale_kernel(), 1000 + i));
  CompileStats stats = compile_stats();
  REQUIRE(stats.compilations + stats.disk_loads == 1);
}
TEST_CASE("child: the key after others", "[.child-key]") {
  for (int i = 1; i <= std::atoi(std::getenv("KILN_TEST_OTHERS")); ++i)
    host_cache_key(scale_kernel(i));
  write_file(std::getenv("KILN_TEST_OUTPUT"), host_cache_key(scale_kernel()));
}

TEST_CASE("eight processes race for one entry") {
  FreshCache cache;
  CHECK(run_children(8, "[.child-run]", {}) == std::vector<int>(8, 0));
  only_entry(cache);
  Counter counter;
  CHECK(scales(device("host"), scale_kernel(), 1000));
  CHECK(counter.since() == Counts{0, 1, 0});
}

TEST_CASE("processes agree on the key, whatever they built before") {
  TemporaryDirectory directory;
  std::vector<std::string> keys = {host_cache_key(scale_kernel())};
  for (const char* others : {"0", "50"}) {
    const fs::path output = directory.path() / others;
    CHECK(run_children(1, "[.child-key]",
                       {{"KILN_TEST_OTHERS", others}, {"KILN_TEST_OUTPUT", output}}) ==
          std::vector<int>{0});
    keys.push_back(read_file(output));
  }
  CHECK(keys == std::vector<std::string>(3, keys[0]));
}
