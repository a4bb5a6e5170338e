// Conformance snippets: a few PTX instructions each, inputs of a block of threads, and the results
// that the PTX manual prescribes, computed here in plain C++. The same snippets run in the emulator
// (tests/ptx) and on a GPU (gpu_tests --conformance).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kiln::conformance {

// What a 64-bit slot of output holds, in its low bits. Any NaN equals any NaN of a float type.
enum class Element { Bits, F16, BF16, F16x2, BF16x2, F32, F64 };

// Documented errors; both 0: bit for bit.
struct Tolerance {
  double relative = 0, absolute = 0;
};

struct Snippet {
  std::string name;                // the text of the instruction, mostly
  std::string entry;               // name of the entry
  std::string text;                // the entry: pointers to input and output are its parameters
  int target = 80;                 // sm_80
  bool architecture_only = false;  // sm_90a: on that architecture and no later one
  int threads = 0;                 // of the only block
  std::vector<uint64_t> input, expected;
  Element element = Element::Bits;
  Tolerance tolerance;
  std::string ptx() const;  // a whole module
};

// .version, .target, .address_size
std::string header(int target, bool architecture_only = false);
std::vector<Snippet> all_snippets();
// In words, the first slot of the output that is not as expected, and how many are not.
std::optional<std::string> mismatch(const Snippet& snippet, const std::vector<uint64_t>& output);

// Prints a line for each failure on the GPU and "N snippets, M failed" last; 0 if none failed.
int run_on_gpu();

}  // namespace kiln::conformance
