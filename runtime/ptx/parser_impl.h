// The parser's two halves: declarations (parser.cpp) and the bodies of functions (parser_body.cpp).
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/ptx/ptx.h"
#include "runtime/ptx/syntax.h"

namespace kiln::ptx {

// The tokens and where the parser is in them.
class TokenStream {
 public:
  explicit TokenStream(std::string_view text) : tokens_(tokenize(text)) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  const Token& next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  bool at_end() const { return peek().kind == Token::Kind::End; }
  bool at(Token::Kind kind, std::string_view text) const {
    return peek().kind == kind && peek().text == text;
  }
  bool take(char punctuation);
  bool take_dot(std::string_view word);
  void expect(char punctuation, std::string_view where);
  std::string_view word(std::string_view what);
  int64_t integer(std::string_view what);  // with its sign
  [[noreturn]] void fail(const std::string& expected) const;
  void skip_braces();  // from '{' to its '}'

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// `.align 4 .b8 name[16] = {…}` after the space's word. Several, if separated by commas.
std::vector<Variable> parse_variables(TokenStream& tokens, Space space);
Variable parse_parameter(TokenStream& tokens);

// Parses from '{' to '}' into `function`, which has its name and parameters.
void parse_body(TokenStream& tokens, Function& function,
                const std::map<std::string, Variable, std::less<>>& module_variables);

}  // namespace kiln::ptx
