// The two kernels that the fake driver runs, and its memory as they see it.
#pragma once

#include <algorithm>
#include <cstring>

#include "tests/support/fake_cuda.h"

namespace kiln::test {

// The block that holds all of [address, address + bytes).
inline const FakeCuda::Block* block_of(const FakeCuda& fake, cuda::CUdeviceptr address,
                                       size_t bytes = 1) {
  auto after = fake.blocks.upper_bound(address);
  if (after == fake.blocks.begin()) return nullptr;
  const auto& [begin, block] = *std::prev(after);
  return address + bytes <= begin + block.bytes ? &block : nullptr;
}

// y[i] += a · x[i] on the packed parameters (x, y: pointers; a: f32; n: u32).
inline cuda::Result saxpy(FakeCuda& fake, const FakeCuda::Launch& launch) {
  cuda::CUdeviceptr x, y;
  float a;
  uint32_t n;
  if (launch.param_bytes != 24) return cuda::Result::InvalidValue;
  std::memcpy(&x, &launch.params[0], 8);
  std::memcpy(&y, &launch.params[8], 8);
  std::memcpy(&a, &launch.params[16], 4);
  std::memcpy(&n, &launch.params[20], 4);
  if (!block_of(fake, x, n * sizeof(float)) || !block_of(fake, y, n * sizeof(float))) {
    fake.pending = cuda::Result::IllegalAddress;  // seen by whoever calls next
    return cuda::Result::Success;
  }
  const auto* from = reinterpret_cast<const float*>(x);
  auto* to = reinterpret_cast<float*>(y);
  const uint64_t threads = uint64_t{launch.grid[0]} * launch.block[0];
  for (uint64_t i = 0; i < std::min<uint64_t>(n, threads); ++i) to[i] += a * from[i];
  return cuda::Result::Success;
}

// y[i] = factor · x[i] of the tests' kernel `scale`: n, factor, x, y, 64 bits each.
inline cuda::Result scale(FakeCuda& fake, const FakeCuda::Launch& launch) {
  uint64_t slots[4];
  if (launch.param_bytes != sizeof slots) return cuda::Result::InvalidValue;
  std::memcpy(slots, launch.params.data(), sizeof slots);
  const auto [n, bits, x, y] = slots;
  float factor;
  std::memcpy(&factor, &bits, sizeof factor);
  if (!block_of(fake, x, n * sizeof(float)) || !block_of(fake, y, n * sizeof(float))) {
    fake.pending = cuda::Result::IllegalAddress;
    return cuda::Result::Success;
  }
  const uint64_t end = std::min<uint64_t>(n, uint64_t{64} * launch.grid[0]);
  for (uint64_t i = 0; i < end; ++i)
    reinterpret_cast<float*>(y)[i] = factor * reinterpret_cast<const float*>(x)[i];
  return cuda::Result::Success;
}

}  // namespace kiln::test
