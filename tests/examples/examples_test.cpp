// Every example on every device, with sizes that fit no tile, sizes of 1 and 0, and strides that
// are no multiple of 16 bytes.
#include "examples/examples.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "examples/example.h"

namespace {

std::vector<std::string> devices() {
  if (const char* given = std::getenv("KILN_TEST_DEVICE")) return {given};
  return {"interpreter", "host"};
}

// The arguments of a command line for as long as it lives.
class Line {
 public:
  explicit Line(const std::string& text) {
    std::istringstream stream(text);
    for (std::string word; stream >> word;) words_.push_back(word);
    for (std::string& word : words_) argv_.push_back(word.data());
  }
  int argc() const { return static_cast<int>(argv_.size()); }
  char** argv() { return argv_.data(); }

 private:
  std::vector<std::string> words_;
  std::vector<char*> argv_;
};

int run(const std::string& text) {
  Line line("examples " + text);
  return examples::run(line.argc(), line.argv());
}

void run_all(const std::vector<const char*>& lines) {
  for (const std::string line : lines)
    for (const std::string& device : devices()) {
      INFO(line << " --device " << device);
      CHECK(run(line + " --device " + device) == 0);
    }
}

}  // namespace

TEST_CASE("example: relu_attention", "[examples]") {
  run_all({"relu_attention", "relu_attention --causal", "relu_attention --heads 1 --seq 1",
           "relu_attention --seq 65 --seq-kv 130 --causal --beyond 0",
           "relu_attention --seq 130 --seq-kv 65 --causal --dtype bf16",
           "relu_attention --seq 70 --causal --dtype f32 --beyond 3",
           "relu_attention --seq 5 --seq-kv 0", "relu_attention --seq 0 --seq-kv 7"});
}

TEST_CASE("example: softcap_attention", "[examples]") {
  run_all({"softcap_attention", "softcap_attention --causal",
           "softcap_attention --batch 2 --heads 6 --seq 1 --seq-kv 129 --causal",
           "softcap_attention --seq 90 --seq-kv 40 --causal --dtype bf16 --beyond 1",
           "softcap_attention --heads 3 --heads-kv 1 --seq 33 --seq-kv 31 --beyond 0",
           "softcap_attention --seq 70 --causal --dtype f32",
           "softcap_attention --seq 3 --seq-kv 0", "softcap_attention --seq 0"});
}

TEST_CASE("example: linear_attention", "[examples]") {
  run_all({"linear_attention", "linear_attention --seq 1", "linear_attention --heads 3 --seq 64",
           "linear_attention --seq 65 --dtype bf16 --beyond 5",
           "linear_attention --seq 150 --dtype f32 --beyond 0", "linear_attention --seq 0"});
}

TEST_CASE("example: norm_gemm", "[examples]") {
  run_all({"norm_gemm", "norm_gemm --rows 1 --cols 1 --depth 1",
           "norm_gemm --rows 65 --cols 129 --depth 333 --dtype bf16 --beyond 0",
           "norm_gemm --rows 5 --cols 200 --depth 31 --beyond 7",
           "norm_gemm --rows 70 --cols 30 --depth 77 --dtype f32",
           "norm_gemm --rows 3 --cols 3 --depth 0", "norm_gemm --rows 0"});
}

TEST_CASE("example: stencil", "[examples]") {
  run_all({"stencil", "stencil --rows 1 --cols 1 --steps 1",
           "stencil --rows 16 --cols 64 --steps 2",
           "stencil --rows 17 --cols 65 --steps 3 --beyond 0",
           "stencil --rows 40 --cols 7 --steps 8 --dtype f16",
           "stencil --rows 33 --cols 100 --steps 4 --dtype f64 --beyond 5", "stencil --rows 0"});
}

TEST_CASE("example: long_topk", "[examples]") {
  run_all({"long_topk", "long_topk --cols 1 --k 3", "long_topk --rows 1 --cols 96 --k 1",
           "long_topk --rows 5 --cols 97 --k 32 --beyond 0",
           "long_topk --rows 9 --cols 700 --k 100 --dtype f16",
           "long_topk --rows 3 --cols 40 --k 50 --dtype bf16 --beyond 3", "long_topk --cols 0",
           "long_topk --rows 0"});
}

TEST_CASE("example: histogram", "[examples]") {
  run_all({"histogram", "histogram --n 1 --bins 1", "histogram --n 9999 --bins 1300",
           "histogram --n 4097 --bins 513 --dtype f16 --beyond 0",
           "histogram --n 20000 --bins 3 --dtype bf16", "histogram --n 0 --bins 7",
           "histogram --n 5000 --bins 0"});
}

TEST_CASE("example: transpose", "[examples]") {
  run_all({"transpose", "transpose --rows 1 --cols 1",
           "transpose --batch 1 --rows 65 --cols 129 --beyond 0", "transpose --rows 0"});
  for (kiln::DType dtype : kiln::kAllDTypes) {
    const std::string line = "transpose --rows 33 --cols 70 --beyond 3 --dtype ";
    run_all({(line + std::string(name(dtype))).c_str()});
  }
}

TEST_CASE("a mistake on the command line of an example", "[examples]") {
  for (const char* line : {"", "nothing", "histogram --n -3", "histogram --n", "histogram 7",
                           "histogram --size 3", "histogram --dtype i32", "stencil --steps 0",
                           "softcap_attention --heads 4 --heads-kv 3", "transpose --device tpu"})
    CHECK(run(line) == 1);
}

TEST_CASE("the examples' check can fail", "[examples]") {
  using namespace kiln;
  Line line("check --device host");
  examples::Example example("check", line.argc(), line.argv());
  examples::Data data = example.tensor(F32, {2, 3});
  const std::vector<double> values = {1, 2, 3, -INFINITY, NAN, 6};
  data.set(values);
  SECTION("but does not where all is right") {
    example.check(data, values, 0);
    CHECK(example.finish() == 0);
  }
  SECTION("beyond the tolerance") {
    example.check(data, {1, 2, 3, -INFINITY, NAN, 6.1}, 1e-2);
    CHECK(example.finish() == 1);
  }
  SECTION("an infinity that should not be there") {
    example.check(data, {1, 2, 3, 4, NAN, 6}, 1);
    CHECK(example.finish() == 1);
  }
  SECTION("a NaN that should not be there") {
    example.check(data, {1, 2, 3, -INFINITY, 5, 6}, 1);
    CHECK(example.finish() == 1);
  }
  SECTION("a number where NaN should be") {
    example.check(data, {1, 2, NAN, -INFINITY, NAN, 6}, 1);
    CHECK(example.finish() == 1);
  }
  SECTION("an element beyond the ends that changed") {
    const Memory& memory = data;
    static_cast<float*>(memory.data)[3] = 0;  // behind the first row
    example.check(data, values, 0);
    CHECK(example.finish() == 1);
  }
}
