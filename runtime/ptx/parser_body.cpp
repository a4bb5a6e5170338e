// Statements of a function's body, with names resolved: registers and labels have scopes.
#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "runtime/ptx/parser_impl.h"

namespace kiln::ptx {
namespace {

using Kind = Token::Kind;
using OperandKind = SyntaxOperand::Kind;

constexpr int kDeepestScope = 64;
constexpr size_t kMostParts = 256;

// `.reg .b32 %r<100>` declares 100 registers; they come to be as they are named.
struct RegisterRange {
  Type type;
  uint64_t count;
};

struct Scope {
  std::map<std::string, int, std::less<>> registers, variables;  // indices
  std::map<std::string, RegisterRange, std::less<>> ranges;
  std::map<std::string_view, int> labels;                            // statements
  std::map<std::string_view, std::vector<std::string_view>> tables;  // .branchtargets
  int parent = -1;
};

class BodyParser {
 public:
  BodyParser(TokenStream& tokens, Function& function,
             const std::map<std::string, Variable, std::less<>>& module_variables)
      : tokens_(tokens), function_(function), module_variables_(module_variables) {}

  void run() {
    tokens_.expect('{', "before a function's body");
    open_scope();
    for (size_t i = 0; i < function_.variables.size(); ++i)
      scope().variables.emplace(function_.variables[i].name, static_cast<int>(i));
    while (current_ >= 0) item();
    for (Reference& reference : references_) resolve_label(reference);
  }

 private:
  struct Reference {
    int statement, operand, scope;
  };

  Scope& scope() { return scopes_[static_cast<size_t>(current_)]; }

  void open_scope() {
    if (++depth_ > kDeepestScope) tokens_.fail("fewer nested scopes");
    scopes_.push_back({});
    scopes_.back().parent = current_;
    current_ = static_cast<int>(scopes_.size()) - 1;
  }

  void item() {
    const Token& token = tokens_.peek();
    if (tokens_.take('{')) return open_scope();
    if (tokens_.take('}')) {
      current_ = scope().parent;
      --depth_;
      return;
    }
    if (tokens_.take(';')) return;
    if (token.kind == Kind::DotWord) return directive();
    if (token.kind == Kind::Word && tokens_.peek(1).kind == Kind::Punctuation &&
        tokens_.peek(1).text == ":")
      return label();
    statement();
  }

  void label() {
    std::string_view name = tokens_.next().text;
    tokens_.next();
    if (tokens_.take_dot("branchtargets")) {
      auto& table = scope().tables[name];
      do table.push_back(tokens_.word("a label"));
      while (tokens_.take(','));
      tokens_.expect(';', "after the labels");
      return;
    }
    if (!scope().labels.emplace(name, static_cast<int>(function_.body.size())).second)
      throw Error(fmt::format("a second label '{}'", name), tokens_.peek().line);
  }

  void directive() {
    Token word = tokens_.next();
    if (word.text == "reg") {
      registers();
    } else if (word.text == "loc") {
      source_.file = static_cast<int>(tokens_.integer("a file's number"));
      source_.line = static_cast<int>(tokens_.integer("a line"));
      tokens_.integer("a column");
      while (tokens_.take(',')) inlined_at();
    } else if (word.text == "shared" || word.text == "local" || word.text == "param" ||
               word.text == "global" || word.text == "const") {
      Space space = word.text == "shared"   ? Space::Shared
                    : word.text == "local"  ? Space::Local
                    : word.text == "global" ? Space::Global
                    : word.text == "const"  ? Space::Const
                                            : Space::Param;
      if (space == Space::Param) throw Error("parameters of calls are not supported", word.line);
      for (Variable& variable : parse_variables(tokens_, space)) add_variable(std::move(variable));
    } else if (word.text == "pragma") {
      while (!tokens_.at_end() && !tokens_.take(';')) tokens_.next();
    } else {
      throw Error(fmt::format("unknown directive '.{}'", word.text), word.line);
    }
  }

  // `, function_name $L__info_string0 + 10` and `, inlined_at 1 20 3`.
  void inlined_at() {
    std::string_view word = tokens_.word("function_name or inlined_at");
    if (word == "function_name") {
      tokens_.word("a label");
      if (tokens_.take('+')) tokens_.integer("an offset");
    } else {
      for (int i = 0; i < 3; ++i) tokens_.integer("a number");
    }
  }

