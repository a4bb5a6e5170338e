// Cuts the text form of a kernel into tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

enum class TokenKind : uint8_t {
  End,
  Name,     // name
  Value,    // %name; `text` is without the %
  Integer,  // sign and magnitude
  Float,    // real
  String,   // string: escapes resolved
  Punct,    // one character of = , : { } [ ] | @ ?
  Invalid,  // no token: `string` says why; the last one of the text
};

struct Token {
  TokenKind kind = TokenKind::End;
  size_t offset = 0;      // of its first byte
  std::string_view text;  // a part of the source
  bool negative = false;
  uint64_t magnitude = 0;
  double real = 0;
  std::string string;

  bool is(char punct) const { return kind == TokenKind::Punct && text[0] == punct; }
  bool is(std::string_view word) const { return kind == TokenKind::Name && text == word; }
};

// All tokens of the text; the last is End or Invalid. Tokens point into `source`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace kiln
