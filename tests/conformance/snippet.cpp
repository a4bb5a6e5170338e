#include "tests/conformance/snippet.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/dtype.h"
#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

double value_of(Element element, uint64_t slot) {
  switch (element) {
    case Element::F16: return from_bits16(DType::F16, static_cast<uint16_t>(slot));
    case Element::BF16: return from_bits16(DType::BF16, static_cast<uint16_t>(slot));
    case Element::F32: return as<float>(slot);
    default: return as<double>(slot);
  }
}

bool agree(Element element, const Tolerance& tolerance, uint64_t got, uint64_t expected) {
  if (got == expected) return true;
  if (element == Element::Bits) return false;
  if (element == Element::F16x2 || element == Element::BF16x2) {
    Element half = element == Element::F16x2 ? Element::F16 : Element::BF16;
    return got >> 32 == expected >> 32 && agree(half, tolerance, got & 0xffff, expected & 0xffff) &&
           agree(half, tolerance, got >> 16 & 0xffff, expected >> 16 & 0xffff);
  }
  double a = value_of(element, got), b = value_of(element, expected);
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  double allowed = tolerance.absolute + tolerance.relative * std::abs(b);
  return allowed > 0 && std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= allowed;
}

}  // namespace

std::string header(int target, bool architecture_only) {
  return fmt::format(".version 8.4\n.target sm_{}{}\n.address_size 64\n", target,
                     architecture_only ? "a" : "");
}

std::string Snippet::ptx() const {
  return header(target, architecture_only) + text;
}

std::vector<Snippet> all_snippets() {
  Table table;
  for (auto add :
       {add_integer, add_bits, add_float, add_half, add_math, add_compare, add_convert, add_memory,
        add_atomic, add_warp, add_matrix, add_mma, add_wgmma, add_mbarrier, add_bulk})
    add(table);
  return table.take();
}

std::optional<std::string> mismatch(const Snippet& snippet, const std::vector<uint64_t>& output) {
  size_t wrong = 0, first = 0;
  for (size_t i = output.size(); i-- > 0;)
    if (!agree(snippet.element, snippet.tolerance, output[i], snippet.expected[i])) {
      ++wrong;
      first = i;
    }
  if (wrong == 0) return std::nullopt;
  size_t threads = static_cast<size_t>(snippet.threads);
  size_t thread = first / (output.size() / threads);
  std::string operands;
  for (size_t i = 0, count = snippet.input.size() / threads; i < count; ++i)
    operands += fmt::format("{}{:#x}", i ? ", " : "", snippet.input[thread * count + i]);
  return fmt::format("{}: thread {}, operands {}: got {:#x}, expected {:#x}; {} of {} differ",
                     snippet.name, thread, operands, output[first], snippet.expected[first], wrong,
                     output.size());
}

}  // namespace kiln::conformance
