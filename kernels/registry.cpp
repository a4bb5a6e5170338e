#include "kernels/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "ir/error.h"
#include "kernels/antidiag_scores/antidiag_scores.h"
#include "kernels/block_sparse_attention/entry.h"
#include "kernels/infllmv2/compressed_scores.h"
#include "kernels/infllmv2/importance.h"
#include "kernels/infllmv2/pooling.h"
#include "kernels/infllmv2/token_choice.h"
#include "kernels/matmul/matmul.h"
#include "kernels/quest/quest.h"
#include "kernels/row_softmax/row_softmax.h"
#include "kernels/select_blocks/select_blocks.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"
#include "kernels/sparse_decode/entry.h"
#include "kernels/tile_copy/tile_copy.h"
#include "kernels/xattention/prefill.h"
#include "kernels/xattention/xattention.h"

namespace kiln {

const std::string& Options::text(std::string_view name) const {
  auto it = values_.find(std::string(name));
  if (it == values_.end()) throw InternalError(fmt::format("no option '{}'", name));
  return it->second;
}

int64_t Options::integer(std::string_view name) const {
  const std::string& value = text(name);
  int64_t number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size())
    throw UserError(fmt::format("{}: expected an integer, got '{}'", name, value));
  return number;
}

int64_t Options::integer(std::string_view name, int64_t low, int64_t high) const {
  int64_t number = integer(name);
  if (number < low || number > high)
    throw UserError(fmt::format("{}: expected {} to {}, got {}", name, low, high, number));
  return number;
}

size_t Options::choice(std::string_view name, std::span<const std::string_view> words) const {
  const std::string& value = text(name);
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i] == value) return i;
  throw UserError(
      fmt::format("{}: expected one of {}, got '{}'", name, fmt::join(words, ", "), value));
}

bool Options::boolean(std::string_view name) const {
  return choice(name, {"false", "true", "0", "1"}) % 2 == 1;
}

DType Options::dtype(std::string_view name, std::initializer_list<DType> legal) const {
  auto dtype = dtype_from_name(text(name));
  if (dtype && std::find(legal.begin(), legal.end(), *dtype) != legal.end()) return *dtype;
  std::vector<std::string_view> names;
  for (DType one : legal) names.push_back(kiln::name(one));
  throw UserError(
      fmt::format("{}: expected one of {}, got '{}'", name, fmt::join(names, ", "), text(name)));
}

bool KernelEntry::has_option(std::string_view option) const {
  for (const OptionInfo& info : options)
    if (info.name == option) return true;
  return false;
}

Options KernelEntry::with_defaults(const std::map<std::string, std::string>& given) const {
  std::map<std::string, std::string> values;
  for (const OptionInfo& info : options) values[info.name] = info.default_value;
  for (const auto& [option, value] : given) {
    if (!has_option(option)) {
      std::vector<std::string_view> names;
      for (const OptionInfo& info : options) names.push_back(info.name);
      throw UserError(fmt::format("{}: no option '{}'", name, option),
                      fmt::format("its options are {}", fmt::join(names, ", ")));
    }
    values[option] = value;
  }
  return Options(std::move(values));
}

std::optional<Memory> tensor_of(const Bindings& bindings, const char* name) {
  const auto it = bindings.tensors.find(name);
  return it == bindings.tensors.end() ? std::nullopt : std::optional(it->second);
}

double bytes_of(const Memory& memory) {
  return static_cast<double>(bytes_of(memory.dtype, memory.shape));
}

const std::vector<KernelEntry>& kernel_registry() {
  static const std::vector<KernelEntry> registry = {antidiag_scores_entry(),
                                                    block_sparse_attention_entry(),
                                                    matmul_entry(),
                                                    minmax_pool_entry(),
                                                    quest_score_entry(),
                                                    row_softmax_entry(),
                                                    select_blocks_entry(),
                                                    softmax_block_sum_entry(),
                                                    sparse_decode_entry(),
                                                    tile_copy_entry(),
                                                    xattn_estimate_entry(),
                                                    xattention_prefill_entry(),
                                                    mean_pool_entry(),
                                                    max_pool_entry(),
                                                    compressed_scores_entry(),
                                                    token_choice_entry(),
                                                    token_importance_entry(),
                                                    nosa_mean_pool_entry()};
  return registry;
}

const KernelEntry& kernel_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KernelEntry& entry : kernel_registry()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw UserError(fmt::format("no kernel '{}'", name),
                  fmt::format("one of {}, or a .tile file", fmt::join(names, ", ")));
}

}  // namespace kiln
