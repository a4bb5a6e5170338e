#include "runtime/cuda_launch.h"

#include <fmt/format.h>

#include <array>

#include "codegen/abi.h"
#include "ir/error.h"
#include "runtime/cuda_error.h"

namespace kiln::cuda {
namespace {

constexpr int64_t kMaxGrid[3] = {0x7fffffff, 0xffff, 0xffff};  // of every device since sm_30

std::string text(const LaunchShape& shape) {
  return fmt::format("grid {}×{}×{}, block {}×{}×{}", shape.grid[0], shape.grid[1], shape.grid[2],
                     shape.block[0], shape.block[1], shape.block[2]);
}

[[noreturn, gnu::cold]] void refuse_grid(const Function& function, const LaunchShape& shape) {
  throw UserError(
      fmt::format("kernel '{}' cannot be launched with {}: expected at most {}×{}×{} blocks",
                  function.name(), text(shape), kMaxGrid[0], kMaxGrid[1], kMaxGrid[2]),
      "put the largest extent of the launch first, or give each block more to do");
}

[[noreturn, gnu::cold]] void refuse(const Function& function, const LaunchShape& shape,
                                    Result result, size_t params) {
  const FunctionAttributes& attributes = function.attributes();
  function.context().fail(
      result, fmt::format("launching kernel '{}'", function.name()),
      fmt::format(
          "{}, {} threads a block at most, {} registers a thread, {} bytes of shared memory, "
          "{} bytes of parameters",
          text(shape), attributes.max_threads, attributes.registers,
          function.dynamic_shared() + attributes.static_shared, params));
}

// Where each parameter lies.
void list_parameters(std::span<const std::byte> params, size_t maps, std::span<void*> list) {
  auto* at = const_cast<std::byte*>(params.data());
  const std::byte* end = at + params.size();
  for (size_t i = 0; at < end; ++i) {
    list[i] = at;
    at += i < maps ? kTensorMapBytes : sizeof(uint64_t);
  }
}

}  // namespace

void launch(const Function& function, const LaunchShape& shape, CUstream stream,
            std::span<const std::byte> params, size_t maps) {
  const auto& [x, y, z] = shape.grid;
  if (x == 0 || y == 0 || z == 0) return;
  if (x < 0 || x > kMaxGrid[0] || y < 0 || y > kMaxGrid[1] || z < 0 || z > kMaxGrid[2])
    refuse_grid(function, shape);
  const Context& context = function.context();
  Current current(context);
  context.note_kernel(function.name());
  // One packed buffer rather than an array of pointers to parameters: the caller has the bytes
  // together anyway, and the driver copies them in one piece instead of walking a list of
  // parameters whose sizes it must look up. Not so with maps: seen with driver 580, a buffer whose
  // first parameter is aligned to 64 arrives 48 bytes before where the code looks for it.
  size_t bytes = params.size();
  void* buffer[] = {kParamBufferPointer, const_cast<std::byte*>(params.data()), kParamBufferSize,
                    &bytes, kParamEnd};
  std::array<void*, kMostParameterWords> list;
  if (maps > 0) list_parameters(params, maps, list);
  void** one_by_one = maps > 0 ? list.data() : nullptr;
  void** extra = maps > 0 ? nullptr : buffer;
  const auto dynamic_shared = static_cast<unsigned>(function.dynamic_shared());
  const std::array grid = {static_cast<unsigned>(x), static_cast<unsigned>(y),
                           static_cast<unsigned>(z)};
  const std::array block = {static_cast<unsigned>(shape.block[0]),
                            static_cast<unsigned>(shape.block[1]),
                            static_cast<unsigned>(shape.block[2])};
  Result result;
  if (shape.early) {
    const LaunchAttribute early;
    const LaunchConfig config = {{grid[0], grid[1], grid[2]},
                                 {block[0], block[1], block[2]},
                                 dynamic_shared,
                                 stream,
                                 &early,
                                 1};
    result = api().launch_kernel_with(&config, function.handle(), one_by_one, extra);
  } else {
    result = api().launch_kernel(function.handle(), grid[0], grid[1], grid[2], block[0], block[1],
                                 block[2], dynamic_shared, stream, one_by_one, extra);
  }
  if (result != Result::Success) [[unlikely]]
    refuse(function, shape, result, bytes);
}

}  // namespace kiln::cuda