  int add_variable(Variable variable) {
    int index = static_cast<int>(function_.variables.size());
    scope().variables[variable.name] = index;
    function_.variables.push_back(std::move(variable));
    return index;
  }

  void registers() {
    auto type = tokens_.peek().kind == Kind::DotWord ? type_named(tokens_.peek().text)
                                                     : std::optional<Type>();
    if (!type) tokens_.fail("a type of registers");
    tokens_.next();
    do {
      std::string name(tokens_.word("a register's name"));
      if (tokens_.take('<')) {
        scope().ranges[name] = {*type, static_cast<uint64_t>(tokens_.integer("a number"))};
        tokens_.expect('>', "after the number of registers");
      } else {
        scope().registers[name] = new_register(*type, name);
      }
    } while (tokens_.take(','));
    tokens_.expect(';', "after registers");
  }

  int new_register(Type type, std::string_view name) {
    function_.registers.push_back(type);
    function_.names.emplace_back(name);
    return static_cast<int>(function_.registers.size()) - 1;
  }

  std::optional<int> find_register(std::string_view name) {
    size_t digits = name.find_last_not_of("0123456789") + 1;
    std::string_view prefix = name.substr(0, digits);
    uint64_t number = 0;
    bool numbered =
        digits < name.size() && (name[digits] != '0' || digits + 1 == name.size()) &&
        std::from_chars(name.data() + digits, name.data() + name.size(), number).ec == std::errc();
    for (int at = current_; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
      Scope& scope = scopes_[static_cast<size_t>(at)];
      if (auto it = scope.registers.find(name); it != scope.registers.end()) return it->second;
      if (!numbered) continue;
      auto range = scope.ranges.find(prefix);
      if (range == scope.ranges.end() || number >= range->second.count) continue;
      return scope.registers[std::string(name)] = new_register(range->second.type, name);
    }
    return std::nullopt;
  }

  std::optional<int> find_variable(std::string_view name) {
    for (int at = current_; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
      Scope& scope = scopes_[static_cast<size_t>(at)];
      if (auto it = scope.variables.find(name); it != scope.variables.end()) return it->second;
    }
    auto it = module_variables_.find(name);
    if (it == module_variables_.end()) return std::nullopt;
    int index = static_cast<int>(function_.variables.size());
    scopes_[0].variables[it->second.name] = index;
    function_.variables.push_back(it->second);
    return index;
  }

  void statement() {
    Statement statement;
    statement.line = tokens_.peek().line;
    statement.source = source_;
    if (tokens_.take('@')) {
      statement.guard_negated = tokens_.take('!');
      std::string_view name = tokens_.word("a predicate");
      auto guard = find_register(name);
      if (!guard || function_.registers[static_cast<size_t>(*guard)] != Type::Pred)
        throw Error(fmt::format("'{}' is no predicate", name), statement.line);
      statement.guard = *guard;
    }
    statement.opcode = tokens_.word("an instruction");
    statement.full = statement.opcode;
    if (statement.opcode == "call")
      throw Error("unknown instruction 'call': functions must be inlined", statement.line);
    while (tokens_.peek().kind == Kind::DotWord) {
      statement.modifiers.push_back(tokens_.next().text);
      statement.full += fmt::format(".{}", statement.modifiers.back());
    }
    while (!tokens_.take(';')) {
      statement.operands.push_back(operand());
      if (!tokens_.take(',') && !tokens_.at(Kind::Punctuation, ";")) tokens_.fail("',' or ';'");
      if (statement.operands.size() > kMostParts) tokens_.fail("fewer operands");
    }
    for (size_t i = 0; i < statement.operands.size(); ++i)
      if (statement.operands[i].kind == OperandKind::Label)
        references_.push_back(
            {static_cast<int>(function_.body.size()), static_cast<int>(i), current_});
    function_.body.push_back(std::move(statement));
  }

  SyntaxOperand operand() {
    SyntaxOperand first = primary();
    if (!tokens_.take('|')) return first;
    SyntaxOperand pair{OperandKind::Pair};
    pair.parts.push_back(std::move(first));
    pair.parts.push_back(primary());
    return pair;
  }

