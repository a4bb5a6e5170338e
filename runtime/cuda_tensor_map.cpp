#include "runtime/cuda_tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ir/error.h"
#include "runtime/cuda_memory.h"
#include "runtime/tensor_map.h"

namespace kiln::cuda {
namespace {

MapDType map_dtype(DType dtype) {
  switch (dtype) {
    case kiln::F16: return MapDType::F16;
    case kiln::BF16: return MapDType::BF16;
    case kiln::F32: return MapDType::F32;
    case kiln::F64: return MapDType::F64;
    case kiln::I16:
    case kiln::U16: return MapDType::U16;
    case kiln::I32: return MapDType::I32;
    case kiln::U32: return MapDType::U32;
    case kiln::I64: return MapDType::I64;
    case kiln::U64: return MapDType::U64;
    default: return MapDType::U8;
  }
}

MapSwizzle map_swizzle(int64_t bytes) {
  switch (bytes) {
    case 32: return MapSwizzle::Bytes32;
    case 64: return MapSwizzle::Bytes64;
    case 128: return MapSwizzle::Bytes128;
    default: throw InternalError(fmt::format("a tensor map with panels of {} bytes", bytes));
  }
}

template <class Numbers>
std::string list(const Numbers& numbers, size_t count) {
  return fmt::format("[{}]",
                     fmt::join(numbers.begin(), numbers.begin() + static_cast<long>(count), ", "));
}

// 512 bytes of zeros for each device: the first half is only read, the second may be written.
void* nothing(const Context& context, bool written) {
  constexpr size_t kHalf = 256;
  static std::mutex mutex;
  static auto& all = *new std::map<const Context*, char*>;  // outlives all executables
  std::lock_guard lock(mutex);
  char*& memory = all[&context];
  if (!memory) {
    memory = static_cast<char*>(allocate(context, 2 * kHalf));
    const std::array<std::byte, 2 * kHalf> zeros = {};
    upload(context, memory, zeros.data(), zeros.size());
  }
  return memory + (written ? kHalf : 0);
}

// What a thread used last, found by what it was made from: 256 maps at most. The mapper stands for
// the GPU, the dtype, the box and its panels.
class Remembered {
 public:
  struct Key {
    uint64_t mapper = 0;  // 0: nothing was made
    const void* data = nullptr;
    std::array<int64_t, 2 * kMostMapAxes> shape_and_strides = {};
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    uint64_t used = 0;  // when, by the set's clock
    EncodedMap map;
  };
  // The few entries that may have the key.
  struct Set {
    std::array<Entry, 4> entries;
    uint64_t clock = 0;
    Entry& oldest() {
      return *std::min_element(entries.begin(), entries.end(),
                               [](const Entry& a, const Entry& b) { return a.used < b.used; });
    }
  };

  Set& set(const Key& key) {
    uint64_t hash = key.mapper * kMultiplier ^ reinterpret_cast<uintptr_t>(key.data);
    for (int64_t word : key.shape_and_strides)
      hash = (hash ^ static_cast<uint64_t>(word)) * kMultiplier;
    return sets_[hash >> 58];
  }

 private:
  static constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  std::array<Set, 64> sets_ = {};
};

Remembered& remembered() {
  thread_local const auto memory = std::make_unique<Remembered>();
  return *memory;
}

}  // namespace

TensorMapper::TensorMapper(const Context& context, std::string text, DType dtype, int rank,
                           TensorMap map, bool written)
    : context_(context),
      text_(std::move(text)),
      dtype_(dtype),
      rank_(static_cast<size_t>(rank)),
      map_(std::move(map)),
      nothing_(nothing(context, written)) {
  static std::atomic<uint64_t> ids = 0;
  id_ = ++ids;
  check_map(text_, dtype, rank_, map_);
}

EncodedMap TensorMapper::encode(const Memory& tensor) const {
  const bool empty = is_empty(tensor);
  if (!empty) check_mapped(text_, dtype_, map_, tensor);
  const MapAxes axes = map_axes(map_, tensor);
  const std::array<unsigned, kMostMapAxes> steps = {1, 1, 1, 1, 1};
  Current current(context_);
  EncodedMap map;
  // All that the kernel reads of a tensor goes through L2, most of it again for another block.
  const Result result = api().tensor_map_encode(
      &map, map_dtype(dtype_), axes.rank, empty ? nothing_ : tensor.data, axes.extents.data(),
      axes.strides.data(), axes.box.data(), steps.data(), MapInterleave::None,
      map_swizzle(map_.panel * static_cast<int64_t>(size_of(dtype_))), MapPromotion::Bytes256,
      MapFill::Zeros);
  if (result != Result::Success)
    context_.fail(result, fmt::format("making the tensor map of {}", text_),
                  fmt::format("extents {}, strides {} bytes, box {}, innermost first",
                              list(axes.extents, axes.rank), list(axes.strides, axes.rank - 1),
                              list(axes.box, axes.rank)));
  return map;
}

void TensorMapper::operator()(const Memory& tensor, void* to) const {
  Remembered::Key key{id_, tensor.data, {}};
  std::copy_n(tensor.shape.begin(), rank_, key.shape_and_strides.begin());
  std::copy_n(tensor.strides.begin(), rank_, key.shape_and_strides.begin() + kMostMapAxes);
  Remembered::Set& set = remembered().set(key);
  auto entry = std::find_if(set.entries.begin(), set.entries.end(),
                            [&](const Remembered::Entry& made) { return made.key == key; });
  if (entry == set.entries.end()) [[unlikely]] {
    const EncodedMap map = encode(tensor);
    entry = &set.oldest();
    *entry = {key, 0, map};
  }
  entry->used = ++set.clock;
  std::memcpy(to, &entry->map, sizeof entry->map);
}

}  // namespace kiln::cuda
