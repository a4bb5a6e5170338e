#include "tests/runtime/gpu_support.h"

#include <numeric>

#include "runtime/compile.h"

namespace kiln::test {

OnDevice::OnDevice(Device& device, DType dtype, Shape shape) : device_(device) {
  const size_t bytes = bytes_of(dtype, shape);
  memory_ = Memory::contiguous(device.allocate(bytes), dtype, std::move(shape));
}

OnDevice::OnDevice(Device& device, const std::vector<float>& values)
    : OnDevice(device, F32, {static_cast<int64_t>(values.size())}) {
  device.upload(memory_.data, values.data(), values.size() * sizeof(float));
}

Memory OnDevice::at(int64_t bytes) const {
  Memory moved = memory_;
  moved.data = static_cast<char*>(memory_.data) + bytes;
  return moved;
}

std::vector<float> OnDevice::values() const {
  std::vector<float> values(bytes_of(F32, memory_.shape) / sizeof(float));
  device_.download(values.data(), memory_.data, values.size() * sizeof(float));
  return values;
}

std::vector<float> iota(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

bool scales(Device& device, int64_t n) {
  const std::vector<float> numbers = iota(n);
  OnDevice x(device, numbers), y(device, F32, {n});
  run(device, scale_kernel(),
      Arguments().tensor("x", x.memory()).tensor("y", y.memory()).param("factor", 3));
  const std::vector<float> result = y.values();
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i] != 3 * numbers[i]) return false;
  return true;
}

std::filesystem::path write_fake_ptxas(const std::filesystem::path& directory,
                                       const std::string& version) {
  const std::filesystem::path path = directory / "ptxas";
  write_file(path, R"(#!/bin/sh
if [ "$1" = --version ]; then
  echo "ptxas: NVIDIA (R) Ptx optimizing assembler"
  echo "Cuda compilation tools, release 12.4, )" +
                       version + R"("
  exit 0
fi
echo "$@" >> ")" + (directory / "calls").string() +
                       R"("
if [ -n "$KILN_TEST_PTXAS_FAILS" ]; then echo "ptxas fatal   : it is told to fail" >&2; exit 255; fi
{ printf '\177ELF'; cat "$3"; } > "$5"
)");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

}  // namespace kiln::test
