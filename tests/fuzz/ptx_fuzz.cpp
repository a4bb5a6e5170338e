// Any bytes are refused with an Error or give a program that runs to an end or to a finding.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ptx/ptx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln::ptx;
  try {
    Program program = parse({reinterpret_cast<const char*>(data), size});
    std::array<uint64_t, 512> array{};
    Memory memory;
    memory.add(array.data(), sizeof array, "array");
    for (const std::string& name : program.entries()) {
      // Every parameter of 64 bits points to the array.
      std::vector<uint64_t> words(program.parameter_bytes(name) / 8 + 1,
                                  reinterpret_cast<uint64_t>(array.data()));
      auto parameters = std::as_bytes(std::span(words)).subspan(0, program.parameter_bytes(name));
      for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest}) {
        Options options;
        options.async = mode;
        options.threads = 1;
        options.max_instructions = 20000;
        launch(program, name, {2}, {40}, 256, parameters, memory, options);
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
