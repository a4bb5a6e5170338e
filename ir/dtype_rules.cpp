#include "ir/dtype_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace kiln {
namespace {

constexpr std::string_view kPrecise = "f32 keeps its precision, mma would round it to tf32";
constexpr std::string_view kWide = "mma takes no f64";

constexpr GemmDTypes kGemm[] = {
    {F16, F32, true, "", true},         {BF16, F32, true, "", true},
    {F32, F32, false, kPrecise, false}, {F64, F32, false, kWide, false},
    {E4M3, F32, true, "", false},       {E5M2, F32, true, "", false},
    {F64, F64, false, kWide, false},    {I8, I32, true, "", false},
    {U8, I32, true, "", false},
};

template <class Holds>
std::string operands_text(Holds&& holds) {
  return dtypes_text([&](DType dtype) {
    return std::any_of(std::begin(kGemm), std::end(kGemm),
                       [&](const GemmDTypes& row) { return row.operands == dtype && holds(row); });
  });
}

}  // namespace

std::span<const GemmDTypes> gemm_dtypes() {
  return kGemm;
}

const GemmDTypes* gemm_dtypes(DType operands, DType accumulator) {
  for (const GemmDTypes& row : kGemm)
    if (row.operands == operands && row.accumulator == accumulator) return &row;
  return nullptr;
}

std::string gemm_dtypes_text() {
  std::vector<std::string> accumulators;
  for (DType c : kAllDTypes) {
    const std::string operands =
        operands_text([&](const GemmDTypes& row) { return row.accumulator == c; });
    if (!operands.empty())
      accumulators.push_back(
          fmt::format("{} ({}{})", name(c), accumulators.empty() ? "a, b of " : "", operands));
  }
  return "c of " + words_or(accumulators);
}

std::string mma_dtypes_text() {
  return operands_text([](const GemmDTypes& row) { return row.mma; });
}
std::string wgmma_dtypes_text() {
  return operands_text([](const GemmDTypes& row) { return row.wgmma; });
}

bool is_bitwise(std::string_view kind) {
  return kind == "and" || kind == "or" || kind == "xor";
}

bool atomic_takes(std::string_view kind, DType dtype) {
  return size_of(dtype) >= 4 && !(is_float(dtype) && is_bitwise(kind));
}

std::string words_or(std::span<const std::string> words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

}  // namespace kiln