  SyntaxOperand primary() {
    if (tokens_.take('!')) {
      SyntaxOperand inner = named();
      inner.negated = true;
      return inner;
    }
    if (tokens_.take('{')) {
      SyntaxOperand vector{OperandKind::Vector};
      while (!tokens_.take('}')) {
        vector.parts.push_back(simple());
        if (!tokens_.take(',') && !tokens_.at(Kind::Punctuation, "}")) tokens_.fail("',' or '}'");
        if (vector.parts.size() > kMostParts) tokens_.fail("a shorter vector");
      }
      return vector;
    }
    if (tokens_.take('[')) {
      SyntaxOperand address{OperandKind::Address};
      address.parts.push_back(simple());
      if (tokens_.take('+'))
        address.offset = tokens_.integer("an offset");
      else if (tokens_.at(Kind::Punctuation, "-"))
        address.offset = tokens_.integer("an offset");
      if (tokens_.take(',')) {  // of a tensor map
        if (!tokens_.at(Kind::Punctuation, "{")) tokens_.fail("coordinates in braces");
        address.parts.push_back(primary());
      }
      tokens_.expect(']', "after an address");
      return address;
    }
    return simple();
  }

  SyntaxOperand simple() {
    const Token& token = tokens_.peek();
    if (token.kind == Kind::Word) return named();
    SyntaxOperand number{OperandKind::Integer};
    bool negative = tokens_.take('-');
    const Token& digits = tokens_.next();
    number.bits = digits.bits;
    switch (digits.kind) {
      case Kind::Integer:
        if (negative) number.bits = 0 - number.bits;
        return number;
      case Kind::Float32:
        number.kind = OperandKind::Float32;
        if (negative) number.bits ^= uint64_t{1} << 31;
        return number;
      case Kind::Float64:
        number.kind = OperandKind::Float64;
        if (negative) number.bits ^= uint64_t{1} << 63;
        return number;
      default: throw Error(fmt::format("expected an operand, got '{}'", digits.text), digits.line);
    }
  }

  SyntaxOperand named() {
    std::string_view name = tokens_.word("a name");
    SyntaxOperand operand{OperandKind::Sink};
    operand.name = name;
    if (name == "_") return operand;
    if (name == "WARP_SZ") {
      operand.kind = OperandKind::Integer;
      operand.bits = 32;
    } else if (auto found = find_register(name)) {
      operand.kind = OperandKind::Register;
      operand.index = *found;
    } else if (auto variable = find_variable(name)) {
      operand.kind = OperandKind::Variable;
      operand.index = *variable;
      if (tokens_.at(Kind::Punctuation, "+") && tokens_.peek(1).kind == Kind::Integer) {
        tokens_.next();
        operand.offset = tokens_.integer("an offset");
      }
    } else if (name[0] == '%') {
      operand.kind = OperandKind::Special;
      if (tokens_.peek().kind == Kind::DotWord) {
        const Token& axis = tokens_.next();
        operand.name = {name.data(), static_cast<size_t>(axis.text.end() - name.begin())};
      }
    } else {
      operand.kind = OperandKind::Label;
    }
    return operand;
  }

  void resolve_label(const Reference& reference) {
    Statement& statement = function_.body[static_cast<size_t>(reference.statement)];
    SyntaxOperand& operand = statement.operands[static_cast<size_t>(reference.operand)];
    if (find_label(operand, reference.scope)) return;
    for (int at = reference.scope; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
      auto& tables = scopes_[static_cast<size_t>(at)].tables;
      auto table = tables.find(operand.name);
      if (table == tables.end()) continue;
      for (std::string_view name : table->second) {
        SyntaxOperand label{OperandKind::Label};
        label.name = name;
        if (!find_label(label, at)) throw Error(fmt::format("no label '{}'", name), statement.line);
        operand.parts.push_back(label);
      }
      return;
    }
    throw Error(fmt::format("'{}' is not declared", operand.name), statement.line);
  }

  bool find_label(SyntaxOperand& operand, int scope) const {
    for (int at = scope; at >= 0; at = scopes_[static_cast<size_t>(at)].parent) {
      auto& labels = scopes_[static_cast<size_t>(at)].labels;
      auto it = labels.find(operand.name);
      if (it == labels.end()) continue;
      operand.index = it->second;
      return true;
    }
    return false;
  }

  TokenStream& tokens_;
  Function& function_;
  const std::map<std::string, Variable, std::less<>>& module_variables_;
  std::vector<Scope> scopes_;
  std::vector<Reference> references_;
  SourceLine source_;
  int current_ = -1, depth_ = 0;
};

}  // namespace

void parse_body(TokenStream& tokens, Function& function,
                const std::map<std::string, Variable, std::less<>>& module_variables) {
  BodyParser(tokens, function, module_variables).run();
}

}  // namespace kiln::ptx
