#include "ir/token_stream.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"

namespace kiln {

TokenStream::TokenStream(std::string_view text, std::string_view file)
    : text_(text), file_(intern(file)), line_starts_{0}, tokens_(tokenize(text)) {
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') line_starts_.push_back(i + 1);
}

const Token& TokenStream::peek(size_t ahead) const {
  const Token& token = tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  // Only where the parser stands: what is wrong before an invalid token is reported first.
  if (token.kind == TokenKind::Invalid && ahead == 0) fail(token, token.string);
  return token;
}

const Token& TokenStream::take() {
  const Token& token = peek();
  if (token.kind != TokenKind::End) ++next_;
  return token;
}

bool TokenStream::accept(char punct) {
  if (!peek().is(punct)) return false;
  take();
  return true;
}

const Token& TokenStream::expect(char punct, std::string_view where) {
  if (!peek().is(punct)) fail_expected(fmt::format("'{}' {}", punct, where));
  return take();
}

const Token& TokenStream::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) fail_expected(std::string(what));
  return take();
}

void TokenStream::fail_at(size_t offset, const std::string& message, std::string hint) const {
  throw UserError(loc(offset), message + '\n' + excerpt(offset), std::move(hint));
}

void TokenStream::fail(const Token& at, const std::string& message, std::string hint) const {
  fail_at(at.offset, message, std::move(hint));
}

void TokenStream::fail_expected(const std::string& what, std::string hint) const {
  const Token& got = peek();
  if (next_ > 0) {
    const std::string_view last = tokens_[next_ - 1].text;
    const auto end = static_cast<size_t>(last.data() + last.size() - text_.data());
    if (line_index(end) != line_index(got.offset))
      fail_at(end, fmt::format("expected {}, got the end of the line", what), std::move(hint));
  }
  fail(got, fmt::format("expected {}, got {}", what, describe(got)), std::move(hint));
}

size_t TokenStream::line_index(size_t offset) const {
  auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  return static_cast<size_t>(after - line_starts_.begin()) - 1;
}

Loc TokenStream::loc(size_t offset) const {
  return {file_, static_cast<int>(line_index(offset)) + 1};
}

Loc TokenStream::loc(const Token& token) const {
  return loc(token.offset);
}

std::string TokenStream::excerpt(size_t offset) const {
  constexpr size_t kBefore = 100, kAfter = 60;  // bytes kept of a long line
  const size_t start = line_starts_[line_index(offset)];
  const size_t end = std::min({text_.find('\n', offset), text_.size(), offset + kAfter});
  const size_t begin = offset - start > kBefore ? offset - kBefore : start;
  std::string line, caret;
  for (size_t i = begin; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(text_[i]);
    const bool control = (byte < 0x20 && byte != '\t') || byte == 0x7F;
    line += control ? '?' : text_[i];
    const bool continues = (byte & 0xC0) == 0x80;  // of a UTF-8 character already counted
    if (i < offset && !continues) caret += byte == '\t' ? '\t' : ' ';
  }
  return line + '\n' + caret + '^';
}

std::string describe(const Token& token) {
  constexpr size_t kLongest = 40;
  switch (token.kind) {
    case TokenKind::End: return "the end of the text";
    case TokenKind::Value: return fmt::format("'%{}'", token.text.substr(0, kLongest));
    case TokenKind::String: return "a string";
    default: return fmt::format("'{}'", token.text.substr(0, kLongest));
  }
}

}  // namespace kiln
