#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string>

#include "runtime/ptx/ptx.h"
#include "runtime/ptx/syntax.h"

namespace kiln::ptx {
namespace {

bool is_word_start(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%';
}
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    while (skip_blanks(), at_ < text_.size()) tokens.push_back(next());
    tokens.push_back({Token::Kind::End, "end of file", 0, line_});
    return tokens;
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      if (peek() == '\n') {
        ++line_;
        ++at_;
      } else if (std::isspace(static_cast<unsigned char>(peek())) || peek() == '\0') {
        ++at_;
      } else if (peek() == '/' && peek(1) == '/') {
        while (at_ < text_.size() && peek() != '\n') ++at_;
      } else if (peek() == '/' && peek(1) == '*') {
        size_t end = text_.find("*/", at_ + 2);
        if (end == std::string_view::npos) throw Error("a comment that does not end", line_);
        for (; at_ < end + 2; ++at_) line_ += peek() == '\n';
      } else {
        return;
      }
    }
  }

  Token next() {
    size_t begin = at_;
    char c = peek();
    if (is_word_start(c)) {
      do ++at_;
      while (is_word(peek()));
      return {Token::Kind::Word, text_.substr(begin, at_ - begin), 0, line_};
    }
    if (c == '.' && is_word(peek(1))) {
      ++at_;
      while (is_word(peek()) || (peek() == ':' && peek(1) == ':' && is_word(peek(2))))
        at_ += peek() == ':' ? 2 : 1;
      return {Token::Kind::DotWord, text_.substr(begin + 1, at_ - begin - 1), 0, line_};
    }
    if (is_digit(c)) return number();
    if (c == '"') return string();
    ++at_;
    if (std::strchr(",;:{}[]()<>+-*/@!|=~&^?", c) == nullptr)
      throw Error(fmt::format("'{}' does not belong in PTX", c), line_);
    return {Token::Kind::Punctuation, text_.substr(begin, 1), 0, line_};
  }

  Token string() {
    size_t end = text_.find('"', at_ + 1);
    if (end == std::string_view::npos) throw Error("a string that does not end", line_);
    Token token{Token::Kind::String, text_.substr(at_ + 1, end - at_ - 1), 0, line_};
    for (char c : token.text) line_ += c == '\n';
    at_ = end + 1;
    return token;
  }

  Token number() {
    size_t begin = at_;
    char second = static_cast<char>(std::tolower(peek(1)));
    if (peek() == '0' && (second == 'f' || second == 'd')) return exact_float(second == 'f');
    int base = 10;
    if (peek() == '0' && (second == 'x' || second == 'b')) {
      base = second == 'x' ? 16 : 2;
      at_ += 2;
    } else if (peek() == '0' && is_digit(peek(1))) {
      base = 8;
    }
    size_t digits = at_;
    while (base == 16 ? std::isxdigit(static_cast<unsigned char>(peek())) != 0 : is_digit(peek()))
      ++at_;
    bool fraction = peek() == '.' && is_digit(peek(1));
    bool exponent =
        (peek() == 'e' || peek() == 'E') &&
        (is_digit(peek(1)) || ((peek(1) == '-' || peek(1) == '+') && is_digit(peek(2))));
    if (base != 16 && base != 2 && (fraction || exponent)) return decimal_float(begin);
    Token token{Token::Kind::Integer, text_.substr(begin, at_ - begin), 0, line_};
    auto [end, failure] =
        std::from_chars(text_.data() + digits, text_.data() + at_, token.bits, base);
    if (failure != std::errc() || end != text_.data() + at_)
      throw Error(fmt::format("'{}' is no 64-bit number", token.text), line_);
    if (peek() == 'U') ++at_;
    return token;
  }

  Token exact_float(bool single) {
    size_t begin = at_, digits = single ? 8 : 16;
    at_ += 2;
    Token token{single ? Token::Kind::Float32 : Token::Kind::Float64, {}, 0, line_};
    const char* first = text_.data() + std::min(at_, text_.size());
    const char* last = text_.data() + std::min(at_ + digits, text_.size());
    auto [end, failure] = std::from_chars(first, last, token.bits, 16);
    if (failure != std::errc() || static_cast<size_t>(end - first) != digits)
      throw Error(fmt::format("a number 0{} has {} hexadecimal digits", single ? 'f' : 'd', digits),
                  line_);
    at_ += digits;
    token.text = text_.substr(begin, at_ - begin);
    return token;
  }

  Token decimal_float(size_t begin) {
    while (is_digit(peek()) || std::strchr(".eE", peek()) ||
           ((peek() == '-' || peek() == '+') && std::strchr("eE", text_[at_ - 1])))
      if (peek() == '\0')
        break;
      else
        ++at_;
    Token token{Token::Kind::Float64, text_.substr(begin, at_ - begin), 0, line_};
    double value = std::strtod(std::string(token.text).c_str(), nullptr);
    std::memcpy(&token.bits, &value, sizeof value);
    return token;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) {
  return Lexer(text).run();
}

}  // namespace kiln::ptx
