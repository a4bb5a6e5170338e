// Any bytes are refused with an Error or give a program that runs to an end or to a finding.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/ptx/program.h"
#include "runtime/ptx/ptx.h"
#include "runtime/ptx/tensor_map.h"

namespace {

using namespace kiln::ptx;

std::array<uint64_t, 512> array;

// 32 rows of 64 elements, boxes of 8 rows: what a kernel of TMA may copy.
TensorMapBytes tensor_map() {
  TensorMap map;
  map.rank = 2;
  map.type = Type::F16;
  map.address = reinterpret_cast<uint64_t>(array.data());
  const uint64_t extents[] = {64, 32};
  const uint32_t box[] = {64, 8};
  std::copy(std::begin(extents), std::end(extents), map.extents);
  std::copy(std::begin(box), std::end(box), map.box);
  map.strides[1] = 128;
  map.swizzle = 128;
  return encode(map);
}

// Parameters of 128 bytes are tensor maps, every other 64 bits point to the array.
std::vector<std::byte> parameters(const Entry& entry) {
  const std::vector<uint64_t> words(entry.parameter_bytes / 8 + 1,
                                    reinterpret_cast<uint64_t>(array.data()));
  const auto* bytes = reinterpret_cast<const std::byte*>(words.data());
  std::vector<std::byte> all(bytes, bytes + entry.parameter_bytes);
  for (const Variable& parameter : entry.parameters)
    if (parameter.bytes == kTensorMapBytes)
      std::memcpy(all.data() + parameter.offset, tensor_map().data(), kTensorMapBytes);
  return all;
}

// As many as the entry demands, or one warp and a part of another.
Dim3 threads(const Entry& entry) {
  const uint64_t* n = entry.required_threads;
  if (n[0] == 0 || n[0] * n[1] * n[2] > 256) return {40};
  return {static_cast<uint32_t>(n[0]), static_cast<uint32_t>(n[1]), static_cast<uint32_t>(n[2])};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    Program program = parse({reinterpret_cast<const char*>(data), size});
    array.fill(0);
    Memory memory;
    memory.add(array.data(), sizeof array, "array");
    for (const auto& [name, entry] : program.module().entries)
      for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest}) {
        Options options;
        options.async = mode;
        options.threads = 1;
        options.max_instructions = 20000;
        if (mode == AsyncMode::AtIssue) options.timeline = Dim3{0, 0, 0};
        launch(program, name, {2}, threads(entry), 4096, parameters(entry), memory, options);
      }
  } catch (const Error&) {
  }
  return 0;
}
