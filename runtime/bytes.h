// Little-endian writing and bounds-checked reading of byte strings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kiln {

class ByteWriter {
 public:
  void number(uint64_t value, int bytes = 8) {
    for (int i = 0; i < bytes; ++i) text_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void raw(std::string_view text) { text_ += text; }
  void string(std::string_view text) {  // with its length
    number(text.size());
    raw(text);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// After a read beyond the end everything reads as 0 or empty and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view text) : text_(text) {}

  uint64_t number(int bytes = 8) {
    std::string_view part = raw(static_cast<uint64_t>(bytes));
    uint64_t value = 0;
    for (size_t i = part.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(part[i]);
    return value;
  }
  std::string_view raw(uint64_t size) {
    if (size > text_.size()) ok_ = false;
    if (!ok_) return {};
    std::string_view part = text_.substr(0, size);
    text_.remove_prefix(size);
    return part;
  }
  std::string_view string() { return raw(number()); }
  std::string_view rest() const { return text_; }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && text_.empty(); }

 private:
  std::string_view text_;
  bool ok_ = true;
};

}  // namespace kiln
