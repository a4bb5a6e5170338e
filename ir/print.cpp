#include "ir/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "ir/text.h"

namespace kiln {
namespace {

// Gives every value of a kernel a name, in the order of the text.
class Names {
 public:
  explicit Names(const Kernel& kernel) : kernel_(kernel), names_(kernel.value_count()) {
    name_region(kernel.body);
  }

  const std::string& operator[](Value value) {
    std::string& name = names_.at(value.id);
    if (name.empty()) name = numbered("undefined", 0);
    return name;
  }

  // Also serves ops that no region lists.
  void name_op(const Op& op) {
    for (Value operand : op.operands)
      if (operand) (*this)[operand];
    if (op.result && names_[op.result.id].empty()) names_[op.result.id] = result_name(op);
    for (RegionId region : op.regions) {
      const std::vector<Value>& args = kernel_.region(region).args;
      for (size_t i = 0; i < args.size(); ++i)
        names_[args[i].id] = unique(argument_name(op.code, i));
      name_region(region);
    }
  }

 private:
  void name_region(RegionId region) {
    for (OpId op : kernel_.region(region).ops) name_op(kernel_.op(op));
  }

  std::string result_name(const Op& op) {
    const AttrValue* given = op.attrs.find("name");
    const auto* text = given ? std::get_if<std::string>(given) : nullptr;
    if (!text || text->empty()) return numbered(std::string(info(op.code).name), 0);
    std::string name = *text;
    for (char& c : name)
      if (!is_name_part(c)) c = '_';
    if (!is_name_start(name[0])) name.insert(0, 1, '_');
    return unique(name);
  }

  static const char* argument_name(OpCode code, size_t index) {
    static constexpr const char* kBlocks[] = {"bx", "by", "bz"};
    static constexpr const char* kAxes[] = {"i", "j", "k", "l"};
    if (code == OpCode::Launch && index < std::size(kBlocks)) return kBlocks[index];
    if (code == OpCode::Parallel && index < std::size(kAxes)) return kAxes[index];
    return code == OpCode::For || code == OpCode::Selected ? "k" : "arg";
  }

  std::string unique(const std::string& base) {
    return taken_.insert(base).second ? base : numbered(base, 1);
  }

  std::string numbered(const std::string& base, int first) {
    int& next = next_.try_emplace(base, first).first->second;
    for (;;) {
      std::string name = fmt::format("{}.{}", base, next++);
      if (taken_.insert(name).second) return name;
    }
  }

  const Kernel& kernel_;
  std::vector<std::string> names_;
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> next_;
};

class Printer {
 public:
  Printer(const Kernel& kernel, const PrintOptions& options)
      : kernel_(kernel), options_(options), names_(kernel) {}

  std::string whole() {
    std::vector<std::string> attributes;
    if (kernel_.fast_math) attributes.push_back("fast_math = true");
    if (!kernel_.target.empty()) attributes.push_back("target = " + quoted(kernel_.target));
    if (!kernel_.without.empty()) attributes.push_back("without = " + quoted(kernel_.without));
    if (!kernel_.note.empty()) attributes.push_back("note = " + quoted(kernel_.note));
    write("kernel @{}", is_name(kernel_.name) ? kernel_.name : quoted(kernel_.name));
    if (!attributes.empty()) write(" {{{}}}", fmt::join(attributes, ", "));
    write(" {{\n");
    region_ops(kernel_.body, 1);
    text_ += "}\n";
    return std::move(text_);
  }

  std::string line(OpId op) {
    names_.name_op(kernel_.op(op));
    head(kernel_.op(op));
    return std::move(text_);
  }

 private:
  template <class... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void region_ops(RegionId region, int depth) {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      text_.append(2 * depth, ' ');
      head(op);
      for (RegionId inner : op.regions) {
        text_ += " do ";
        arguments(kernel_.region(inner).args);
        text_ += "{\n";
        region_ops(inner, depth + 1);
        text_.append(2 * depth, ' ');
        text_ += '}';
      }
      text_ += '\n';
    }
  }

  void arguments(const std::vector<Value>& args) {
    if (args.empty()) return;
    const char* separator = "|";
    for (Value arg : args) {
      write("{}%{}: {}", separator, names_[arg], str(kernel_.type(arg)));
      separator = ", ";
    }
    text_ += "| ";
  }

  void head(const Op& op) {
    if (op.result) write("%{} = ", names_[op.result]);
    text_ += info(op.code).name;
    const char* separator = " ";
    for (Value operand : op.operands) {
      text_ += separator;
      if (operand) {
        write("%{}", names_[operand]);
      } else {
        text_ += '_';
      }
      separator = ", ";
    }
    attributes(op);
    if (op.result) write(" : {}", str(kernel_.type(op.result)));
    if (options_.locations && op.loc.known()) write(" at {}:{}", quoted(op.loc.file), op.loc.line);
  }

  // In the order of the table, then those that the table does not know.
  void attributes(const Op& op) {
    const OpInfo& row = info(op.code);
    const char* separator = " {";
    auto one = [&](std::string_view name, const AttrInfo* attr, const AttrValue& value) {
      write("{}{} = {}", separator, name, attribute(op, attr, value));
      separator = ", ";
    };
    for (const AttrInfo& attr : row.attrs)
      if (const AttrValue* value = op.attrs.find(attr.name)) one(attr.name, &attr, *value);
    for (const auto& [name, value] : op.attrs.entries())
      if (!row.attr(name)) one(name, nullptr, value);
    if (*separator == ',') text_ += '}';
  }

  std::string attribute(const Op& op, const AttrInfo* attr, const AttrValue& value) {
    if (auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (auto* integer = std::get_if<int64_t>(&value)) {
      const bool number = attr && attr->type == AttrType::Number && op.result;
      const DType dtype = number ? kernel_.type(op.result).dtype : I64;
      if (is_float(dtype)) return float_text(static_cast<double>(*integer));
      if (dtype == U64) return fmt::format("{}", static_cast<uint64_t>(*integer));
      if (dtype == Bool && (*integer == 0 || *integer == 1)) return *integer ? "true" : "false";
      return fmt::format("{}", *integer);
    }
    if (auto* real = std::get_if<double>(&value)) return float_text(*real);
    if (auto* list = std::get_if<std::vector<int64_t>>(&value))
      return fmt::format("[{}]", fmt::join(*list, ", "));
    const std::string& text = std::get<std::string>(value);
    return attr && attr->type == AttrType::Word && is_name(text) ? text : quoted(text);
  }

  const Kernel& kernel_;
  PrintOptions options_;
  Names names_;
  std::string text_;
};

}  // namespace

std::string print(const Kernel& kernel, const PrintOptions& options) {
  return Printer(kernel, options).whole();
}

std::string print_op(const Kernel& kernel, OpId op) {
  return Printer(kernel, {}).line(op);
}

}  // namespace kiln
