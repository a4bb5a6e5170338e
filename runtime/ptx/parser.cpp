// The module level: directives, variables, headers of functions.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>

#include "runtime/ptx/parser_impl.h"

namespace kiln::ptx {

using Kind = Token::Kind;

bool TokenStream::take(char punctuation) {
  if (peek().kind != Kind::Punctuation || peek().text[0] != punctuation) return false;
  next();
  return true;
}

bool TokenStream::take_dot(std::string_view word) {
  if (!at(Kind::DotWord, word)) return false;
  next();
  return true;
}

void TokenStream::expect(char punctuation, std::string_view where) {
  if (!take(punctuation)) fail(fmt::format("'{}' {}", punctuation, where));
}

std::string_view TokenStream::word(std::string_view what) {
  if (peek().kind != Kind::Word) fail(std::string(what));
  return next().text;
}

int64_t TokenStream::integer(std::string_view what) {
  bool negative = take('-');
  if (peek().kind != Kind::Integer) fail(std::string(what));
  uint64_t bits = next().bits;
  return static_cast<int64_t>(negative ? 0 - bits : bits);
}

void TokenStream::fail(const std::string& expected) const {
  throw Error(fmt::format("expected {}, got '{}'", expected, peek().text), peek().line);
}

void TokenStream::skip_braces() {
  expect('{', "here");
  for (int depth = 1; depth > 0;) {
    if (at_end()) fail("'}'");
    if (take('{'))
      ++depth;
    else if (take('}'))
      --depth;
    else
      next();
  }
}

namespace {

// What a GPU has of each space, generously.
constexpr uint64_t kMostVariableBytes = uint64_t{1} << 26;
constexpr uint64_t kMostParameterBytes = 32764;

Type parse_type(TokenStream& tokens) {
  if (tokens.peek().kind != Kind::DotWord) tokens.fail("a type");
  auto type = type_named(tokens.peek().text);
  if (!type || *type == Type::Pred) tokens.fail("a type");
  tokens.next();
  return *type;
}

void append_value(TokenStream& tokens, Type type, std::vector<uint8_t>& bytes) {
  bool negative = tokens.take('-');
  Token token = tokens.next();
  uint64_t bits = token.bits;
  switch (token.kind) {
    case Kind::Integer:
      if (negative) bits = 0 - bits;
      break;
    case Kind::Float32:
    case Kind::Float64: {
      bool single = token.kind == Kind::Float32;
      if (negative) bits ^= uint64_t{1} << (single ? 31 : 63);
      if (!single && bytes_of(type) == 4)
        bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
      break;
    }
    default:
      throw Error(fmt::format("an initial value must be a number, not '{}'", token.text),
                  token.line);
  }
  for (int i = 0; i < bytes_of(type); ++i)
    bytes.push_back(static_cast<uint8_t>(i < 8 ? bits >> (8 * i) : 0));
}

void parse_initial(TokenStream& tokens, Type type, std::vector<uint8_t>& bytes) {
  if (!tokens.take('{')) return append_value(tokens, type, bytes);
  while (!tokens.take('}')) {
    if (tokens.at(Kind::Punctuation, "{")) tokens.fail("a flat list of values");
    append_value(tokens, type, bytes);
    if (!tokens.take(',') && !tokens.at(Kind::Punctuation, "}")) tokens.fail("',' or '}'");
  }
}

// The name, its dimensions and initial value.
Variable parse_declarator(TokenStream& tokens, Space space, Type type, uint64_t lanes,
                          uint64_t alignment) {
  Variable variable;
  variable.space = space;
  variable.line = tokens.peek().line;
  variable.name = tokens.word("a variable's name");
  uint64_t element = static_cast<uint64_t>(bytes_of(type)) * lanes;
  variable.alignment = alignment != 0 ? alignment : element;
  variable.bytes = element;
  while (tokens.take('[')) {
    uint64_t count = tokens.at(Kind::Punctuation, "]")
                         ? 0
                         : static_cast<uint64_t>(tokens.integer("a number of elements"));
    tokens.expect(']', "after the number of elements");
    if (count > kMostVariableBytes || variable.bytes * count > kMostVariableBytes)
      throw Error(fmt::format("'{}' is too large", variable.name), variable.line);
    variable.bytes *= count;
  }
  if (tokens.take('=')) {
    parse_initial(tokens, type, variable.initial);
    variable.bytes = std::max<uint64_t>(variable.bytes, variable.initial.size());
  }
  return variable;
}

uint64_t parse_alignment(TokenStream& tokens) {
  auto value = static_cast<uint64_t>(tokens.integer("an alignment"));
  if (!std::has_single_bit(value) || value > 4096) tokens.fail("a power of two up to 4096 before");
  return value;
}

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : tokens_(text) {}

  SyntaxTree run() {
    while (!tokens_.at_end()) item();
    return std::move(tree_);
  }

