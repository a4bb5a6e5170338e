// The README's table of what the library does not have: each answer is what asking for it gives.
#include <catch2/catch.hpp>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include "kernels/kernels.h"
#include "runtime/runtime.h"

namespace kiln {
namespace {

Kernel build(const char* kernel, const std::map<std::string, std::string>& options) {
  const KernelEntry& entry = kernel_named(kernel);
  return entry.build(entry.with_defaults(options), "host");
}

BlockSparseAttention attention(const AttentionConfig& config) {
  return block_sparse_attention(device("host"), config);
}

void call_with(const std::function<void(AttentionArgs&)>& spoil) {
  Array q(F32, {1, 8, 300, 64}), k = q, v = q, o = q, mask(Bool, {1, 8, 5, 5});
  AttentionArgs args{q.view(), k.view(), v.view(), o.view(), mask.view()};
  spoil(args);
  attention({.dtype = F32, .head_dim = 64})(args);
}

// By what is missing, as the table calls it.
const std::map<std::string, std::function<void()>>& wishes() {
  static const std::map<std::string, std::function<void()>> wishes = {
      {"backward passes", [] { kernel_named("block_sparse_attention_backward"); }},
      {"dropout",
       [] {
         build("block_sparse_attention", {{"dropout", "0.1"}});
       }},
      {"biases, ALiBi, capped or replaced softmax",
       [] {
         build("block_sparse_attention", {{"bias", "alibi"}});
       }},
      {"windows and masks of single elements",
       [] {
         build("block_sparse_attention", {{"window", "4096"}});
       }},
      {"attention in fp8, integers, f64", [] { attention({.dtype = E4M3}); }},
      {"head dimensions beyond 256 or between multiples of 16",
       [] { attention({.head_dim = 320}); }},
      {"mask blocks beyond 128",
       [] {
         attention({.block = {64, 256}});
       }},
      {"packed batches of several lengths",
       [] {
         call_with([](AttentionArgs& args) {
           args.q = Memory::contiguous(args.q.data, F32, {300, 8, 64});
         });
       }},
      {"tensors with gaps in the last axis",
       [] { call_with([](AttentionArgs& args) { args.q.strides.back() = 2; }); }},
      {"GPUs before sm_80", [] { device("emulator", "sm_75"); }},
      {"other makers' GPUs", [] { device("rocm"); }},
  };
  return wishes;
}

// First column -> second, without its backquotes.
std::map<std::string, std::string> table() {
  std::ifstream readme(std::string(KILN_TESTS_DIR) + "/../README.md");
  std::map<std::string, std::string> rows;
  bool inside = false;
  for (std::string line; std::getline(readme, line);) {
    if (line.find("| not there |") == 0) inside = true;
    if (line.empty()) inside = false;
    const size_t bar = line.find(" | `"), end = line.find("` |", bar);
    if (inside && bar != std::string::npos && end != std::string::npos)
      rows[line.substr(2, bar - 2)] = line.substr(bar + 4, end - bar - 4);
  }
  return rows;
}

TEST_CASE("README: what is not there is refused as the table says") {
  const auto rows = table();
  CHECK(rows.size() == wishes().size());
  for (const auto& [missing, ask] : wishes()) {
    INFO(missing);
    REQUIRE(rows.count(missing) == 1);
    CHECK_THROWS_WITH(ask(), Catch::Matchers::Contains(rows.at(missing)));
    CHECK_THROWS_AS(ask(), UserError);
  }
}

}  // namespace
}  // namespace kiln
