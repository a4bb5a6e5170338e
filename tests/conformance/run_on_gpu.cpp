// The snippets on a GPU.
#include <cstdio>
#include <memory>
#include <span>

#include "ir/error.h"
#include "runtime/cuda_launch.h"
#include "runtime/cuda_memory.h"
#include "tests/conformance/snippet.h"

namespace kiln::conformance {
namespace {

using cuda::Context;

// 64-bit slots on the device.
class Slots {
 public:
  Slots(const Context& context, size_t count)
      : context_(context), bytes_(8 * count), memory_(cuda::allocate(context, bytes_ + 8)) {}
  ~Slots() { cuda::release(context_, memory_); }
  Slots(const Slots&) = delete;

  void upload(const std::vector<uint64_t>& values) {
    if (bytes_ > 0) cuda::upload(context_, memory_, values.data(), bytes_);
  }
  std::vector<uint64_t> download() const {
    std::vector<uint64_t> values(bytes_ / 8);
    if (bytes_ > 0) cuda::download(context_, values.data(), memory_, bytes_);
    return values;
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_); }

 private:
  const Context& context_;
  size_t bytes_;
  void* memory_;
};

std::optional<std::string> failure(const Context& context, const Snippet& snippet) {
  cuda::Function function(cuda::load_module(context, snippet.ptx(), snippet.name), snippet.entry);
  Slots input(context, snippet.input.size()), output(context, snippet.expected.size());
  input.upload(snippet.input);
  output.upload(std::vector<uint64_t>(snippet.expected.size()));
  const uint64_t params[] = {input.address(), output.address()};
  cuda::launch(function, {.block = {snippet.threads, 1, 1}}, nullptr,
               std::as_bytes(std::span(params)));
  context.synchronize(nullptr);
  return mismatch(snippet, output.download());
}

}  // namespace

int run_on_gpu() {
  const Context& context = cuda::context(cuda::default_ordinal());
  const cuda::Current current(context);
  size_t ran = 0, skipped = 0, failed = 0;
  for (const Snippet& snippet : all_snippets()) {
    const int capability = context.properties().capability();
    if (snippet.target > capability ||
        (snippet.architecture_only && snippet.target != capability)) {
      ++skipped;
      continue;
    }
    ++ran;
    std::optional<std::string> wrong;
    try {
      wrong = failure(context, snippet);
    } catch (const Error& error) {
      wrong = snippet.name + ": " + error.what();
    }
    if (!wrong) continue;
    ++failed;
    std::printf("FAILED  %s\n", wrong->c_str());
    std::fflush(stdout);
  }
  std::printf("%zu snippets, %zu failed, %zu need another GPU\n", ran, failed, skipped);
  return failed != 0;
}

}  // namespace kiln::conformance
