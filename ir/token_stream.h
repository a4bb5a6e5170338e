// A position in a tokenized text, and the errors that point at it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/lexer.h"
#include "ir/loc.h"

namespace kiln {

// `text` must outlive the stream.
class TokenStream {
 public:
  TokenStream(std::string_view text, std::string_view file);

  // The next token, or one further on. Throws UserError if it is Invalid.
  const Token& peek(size_t ahead = 0) const;
  const Token& take();  // stays on End
  bool accept(char punct);
  const Token& expect(char punct, std::string_view where);
  const Token& expect(TokenKind kind, std::string_view what);

  // UserError with the token's line and a caret below the token.
  [[noreturn]] void fail(const Token& at, const std::string& message, std::string hint = "") const;
  // What must follow the last token is not there: points behind it if the line ends there.
  [[noreturn]] void fail_expected(const std::string& what, std::string hint = "") const;
  Loc loc(const Token& token) const;

 private:
  [[noreturn]] void fail_at(size_t offset, const std::string& message, std::string hint) const;
  Loc loc(size_t offset) const;
  size_t line_index(size_t offset) const;
  std::string excerpt(size_t offset) const;

  std::string_view text_;
  const char* file_;
  std::vector<size_t> line_starts_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
};

// The token as a message names it.
std::string describe(const Token& token);

}  // namespace kiln
