#include "tests/conformance/table.h"

#include <fmt/format.h>

namespace kiln::conformance {
namespace {

const std::vector<uint64_t> kF16 = {0,      0x8000, 0x7c00, 0xfc00, 0x7e00, 0x0001, 0x8001,
                                    0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x3555};
const std::vector<uint64_t> kBF16 = {0,      0x8000, 0x7f80, 0xff80, 0x7fc0, 0x0001, 0x8001,
                                     0x007f, 0x0080, 0x3f80, 0xbf80, 0x7f7f, 0xff7f, 0x3eab};
const std::vector<uint64_t> kF32 = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
                                    0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000,
                                    0xbf800000, 0x7f7fffff, 0xff7fffff, 0x40490fdb, 0x4b000001,
                                    0x33800000, 0x3f000000, 0xc0200000, 0x4f000000, 0x477fefff};
const std::vector<uint64_t> kF64 = {0x0000000000000000, 0x8000000000000000, 0x7ff0000000000000,
                                    0xfff0000000000000, 0x7ff8000000000000, 0x0000000000000001,
                                    0x000fffffffffffff, 0x0010000000000000, 0x3ff0000000000000,
                                    0xbff0000000000000, 0x7fefffffffffffff, 0x400921fb54442d18,
                                    0x3fe0000000000000, 0xc004000000000000, 0x41e0000000000000};

char register_letter(std::string_view type) {
  size_t bytes = width(type);
  return bytes <= 2 ? 'h' : bytes == 4 ? 'r' : 'd';
}

std::string entry_name(size_t index) {
  return fmt::format("snippet_{}", index);
}

uint64_t pick(const std::vector<uint64_t>& from, std::mt19937_64& random) {
  return from[random() % from.size()];
}

// `near` is the pattern of 1.
uint64_t random_float(const std::vector<uint64_t>& special, uint64_t near, uint64_t spread,
                      uint64_t mask, std::mt19937_64& random) {
  switch (random() % 3) {
    case 0: return pick(special, random);
    case 1: return (near - spread + random() % (2 * spread)) | (random() & ~(mask >> 1) & mask);
    default: return random() & mask;
  }
}

}  // namespace

size_t width(std::string_view type) {
  if (type == "f16x2" || type == "bf16x2" || type.substr(0, 4) == "s16x" || type == "tf32")
    return 4;
  size_t digits = type.find_first_of("123456789");
  return static_cast<size_t>(std::stoi(std::string(type.substr(digits)))) / 8;
}

uint64_t random_value(std::string_view type, std::mt19937_64& random) {
  if (type == "f16") return random_float(kF16, 0x3c00, 0x0800, 0xffff, random);
  if (type == "bf16") return random_float(kBF16, 0x3f80, 0x0200, 0xffff, random);
  if (type == "f32") return random_float(kF32, 0x3f800000, 0x02000000, 0xffffffff, random);
  if (type == "f64")
    return random_float(kF64, 0x3ff0000000000000, 0x0040000000000000, ~uint64_t{0}, random);
  if (type == "f16x2" || type == "bf16x2") {
    type.remove_suffix(2);
    uint64_t low = random_value(type, random);
    return random_value(type, random) << 16 | low;
  }
  size_t unused = 64 - 8 * width(type);
  uint64_t mask = ~uint64_t{0} >> unused, top = (mask >> 1) + 1;
  switch (random() % 4) {
    case 0: return pick({0, 1, 2, mask, mask - 1, top, top - 1, top + 1}, random);
    case 1: return random() % 72 & mask;
    default: return random() & mask;
  }
}

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

std::string Table::next_entry() const {
  return entry_name(snippets_.size());
}

Row hopper_row(size_t threads, const std::string& name, const std::string& text,
               std::vector<std::string> results, std::vector<std::string> operands) {
  Row made;
  made.text = text;
  made.results = std::move(results);
  made.operands = std::move(operands);
  made.target = 90;
  made.threads = static_cast<int>(threads);
  made.name = name;
  return made;
}

void Table::add(const Row& row, const Results& results) {
  Snippet snippet;
  snippet.name = row.name.empty() ? row.text : row.name;
  snippet.entry = next_entry();
  snippet.target = row.target;
  snippet.threads = row.threads;
  snippet.element = row.element;
  snippet.tolerance = row.tolerance;
  std::vector<std::string> types = row.results;
  types.insert(types.end(), row.operands.begin(), row.operands.end());
  auto name = [&](size_t i) { return fmt::format("%{}{}", register_letter(types[i]), 16 + i); };
  std::string load, body = row.text, store;
  for (size_t i = types.size(); i-- > 0;) body = replaced(body, fmt::format("${}", i), name(i));
  for (size_t i = 0; i < row.operands.size(); ++i)
    load += fmt::format("ld.global.b{} {}, [%d1+{}];\n", 8 * width(row.operands[i]),
                        name(row.results.size() + i), 8 * i);
  for (size_t i = 0; i < row.results.size(); ++i)
    store += fmt::format("st.global.b{} [%d0+{}], {};\n", 8 * width(types[i]), 8 * i, name(i));
  snippet.text = fmt::format(
      ".visible .entry {}(.param .u64 p0, .param .u64 p1)\n{{\n"
      ".reg .pred %p<16>; .reg .b16 %h<48>; .reg .b32 %r<48>; .reg .b64 %d<48>;\n"
      "mov.u32 %r0, %tid.x; ld.param.u64 %d1, [p0]; ld.param.u64 %d0, [p1];\n"
      "mad.wide.u32 %d1, %r0, {}, %d1; mad.wide.u32 %d0, %r0, {}, %d0;\n{}{}\n{}ret;\n}}\n",
      snippet.entry, 8 * row.operands.size(), 8 * row.results.size(), load, body, store);

  std::mt19937_64 random(snippets_.size() + 1);
  size_t threads = static_cast<size_t>(row.threads);
  for (size_t thread = 0; thread < threads; ++thread)
    for (size_t i = 0; i < row.operands.size(); ++i)
      snippet.input.push_back(row.value ? row.value(thread, i, random)
                                        : random_value(row.operands[i], random));
  Operands in{snippet.input, row.operands.size()};
  for (size_t thread = 0; thread < threads; ++thread)
    for (uint64_t slot : results(in, thread)) snippet.expected.push_back(slot);
  snippets_.push_back(std::move(snippet));
}

void Table::add(const Row& row, const Lane& lane) {
  add(row, [&](const Operands& in, size_t thread) {
    return std::vector<uint64_t>{lane(&in.all[thread * in.count])};
  });
}

}  // namespace kiln::conformance