 private:
  void item() {
    if (tokens_.take(';')) return;
    if (tokens_.peek().kind != Kind::DotWord) tokens_.fail("a directive");
    Token directive = tokens_.next();
    std::string_view word = directive.text;
    if (word == "version" || word == "address_size") {
      if (word == "address_size" && tokens_.peek().bits != 64) tokens_.fail("64");
      tokens_.next();
    } else if (word == "target") {
      do tokens_.next();
      while (tokens_.take(','));
    } else if (word == "file") {
      file();
    } else if (word == "section") {
      tokens_.next();
      if (tokens_.peek().kind == Kind::DotWord) tokens_.next();
      tokens_.skip_braces();
    } else if (word == "pragma" || word == "alias") {
      while (!tokens_.at_end() && !tokens_.take(';')) tokens_.next();
    } else if (word == "extern" || word == "visible" || word == "weak" || word == "common") {
      external_ = word == "extern";
    } else if (word == "entry" || word == "func") {
      function(word == "entry", directive.line);
    } else if (word == "global" || word == "const" || word == "shared") {
      variables(word == "global" ? Space::Global : word == "const" ? Space::Const : Space::Shared);
    } else if (word == "loc") {
      for (int i = 0; i < 3; ++i) tokens_.integer("a number");
    } else {
      throw Error(fmt::format("unknown directive '.{}'", word), directive.line);
    }
  }

  void file() {
    int index = static_cast<int>(tokens_.integer("a file's number"));
    if (tokens_.peek().kind != Kind::String) tokens_.fail("a file's name");
    tree_.files[index] = std::string(tokens_.next().text);
    while (tokens_.take(',')) tokens_.next();  // time and size
  }

  void variables(Space space) {
    for (Variable& variable : parse_variables(tokens_, space)) {
      variable.external = external_;
      auto [it, is_new] = module_variables_.emplace(variable.name, variable);
      if (!is_new && it->second.external) it->second = variable;
    }
    external_ = false;
  }

  void function(bool entry, int line) {
    external_ = false;
    Function function;
    function.entry = entry;
    function.line = line;
    if (!entry && tokens_.take('(')) {
      parse_parameter(tokens_);
      tokens_.expect(')', "after the result");
    }
    function.name = tokens_.word("a function's name");
    if (tokens_.take('(') && !tokens_.take(')')) {
      uint64_t& end = function.parameter_bytes;
      do {
        Variable parameter = parse_parameter(tokens_);
        parameter.offset = (end + parameter.alignment - 1) & ~(parameter.alignment - 1);
        end = parameter.offset + parameter.bytes;
        if (end > kMostParameterBytes) throw Error("too many parameters", line);
        function.variables.push_back(std::move(parameter));
      } while (tokens_.take(','));
      tokens_.expect(')', "after the parameters");
    }
    attributes(function);
    if (tokens_.take(';')) return;
    if (!entry) return tokens_.skip_braces();  // not called: see `call` in the decoder
    parse_body(tokens_, function, module_variables_);
    tree_.functions.push_back(std::move(function));
  }

  void attributes(Function& function) {
    while (tokens_.peek().kind == Kind::DotWord) {
      std::string_view word = tokens_.next().text;
      if (word == "reqntid" || word == "maxntid") {
        uint64_t counts[3] = {1, 1, 1};
        int axis = 0;
        do counts[axis++] = static_cast<uint64_t>(tokens_.integer("a number of threads"));
        while (axis < 3 && tokens_.take(','));
        if (word == "reqntid")
          std::copy(counts, counts + 3, function.required_threads);
        else
          function.most_threads = counts[0] * counts[1] * counts[2];
        continue;
      }
      if (word == "minnctapersm" || word == "maxnreg") {
        auto count = static_cast<uint64_t>(tokens_.integer("a number"));
        (word == "maxnreg" ? function.most_registers : function.least_blocks) = count;
        continue;
      }
      while (tokens_.peek().kind == Kind::Integer || tokens_.peek().kind == Kind::String ||
             tokens_.at(Kind::Punctuation, ","))
        tokens_.next();
      if (word == "pragma") tokens_.expect(';', "after a pragma");
    }
  }

  TokenStream tokens_;
  SyntaxTree tree_;
  std::map<std::string, Variable, std::less<>> module_variables_;
  bool external_ = false;
};

}  // namespace

std::vector<Variable> parse_variables(TokenStream& tokens, Space space) {
  uint64_t alignment = 0, lanes = 1;
  for (;;) {
    if (tokens.take_dot("align"))
      alignment = parse_alignment(tokens);
    else if (tokens.take_dot("v2"))
      lanes = 2;
    else if (tokens.take_dot("v4"))
      lanes = 4;
    else if (tokens.take_dot("attribute"))
      while (!tokens.at_end() && !tokens.take(')')) tokens.next();
    else
      break;
  }
  Type type = parse_type(tokens);
  std::vector<Variable> variables;
  do variables.push_back(parse_declarator(tokens, space, type, lanes, alignment));
  while (tokens.take(','));
  tokens.expect(';', "after a variable");
  return variables;
}

Variable parse_parameter(TokenStream& tokens) {
  if (!tokens.take_dot("param") && !tokens.take_dot("reg")) tokens.fail(".param");
  uint64_t alignment = 0;
  if (tokens.take_dot("align")) alignment = parse_alignment(tokens);
  Type type = parse_type(tokens);
  if (tokens.take_dot("ptr")) {  // what it points to does not matter here
    for (const char* space : {"global", "shared", "const", "local", "param", "generic"})
      tokens.take_dot(space);
    if (tokens.take_dot("align")) parse_alignment(tokens);
  }
  return parse_declarator(tokens, Space::Param, type, 1, alignment);
}

SyntaxTree parse_syntax(std::string_view text) {
  std::deque<std::string> texts;
  texts.emplace_back(text);
  SyntaxTree tree = ModuleParser(texts.back()).run();
  tree.texts = std::move(texts);
  return tree;
}

}  // namespace kiln::ptx
