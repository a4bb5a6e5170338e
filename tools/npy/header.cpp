#include "tools/npy/header.h"

#include <fmt/format.h>

#include <array>
#include <optional>

#include "ir/error.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kSupported =
    "float16, float32, float64, int8 … int64, uint8 … uint64, bool (and V2 for bfloat16)";

struct TypeCode {
  std::string_view code;
  DType dtype;
};
constexpr std::array<TypeCode, 14> kTypeCodes = {{{"f2", F16},
                                                  {"f4", F32},
                                                  {"f8", F64},
                                                  {"i1", I8},
                                                  {"i2", I16},
                                                  {"i4", I32},
                                                  {"i8", I64},
                                                  {"u1", U8},
                                                  {"u2", U16},
                                                  {"u4", U32},
                                                  {"u8", U64},
                                                  {"b1", Bool},
                                                  {"?", Bool},
                                                  {"V2", BF16}}};

// A recursive-descent reader of the few Python literals that a header may hold.
class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      std::string key = string();
      expect(':');
      bool* seen = key == "descr"           ? &descr
                   : key == "fortran_order" ? &order
                   : key == "shape"         ? &shape
                                            : nullptr;
      if (!seen) fail(fmt::format("unknown key '{}'", printable(key)));
      if (*seen) fail(fmt::format("key '{}' twice", key));
      *seen = true;
      if (seen == &descr) read_descr(header);
      if (seen == &order) header.fortran_order = boolean();
      if (seen == &shape) header.shape = tuple();
      if (accept('}')) break;
      expect(',');
    }
    skip_space();
    if (!text_.empty()) fail(fmt::format("'{}' after the dict", printable(text_.substr(0, 16))));
    for (auto [seen, key] :
         {std::pair(descr, "descr"), std::pair(order, "fortran_order"), std::pair(shape, "shape")})
      if (!seen) fail(fmt::format("no key '{}'", key));
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("{}: bad .npy header: {}", name_, what),
                    "write the file with numpy.save");
  }
  static std::string printable(std::string_view text) {
    std::string out;
    for (char c : text.substr(0, 40)) out += c >= ' ' && c <= '~' ? c : '?';
    return out;
  }
  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n' || text_[0] == '\t'))
      text_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_space();
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(text_.empty() ? fmt::format("expected '{}', got the end", c)
                         : fmt::format("expected '{}', got '{}'", c, printable(text_)));
  }
  std::string string() {
    skip_space();
    char quote = text_.empty() ? '\0' : text_[0];
    if (quote != '\'' && quote != '"')
      fail(fmt::format("expected a string, got '{}'", printable(text_)));
    size_t end = text_.find(quote, 1);
    if (end == text_.npos) fail("a string without its closing quote");
    std::string out(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return out;
  }
  bool boolean() {
    skip_space();
    for (auto [word, value] : {std::pair("True", true), std::pair("False", false)})
      if (text_.starts_with(word)) {
        text_.remove_prefix(std::string_view(word).size());
        return value;
      }
    fail(fmt::format("fortran_order: expected True or False, got '{}'", printable(text_)));
  }
  int64_t integer() {
    skip_space();
    if (text_.starts_with('-')) fail("a negative extent in shape");
    int64_t value = 0;
    size_t digits = 0;
    for (; digits < text_.size() && text_[digits] >= '0' && text_[digits] <= '9'; ++digits)
      if (__builtin_mul_overflow(value, int64_t{10}, &value) ||
          __builtin_add_overflow(value, int64_t{text_[digits] - '0'}, &value))
        fail("an extent in shape does not fit in 64 bits");
    if (!digits) fail(fmt::format("shape: expected an integer, got '{}'", printable(text_)));
    text_.remove_prefix(digits);
    if (text_.starts_with('L')) text_.remove_prefix(1);  // written by Python 2
    return value;
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(integer());
      if (shape.size() > 32) fail("more than 32 axes");
      if (accept(')')) break;
      expect(',');
    }
    return shape;
  }
  void read_descr(NpyHeader& header) {
    skip_space();
    if (text_.starts_with('['))
      throw UserError(fmt::format("{}: expected one plain dtype, got a structured one", name_),
                      fmt::format("save each field on its own as one of {}", kSupported));
    std::string descr = string();
    std::string_view code = descr;
    if (!code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos) {
      header.big_endian = code[0] == '>';
      code.remove_prefix(1);
    }
    for (const TypeCode& row : kTypeCodes)
      if (row.code == code) {
        header.dtype = row.dtype;
        return;
      }
    throw UserError(fmt::format("{}: dtype '{}' is not supported: expected one of {}", name_,
                                printable(descr), kSupported),
                    code.starts_with('O')
                        ? "objects are pickled Python code, which is never loaded: convert the "
                          "array with astype"
                        : "convert the array with astype before numpy.save");
  }

  std::string_view text_;
  const std::string& name_;
};

void check_size(const NpyHeader& header, const std::string& name) {
  int64_t bytes = static_cast<int64_t>(size_of(header.dtype));
  for (int64_t extent : header.shape)
    // A zero elsewhere must not hide an extent that nothing could index.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes))
      throw UserError(fmt::format("{}: shape {} is too large", name, str(header.shape)));
}

}  // namespace

NpyHeader parse_npy_header(std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with(kMagic)) {
    bool zip = bytes.starts_with("PK\x03\x04");
    throw UserError(fmt::format("{}: expected a .npy file, got {}", name,
                                bytes.empty() ? "an empty file"
                                : zip         ? "a zip archive (.npz?)"
                                              : "something else (no \\x93NUMPY at its start)"),
                    "write the file with numpy.save");
  }
  if (bytes.size() < 10) throw UserError(fmt::format("{}: truncated in the .npy header", name));
  auto byte = [&](size_t at) { return size_t{static_cast<unsigned char>(bytes[at])}; };
  if (byte(6) < 1 || byte(6) > 3 || byte(7) != 0)
    throw UserError(fmt::format("{}: .npy format {}.{} is not known: expected 1.0, 2.0 or 3.0",
                                name, byte(6), byte(7)));
  size_t begin = byte(6) == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8;
  if (begin == 12 && bytes.size() >= begin) length |= byte(10) << 16 | byte(11) << 24;
  if (bytes.size() < begin || bytes.size() - begin < length)
    throw UserError(fmt::format("{}: truncated in the .npy header: expected {} bytes of it, got {}",
                                name, begin + length, bytes.size()));
  NpyHeader header = Reader(bytes.substr(begin, length), name).read();
  header.data_offset = begin + length;
  check_size(header, name);
  return header;
}

std::string format_npy_header(DType dtype, const Shape& shape) {
  std::string_view code = dtype == BF16 ? "V2" : dtype == E4M3 || dtype == E5M2 ? "u1" : "";
  for (const TypeCode& row : kTypeCodes)
    if (code.empty() && row.dtype == dtype) code = row.code;
  std::string extents;
  for (int64_t extent : shape) extents += fmt::format("{}, ", extent);
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  if (shape.size() == 1) extents.pop_back();
  std::string dict = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 size_of(dtype) == 1 ? '|' : '<', code, extents);
  size_t unpadded = kMagic.size() + 4 + dict.size() + 1;
  dict.append((64 - unpadded % 64) % 64, ' ');
  dict += '\n';
  return fmt::format("{}{}{}{}{}{}", kMagic, '\1', '\0', static_cast<char>(dict.size() & 255),
                     static_cast<char>(dict.size() >> 8), dict);
}

}  // namespace kiln
