#include "ir/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <unordered_map>

#include "ir/error.h"
#include "ir/parse_parts.h"
#include "ir/text.h"
#include "ir/token_stream.h"

namespace kiln {
namespace {

// Regions within regions that the text may have; everything that walks a kernel recurses on them.
constexpr int kMaxDepth = 128;

std::string counted(size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Operands that the text must have, absent optional ones before the last required one included.
size_t required_operands(const OpInfo& row) {
  size_t count = row.operands.size();
  while (count > 0 && (row.operands[count - 1].optional || row.operands[count - 1].repeated))
    --count;
  return count;
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view file) : in_(text, file) {}

  Kernel run() {
    if (!in_.peek().is("kernel")) in_.fail_expected("'kernel @name { ... }'");
    in_.take();
    in_.expect('@', "before the kernel's name");
    kernel_.name = kernel_name();
    if (in_.peek().is('{') && in_.peek(1).kind == TokenKind::Name && in_.peek(2).is('='))
      kernel_attributes();
    body(kernel_.body);
    if (in_.peek().kind != TokenKind::End)
      in_.fail(in_.peek(),
               fmt::format("expected nothing after the kernel, got {}", describe(in_.peek())));
    return std::move(kernel_);
  }

 private:
  struct Definition {
    Value value;
    Loc loc;
    bool open;  // false once its region has ended
  };

  std::string kernel_name() {
    const Token& token = in_.peek();
    if (token.kind != TokenKind::String && !is_name(token.text))
      in_.fail_expected("the kernel's name, as in @softmax or @\"soft max\"");
    in_.take();
    return token.kind == TokenKind::String ? token.string : std::string(token.text);
  }

  void kernel_attributes() {
    static const AttrInfo kFastMath{"fast_math", AttrType::Bool, {}, AttrValue(false)};
    static const AttrInfo kTarget{"target", AttrType::Text, {}, AttrValue(std::string())};
    static const AttrInfo kWithout{"without", AttrType::Text, {}, AttrValue(std::string())};
    static const AttrInfo kNote{"note", AttrType::Text, {}, AttrValue(std::string())};
    in_.expect('{', "before the kernel's attributes");
    do {
      const AttrInfo* attribute = nullptr;
      for (const AttrInfo* known : {&kFastMath, &kTarget, &kWithout, &kNote})
        if (in_.peek().is(known->name)) attribute = known;
      if (!attribute)
        in_.fail(in_.peek(), fmt::format("a kernel has no attribute {}", describe(in_.peek())),
                 "its attributes are 'fast_math', 'target', 'without' and 'note'");
      in_.take();
      in_.expect('=', "after the attribute's name");
      AttrValue value = parse_attribute(in_, *attribute);
      if (attribute == &kFastMath)
        kernel_.fast_math = std::get<bool>(value);
      else
        (attribute == &kTarget    ? kernel_.target
         : attribute == &kWithout ? kernel_.without
                                  : kernel_.note) = std::get<std::string>(value);
    } while (in_.accept(','));
    in_.expect('}', "after the kernel's attributes");
  }

  void body(RegionId region) {
    const Token& brace = in_.expect('{', "before the ops");
    if (++depth_ > kMaxDepth)
      in_.fail(brace, fmt::format("regions are nested deeper than {}", kMaxDepth));
    while (!in_.accept('}')) {
      if (in_.peek().kind == TokenKind::End)
        in_.fail(in_.peek(), fmt::format("expected '}}' for the '{{' of line {}, got the end of "
                                         "the text",
                                         in_.loc(brace).line));
      op(region);
    }
    --depth_;
  }

  // do |%i: i32, %j: i32| { ... }
  void region(OpId parent) {
    RegionId region = kernel_.new_region();
    kernel_.op(parent).regions.push_back(region);
    scopes_.emplace_back();
    if (in_.accept('|')) {
      do {
        const Token& name = in_.expect(TokenKind::Value, "an argument, as in |%i: i32|");
        in_.expect(':', "and a type after the argument");
        define(name, kernel_.add_argument(region, parse_type(in_)));
      } while (in_.accept(','));
      in_.expect('|', "after the arguments");
    }
    body(region);
    for (const std::string& name : scopes_.back()) names_.at(name).open = false;
    scopes_.pop_back();
  }

  // [%result =] name operands {attributes} : type at "file":line do ...
  void op(RegionId parent) {
    const Token& first = in_.peek();
    const bool named = first.kind == TokenKind::Value;
    if (named) {
      in_.take();
      in_.expect('=', "after the name of a result");
    }
    const Token& name = in_.peek();
    const OpInfo& row = operation();
    if (named && !row.has_result)
      in_.fail(first, fmt::format("{} has no result to name", row.name), "leave out '%name ='");
    if (!named && row.has_result)
      in_.fail(first, fmt::format("{} has a result: expected '%name = {}'", row.name, row.name));

    std::vector<Value> operands = this->operands(row, name);
    Attributes attributes = this->attributes(row, name);
    Type type;
    if (row.has_result) {
      if (!in_.peek().is(':')) in_.fail_expected(fmt::format("':' and the type of {}", row.name));
      in_.take();
      type = parse_type(in_);
      if (attributes.number)
        attributes.values.set(attributes.number->name,
                              number_of(in_, attributes.literal, type.dtype));
    } else if (in_.peek().is(':')) {
      in_.fail(in_.peek(), fmt::format("{} has no result, so no type", row.name));
    }
    OpId id = kernel_.new_op(row.code, location(name), std::move(operands), attributes.values);
    kernel_.region(parent).ops.push_back(id);
    if (row.has_result) define(first, kernel_.set_result(id, std::move(type)));
    regions(row, id, name);
  }

  const OpInfo& operation() {
    const Token& token = in_.peek();
    if (token.kind != TokenKind::Name)
      in_.fail(token, fmt::format("expected an op, got {}", describe(token)));
    in_.take();
    if (auto code = opcode_from_name(token.text)) return info(*code);
    std::vector<std::string> names;
    for (const OpInfo& row : op_table()) names.emplace_back(row.name);
    const std::string near = nearest(token.text, names);
    in_.fail(token, fmt::format("unknown op {}", describe(token)),
             near.empty() ? "" : fmt::format("'{}'", near));
  }

  std::vector<Value> operands(const OpInfo& row, const Token& name) {
    std::vector<Value> operands;
    const size_t required = required_operands(row);
    const auto most = static_cast<size_t>(row.max_operands());
    // A value before '=' begins the next op.
    auto starts_operand = [&] {
      return (in_.peek().kind == TokenKind::Value && !in_.peek(1).is('=')) || in_.peek().is("_");
    };
    if (starts_operand()) {
      do {
        const Token& token = in_.peek();
        if (operands.size() >= most)
          in_.fail(token, fmt::format("{} takes at most {}", row.name, counted(most, "operand")));
        operands.push_back(operand(row.operand(operands.size()), row));
      } while (in_.accept(','));
    }
    if (operands.size() < required)
      in_.fail(name,
               fmt::format("{} takes {}{}, got {}", row.name, required == most ? "" : "at least ",
                           counted(required, "operand"), operands.size()),
               fmt::format("'{}' is missing", row.operands[operands.size()].name));
    return operands;
  }

  Value operand(const OperandInfo& operand, const OpInfo& row) {
    if (in_.peek().is("_")) {
      if (!operand.optional)
        in_.fail(in_.peek(),
                 fmt::format("operand '{}' of {} may not be left out", operand.name, row.name));
      in_.take();
      return {};
    }
    return use(
        in_.expect(TokenKind::Value, fmt::format("operand '{}' of {}", operand.name, row.name)));
  }

  struct Attributes {
    Attrs values;
    const AttrInfo* number = nullptr;  // the Number attribute, if the op has one, …
    Token literal;                     // … whose value depends on the result's type
  };

  Attributes attributes(const OpInfo& row, const Token& name) {
    Attributes result;
    if (in_.peek().is('{')) {
      in_.take();
      do {
        attribute(row, result);
      } while (in_.accept(','));
      in_.expect('}', "after the attributes");
    }
    for (const AttrInfo& attr : row.attrs)
      if (!attr.default_value && !result.values.find(attr.name))
        in_.fail(name, fmt::format("{} needs the attribute '{}'", row.name, attr.name));
    return result;
  }

  void attribute(const OpInfo& row, Attributes& into) {
    const Token& key = in_.expect(TokenKind::Name, "an attribute, as in {name = value}");
    const AttrInfo* attr = row.attr(key.text);
    if (!attr) {
      std::vector<std::string> names;
      for (const AttrInfo& known : row.attrs) names.push_back(known.name);
      const std::string near = nearest(key.text, names);
      in_.fail(key, fmt::format("{} has no attribute {}", row.name, describe(key)),
               near.empty() ? "" : fmt::format("'{}'", near));
    }
    if (into.values.find(key.text))
      in_.fail(key, fmt::format("attribute {} is given twice", describe(key)));
    in_.expect('=', "after the attribute's name");
    if (attr->type == AttrType::Number) {
      into.number = attr;
      into.literal = parse_number(in_, *attr);
      into.values.set(key.text, int64_t{0});  // until the type is known
    } else {
      into.values.set(key.text, parse_attribute(in_, *attr));
    }
  }

  // at "file":line, else the place in this text
  Loc location(const Token& name) {
    if (!in_.peek().is("at")) return in_.loc(name);
    in_.take();
    const Token& file = in_.expect(TokenKind::String, "a file's name, as in at \"kernel.cpp\":12");
    in_.expect(':', "after the file's name");
    const Token& line = in_.expect(TokenKind::Integer, "a line number");
    if (line.negative || line.magnitude == 0 || line.magnitude > INT_MAX)
      in_.fail(line, fmt::format("expected a line number from 1 to {}", INT_MAX));
    return {intern(file.string), static_cast<int>(line.magnitude)};
  }

  void regions(const OpInfo& row, OpId id, const Token& name) {
    int count = 0;
    for (; in_.peek().is("do"); ++count) {
      if (count == row.max_regions)
        in_.fail(in_.peek(), row.max_regions == 0
                                 ? fmt::format("{} has no region", row.name)
                                 : fmt::format("{} has at most {}", row.name,
                                               counted(row.max_regions, "region")));
      in_.take();
      region(id);
    }
    if (count < row.min_regions)
      in_.fail(name, fmt::format("{} needs {}: expected 'do {{ ... }}'", row.name,
                                 counted(row.min_regions, "region")));
  }

  void define(const Token& name, Value value) {
    auto [it, fresh] = names_.try_emplace(std::string(name.text));
    if (!fresh && it->second.open)
      in_.fail(name, fmt::format("{} is already defined, in line {}", describe(name),
                                 it->second.loc.line));
    it->second = {value, in_.loc(name), true};
    if (!scopes_.empty()) scopes_.back().push_back(it->first);
  }

  Value use(const Token& name) const {
    auto it = names_.find(std::string(name.text));
    if (it != names_.end() && it->second.open) return it->second.value;
    if (it != names_.end())
      in_.fail(name, fmt::format("{} is defined in a region that has ended (line {})",
                                 describe(name), it->second.loc.line));
    std::vector<std::string> known;
    for (const auto& [other, definition] : names_)
      if (definition.open) known.push_back(other);
    std::sort(known.begin(), known.end());
    const std::string near = nearest(name.text, known);
    in_.fail(name, fmt::format("{} is not defined above this line", describe(name)),
             near.empty() ? "" : fmt::format("'%{}'", near));
  }

  TokenStream in_;
  Kernel kernel_;
  int depth_ = 0;
  std::unordered_map<std::string, Definition> names_;
  std::vector<std::vector<std::string>> scopes_;  // names that end with each open region
};

}  // namespace

Kernel parse(std::string_view text, std::string_view file) {
  return Parser(text, file).run();
}

}  // namespace kiln
