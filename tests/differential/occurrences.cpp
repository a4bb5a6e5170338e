#include "tests/differential/occurrences.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "ir/walk.h"

namespace kiln::differential {
namespace {

bool is_late(OpCode code) {
  return code >= OpCode::Roles && code <= OpCode::NextTile;
}
// Made by passes only.
bool is_lowered(OpCode code) {
  return code == OpCode::Convert || code == OpCode::Barrier || code == OpCode::WaitCopies ||
         code == OpCode::CommitCopies;
}
bool is_lowered(const OpInfo& op, const AttrInfo& attr) {
  const std::string& name = attr.name;
  if (op.code == OpCode::Parallel && name == "layout") return true;
  return name == "instruction" || name == "fast" || name == "offset" || name == "warps" ||
         name == "shared" || name == "pending" || name == "reason" || name == "group";
}
bool is_lowered(const OpInfo& op, const OperandInfo& operand) {
  return op.code == OpCode::Reduce && operand.name == "scratch";
}
// Names, texts and constants, which have no few values; extents.
bool is_free(const AttrInfo& attr) {
  const bool text = attr.type == AttrType::Text && !attr.default_value;
  return text || attr.name == "value" || attr.type == AttrType::Ints;
}

// A few words for the value of an attribute: itself if there are few.
std::string value_of(const AttrInfo& attr, const AttrValue& value) {
  if (attr.type == AttrType::Bool) return std::get<bool>(value) ? "true" : "false";
  if (attr.type == AttrType::Word) return std::get<std::string>(value);
  if (attr.name == "dim" || attr.name == "stages") return std::to_string(std::get<int64_t>(value));
  return attr.default_value == value ? "default" : "given";
}

std::vector<std::string> values_of(const AttrInfo& attr) {
  if (attr.type == AttrType::Bool) return {"false", "true"};
  if (attr.type == AttrType::Word) return attr.words;
  if (attr.name == "dim") return {"0", "1", "2", "3"};
  if (attr.name == "stages") return {"0", "1", "2", "3", "4", "5"};
  if (!attr.default_value) return {"given"};
  return {"default", "given"};
}

std::string space_of(const Type& type) {
  if (type.kind == Kind::Tensor) return "tensor";
  return type.space == Space::Shared     ? "shared tile"
         : type.space == Space::Fragment ? type.shape.empty() ? "variable" : "fragment"
                                         : "local tile";
}

void note(const Kernel& kernel, const Op& op, Occurrences& found) {
  const OpInfo& row = info(op.code);
  found.insert(fmt::format("op {}", row.name));
  // What a serial loop says of stages means nothing.
  const bool has_stages = op.code != OpCode::For || op.word("kind") == "pipelined";
  for (const AttrInfo& attr : row.attrs)
    if (!is_free(attr) && !is_lowered(row, attr) && (attr.name != "stages" || has_stages))
      found.insert(
          fmt::format("{} {}={}", row.name, attr.name, value_of(attr, op.attr(attr.name))));
  for (size_t i = 0; i < row.operands.size(); ++i)
    if (row.operands[i].optional && !is_lowered(row, row.operands[i]))
      found.insert(fmt::format("{} {} {}", row.name, row.operands[i].name,
                               op.operand(i) ? "given" : "left out"));
  if (row.max_regions > row.min_regions)
    found.insert(fmt::format("{} regions={}", row.name, op.regions.size()));
  if (op.code == OpCode::Launch) found.insert(fmt::format("launch extents={}", op.operands.size()));
  if (op.code == OpCode::Parallel)
    found.insert(fmt::format("parallel extents={}", op.ints("extents").size()));
  if (op.code == OpCode::Alloc || op.code == OpCode::Tensor) {
    const Type& type = kernel.type(op.result);
    found.insert(fmt::format("{} {}", space_of(type), name(type.dtype)));
  }
}

}  // namespace

Occurrences occurrences_in(const Kernel& kernel) {
  Occurrences found;
  found.insert(kernel.fast_math ? "fast_math on" : "fast_math off");
  walk(kernel, kernel.body, [&](OpId id) { note(kernel, kernel.op(id), found); });
  return found;
}

std::vector<std::string> all_occurrences() {
  std::vector<std::string> all = {"fast_math on", "fast_math off"};
  for (const OpInfo& row : op_table()) {
    if (is_late(row.code) || is_lowered(row.code)) continue;
    all.push_back(fmt::format("op {}", row.name));
    for (const AttrInfo& attr : row.attrs)
      if (!is_free(attr) && !is_lowered(row, attr))
        for (const std::string& value : values_of(attr))
          all.push_back(fmt::format("{} {}={}", row.name, attr.name, value));
    for (const OperandInfo& operand : row.operands)
      if (operand.optional && !is_lowered(row, operand))
        for (const char* word : {"given", "left out"})
          all.push_back(fmt::format("{} {} {}", row.name, operand.name, word));
    for (int n = row.min_regions; n <= row.max_regions && row.max_regions > row.min_regions; ++n)
      all.push_back(fmt::format("{} regions={}", row.name, n));
    const int axes = row.code == OpCode::Launch ? 3 : row.code == OpCode::Parallel ? 4 : 0;
    for (int n = 1; n <= axes; ++n) all.push_back(fmt::format("{} extents={}", row.name, n));
  }
  for (const char* space : {"tensor", "shared tile", "fragment", "variable", "local tile"})
    for (DType dtype : kAllDTypes) all.push_back(fmt::format("{} {}", space, name(dtype)));
  return all;
}

Occurrences lowered_occurrences_in(const Kernel& kernel) {
  Occurrences found;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    const OpInfo& row = info(op.code);
    if (is_lowered(op.code)) found.insert(fmt::format("lowered op {}", row.name));
    for (const AttrInfo& attr : row.attrs)
      if (is_lowered(row, attr) && (attr.name == "instruction" || attr.name == "fast"))
        found.insert(fmt::format("lowered {} {}={}", row.name, attr.name,
                                 value_of(attr, op.attr(attr.name))));
    for (size_t i = 0; i < row.operands.size(); ++i)
      if (is_lowered(row, row.operands[i]) && op.operand(i))
        found.insert(fmt::format("lowered {} {} given", row.name, row.operands[i].name));
  });
  return found;
}

std::vector<std::string> all_lowered_occurrences() {
  std::vector<std::string> all = {"lowered reduce scratch given"};
  for (const OpInfo& row : op_table()) {
    if (is_lowered(row.code)) all.push_back(fmt::format("lowered op {}", row.name));
    for (const AttrInfo& attr : row.attrs) {
      if (attr.name == "fast") all.push_back(fmt::format("lowered {} fast=true", row.name));
      if (attr.name != "instruction" || is_late(row.code)) continue;
      for (const std::string& word : attr.words)
        if (word != "any") all.push_back(fmt::format("lowered {} instruction={}", row.name, word));
    }
  }
  return all;
}

}  // namespace kiln::differential
