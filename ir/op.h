// Ops: one struct, described by one table (ops.def). No class per kind of op.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/loc.h"
#include "ir/type.h"

namespace kiln {

// 32-bit handles into the arenas of a Kernel: cheap to copy, valid for the kernel's life and in its
// copies.
template <class Tag>
struct Handle {
  static constexpr uint32_t kNone = ~0u;
  uint32_t id = kNone;
  explicit operator bool() const { return id != kNone; }
  auto operator<=>(const Handle&) const = default;
};
using Value = Handle<struct ValueTag>;
using OpId = Handle<struct OpTag>;
using RegionId = Handle<struct RegionTag>;

enum class OpCode : uint8_t {
#define KILN_OP(code, ...) code,
#include "ir/ops.def"
};

enum class Effect : uint8_t { None, Read, Write, Update };  // Write: all of it, without reading

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>>;

enum class AttrType : uint8_t { Bool, Int, Float, Number, Word, Text, Ints };

struct OperandInfo {
  std::string name;
  Effect effect = Effect::None;
  bool optional = false;
  bool repeated = false;
};
struct AttrInfo {
  std::string name;
  AttrType type = AttrType::Int;
  std::vector<std::string> words;          // of a Word
  std::optional<AttrValue> default_value;  // none: required
};

// One row of the table.
struct OpInfo {
  OpCode code;
  std::string_view name;
  std::vector<OperandInfo> operands;
  bool has_result;
  std::vector<AttrInfo> attrs;
  bool pure;        // no effect: may be removed, merged, moved
  bool variable;    // may be removed if unused, never merged
  bool top, inner;  // only at top level; only inside a launch
  int min_regions, max_regions;
  std::string_view doc;

  int min_operands() const;
  int max_operands() const;                        // INT_MAX if the last is repeated
  const OperandInfo& operand(size_t index) const;  // the last stands for all repeated ones
  const AttrInfo* attr(std::string_view name) const;
};
const OpInfo& info(OpCode code);
std::optional<OpCode> opcode_from_name(std::string_view name);
const std::vector<OpInfo>& op_table();

// Attributes by name. Those of an op hold no value that equals its default (Kernel::new_op).
class Attrs {
 public:
  using Entry = std::pair<std::string, AttrValue>;
  const AttrValue* find(std::string_view name) const;
  void set(std::string_view name, AttrValue value);  // keeps entries sorted by name
  void erase(std::string_view name);
  const std::vector<Entry>& entries() const { return entries_; }
  bool operator==(const Attrs&) const = default;

 private:
  std::vector<Entry> entries_;
};

struct Op {
  OpCode code;
  Loc loc;
  std::vector<Value> operands;  // an absent optional operand that others follow is a none handle
  Value result;                 // none if the op has no result
  Attrs attrs;
  std::vector<RegionId> regions;

  // The attribute, or its default. InternalError if the op has neither.
  const AttrValue& attr(std::string_view name) const;
  bool flag(std::string_view name) const { return std::get<bool>(attr(name)); }
  int64_t integer(std::string_view name) const { return std::get<int64_t>(attr(name)); }
  double real(std::string_view name) const { return std::get<double>(attr(name)); }
  const std::string& word(std::string_view name) const { return std::get<std::string>(attr(name)); }
  const std::vector<int64_t>& ints(std::string_view name) const {
    return std::get<std::vector<int64_t>>(attr(name));
  }
  Value operand(size_t index) const { return index < operands.size() ? operands[index] : Value{}; }
};

struct Region {
  std::vector<Value> args;
  std::vector<OpId> ops;
};

}  // namespace kiln
