// The fake CUDA driver with the PTX emulator behind it: a slow GPU without a GPU. What the emulator
// finds is a launch failure, with the findings on stderr.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <stdexcept>
#include <string>

#include "runtime/ptx/ptx.h"
#include "tests/support/fake_cuda.h"

namespace kiln::test {

inline cuda::Result emulate_launch(FakeCuda& fake, const FakeCuda::Launch& launch,
                                   const std::string& code) {
  ptx::Memory memory;
  for (const auto& [address, block] : fake.blocks)
    memory.add(reinterpret_cast<const void*>(address), block.bytes, "device memory");
  static auto& programs = *new std::map<std::string, ptx::Program>;  // one launch at a time
  auto found = programs.find(code);
  if (found == programs.end()) found = programs.emplace(code, ptx::parse(code)).first;
  const ptx::Report report =
      ptx::launch(found->second, launch.function, {launch.grid[0], launch.grid[1], launch.grid[2]},
                  {launch.block[0], launch.block[1], launch.block[2]}, launch.dynamic_shared,
                  std::span(launch.params).first(launch.param_bytes), memory);
  for (const ptx::Finding& finding : report.findings)
    std::fprintf(stderr, "%s\n", finding.text().c_str());
  return report.findings.empty() ? cuda::Result::Success : cuda::Result::LaunchFailed;
}

// From the first call on it is this process's driver; `library` is the fake driver's path.
inline FakeCuda& emulated_cuda(const char* library) {
  setenv("KILN_LIBCUDA", library, 1);
  void* opened = dlopen(library, RTLD_NOW);
  if (!opened) throw std::runtime_error(dlerror());
  FakeCuda& fake = *reinterpret_cast<FakeCuda* (*)()>(dlsym(opened, "kiln_fake_cuda"))();
  fake.reset(fake);
  fake.execute = emulate_launch;
  return fake;
}

}  // namespace kiln::test
