#include "ir/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <map>
#include <sstream>

#include "ir/error.h"

namespace kiln {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in{std::string(text)};
  for (std::string part; std::getline(in, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

OperandInfo parse_operand(std::string text) {
  OperandInfo operand;
  if (text.size() > 2 && text[1] == ':') {
    operand.effect = text[0] == 'r'   ? Effect::Read
                     : text[0] == 'w' ? Effect::Write
                                      : Effect::Update;
    text.erase(0, 2);
  }
  operand.optional = text.back() == '?';
  operand.repeated = text.back() == '*';
  if (operand.optional || operand.repeated) text.pop_back();
  operand.name = text;
  return operand;
}

AttrInfo parse_attr(const std::string& text) {
  AttrInfo attr;
  size_t colon = text.find(':'), equals = text.find('=');
  attr.name = text.substr(0, colon);
  std::string type = text.substr(colon + 1, equals == text.npos ? text.npos : equals - colon - 1);
  std::string value = equals == text.npos ? "" : text.substr(equals + 1);
  bool has_default = equals != text.npos;
  if (type == "bool") {
    attr.type = AttrType::Bool;
    if (has_default) attr.default_value = value == "true";
  } else if (type == "int") {
    attr.type = AttrType::Int;
    if (has_default) attr.default_value = int64_t{std::stoll(value)};
  } else if (type == "float") {
    attr.type = AttrType::Float;
    if (has_default) attr.default_value = std::stod(value);
  } else if (type == "number") {
    attr.type = AttrType::Number;
  } else if (type == "ints") {
    attr.type = AttrType::Ints;
  } else if (type == "str") {
    attr.type = AttrType::Text;
    if (has_default) attr.default_value = value;
  } else {
    attr.type = AttrType::Word;
    attr.words = split(type, '|');
    if (has_default) attr.default_value = value;
  }
  return attr;
}

OpInfo parse_row(OpCode code, std::string_view name, std::string_view operands,
                 std::string_view results, std::string_view attrs, std::string_view traits,
                 std::string_view doc) {
  OpInfo op{code, name, {}, !results.empty(), {}, false, false, true, true, 0, 0, doc};
  for (const auto& text : split(operands, ' ')) op.operands.push_back(parse_operand(text));
  for (const auto& text : split(attrs, ' ')) op.attrs.push_back(parse_attr(text));
  for (const auto& trait : split(traits, ' ')) {
    if (trait == "pure") op.pure = true;
    if (trait == "variable") op.variable = true;
    if (trait == "top") op.inner = false;
    if (trait == "inner") op.top = false;
    if (trait.starts_with("regions=")) {
      op.min_regions = trait[8] - '0';
      op.max_regions = trait.back() - '0';
    }
  }
  return op;
}

}  // namespace

const std::vector<OpInfo>& op_table() {
  static const std::vector<OpInfo> table = {
#define KILN_OP(code, name, operands, results, attrs, traits, doc) \
  parse_row(OpCode::code, name, operands, results, attrs, traits, doc),
#include "ir/ops.def"
  };
  return table;
}

const OpInfo& info(OpCode code) {
  return op_table()[static_cast<size_t>(code)];
}

std::optional<OpCode> opcode_from_name(std::string_view name) {
  static const std::map<std::string_view, OpCode> by_name = [] {
    std::map<std::string_view, OpCode> map;
    for (const OpInfo& op : op_table()) map[op.name] = op.code;
    return map;
  }();
  auto it = by_name.find(name);
  return it == by_name.end() ? std::nullopt : std::optional(it->second);
}

int OpInfo::min_operands() const {
  return static_cast<int>(std::count_if(operands.begin(), operands.end(), [](const auto& operand) {
    return !operand.optional && !operand.repeated;
  }));
}

int OpInfo::max_operands() const {
  return !operands.empty() && operands.back().repeated ? INT_MAX
                                                       : static_cast<int>(operands.size());
}

const OperandInfo& OpInfo::operand(size_t index) const {
  if (index >= operands.size() && max_operands() != INT_MAX)
    throw InternalError(fmt::format("{} has no operand {}", name, index));
  return operands[std::min(index, operands.size() - 1)];
}

const AttrInfo* OpInfo::attr(std::string_view attr_name) const {
  for (const AttrInfo& attr : attrs)
    if (attr.name == attr_name) return &attr;
  return nullptr;
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : entries_)
    if (key == name) return &value;
  return nullptr;
}

void Attrs::set(std::string_view name, AttrValue value) {
  auto it =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view key) { return entry.first < key; });
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, std::string(name), std::move(value));
  }
}

void Attrs::erase(std::string_view name) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.first == name; });
}

const AttrValue& Op::attr(std::string_view name) const {
  if (const AttrValue* value = attrs.find(name)) return *value;
  const AttrInfo* attr = info(code).attr(name);
  if (!attr || !attr->default_value)
    throw InternalError(loc, fmt::format("{} has no attribute '{}'", info(code).name, name));
  return *attr->default_value;
}

}  // namespace kiln
