#include "ir/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "ir/text.h"

namespace kiln {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    std::vector<Token> tokens;
    do {
      tokens.push_back(next());
    } while (tokens.back().kind != TokenKind::End && tokens.back().kind != TokenKind::Invalid);
    return tokens;
  }

 private:
  char at(size_t position) const { return position < source_.size() ? source_[position] : '\0'; }

  Token token(TokenKind kind, size_t begin) const {
    Token token;
    token.kind = kind;
    token.offset = begin;
    token.text = source_.substr(begin, position_ - begin);
    return token;
  }

  Token invalid(size_t begin, std::string why) const {
    Token bad = token(TokenKind::Invalid, begin);
    bad.string = std::move(why);
    return bad;
  }

  void skip_blanks() {
    while (position_ < source_.size()) {
      const char c = source_[position_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++position_;
      } else if (c == '/' && at(position_ + 1) == '/') {
        position_ = std::min(source_.find('\n', position_), source_.size());
      } else {
        return;
      }
    }
  }

  void skip_name() {
    while (is_name_part(at(position_))) ++position_;
  }
  void skip_digits() {
    while (is_digit(at(position_))) ++position_;
  }

  Token next() {
    skip_blanks();
    const size_t begin = position_;
    const char c = at(begin);
    if (begin == source_.size()) return token(TokenKind::End, begin);
    if (is_name_start(c)) {
      skip_name();
      Token word = token(TokenKind::Name, begin);
      if (word.text == "inf" || word.text == "nan") return constant(word, word.text, 1);
      return word;
    }
    if (c == '%') return value(begin);
    if (c == '"') return string(begin);
    if (is_digit(c) || c == '-') return number(begin);
    ++position_;
    constexpr std::string_view kPuncts = "=,:{}[]|@?";
    if (kPuncts.find(c) != kPuncts.npos) return token(TokenKind::Punct, begin);
    return invalid(begin, c > ' ' && c < '\x7f' ? fmt::format("unexpected character '{}'", c)
                                                : fmt::format("unexpected byte 0x{:02x}",
                                                              static_cast<unsigned char>(c)));
  }

  Token constant(Token word, std::string_view name, double sign) const {
    word.kind = TokenKind::Float;
    using Limits = std::numeric_limits<double>;
    word.real = name == "nan" ? Limits::quiet_NaN() : sign * Limits::infinity();
    return word;
  }

  Token value(size_t begin) {
    ++position_;
    if (!is_name_start(at(position_)))
      return invalid(begin,
                     "expected a name after '%': a letter or '_', then letters, digits, "
                     "'_' and '.'");
    skip_name();
    Token name = token(TokenKind::Value, begin);
    name.text.remove_prefix(1);
    return name;
  }

  Token number(size_t begin) {
    const bool negative = at(begin) == '-';
    if (negative) ++position_;
    if (source_.substr(position_, 3) == "inf" && !is_name_part(at(position_ + 3))) {
      position_ += 3;
      return constant(token(TokenKind::Float, begin), "inf", -1);
    }
    const size_t digits = position_;
    skip_digits();
    bool well_formed = position_ > digits;
    bool real = false;
    if (at(position_) == '.') {
      ++position_;
      well_formed = well_formed && is_digit(at(position_));
      real = true;
      skip_digits();
    }
    if (at(position_) == 'e' || at(position_) == 'E') {
      ++position_;
      if (at(position_) == '+' || at(position_) == '-') ++position_;
      well_formed = well_formed && is_digit(at(position_));
      real = true;
      skip_digits();
    }
    if (is_name_part(at(position_))) {
      skip_name();
      well_formed = false;
    }
    if (!well_formed)
      return invalid(begin, "malformed number: expected digits, as in 12, -3, 0.5, 1e-06 or -inf");
    Token token = this->token(real ? TokenKind::Float : TokenKind::Integer, begin);
    token.negative = negative;
    const char* end = token.text.data() + token.text.size();
    const std::errc error = real
                                ? std::from_chars(token.text.data(), end, token.real).ec
                                : std::from_chars(source_.data() + digits, end, token.magnitude).ec;
    if (error != std::errc())
      return invalid(begin, real ? "this number is out of the range of a double"
                                 : "this integer is out of the range of 64 bits");
    return token;
  }

  Token string(size_t begin) {
    std::string content;
    for (++position_; at(position_) != '"'; ++position_) {
      if (position_ >= source_.size() || at(position_) == '\n')
        return invalid(begin, "this string does not end on its line");
      char c = at(position_);
      if (c == '\\' && !escape(c))
        return invalid(position_,
                       "unknown escape: expected \\\", \\\\, \\n, \\t or \\x and two "
                       "hexadecimal digits");
      content += c;
    }
    ++position_;
    Token token = this->token(TokenKind::String, begin);
    token.string = std::move(content);
    return token;
  }

  // At a backslash: leaves the position on the escape's last character.
  bool escape(char& c) {
    switch (at(position_ + 1)) {
      case '"': c = '"'; break;
      case '\\': c = '\\'; break;
      case 'n': c = '\n'; break;
      case 't': c = '\t'; break;
      case 'x': {
        const std::string_view digits = source_.substr(std::min(position_ + 2, source_.size()), 2);
        unsigned code = 0;
        auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
        if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) return false;
        c = static_cast<char>(code);
        position_ += 3;
        return true;
      }
      default: return false;
    }
    ++position_;
    return true;
  }

  std::string_view source_;
  size_t position_ = 0;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace kiln
