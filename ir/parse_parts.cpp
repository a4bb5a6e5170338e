#include "ir/parse_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "ir/text.h"

namespace kiln {
namespace {

constexpr uint64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

std::string hint(const std::string& near) {
  return near.empty() ? "" : fmt::format("'{}'", near);
}

DType parse_dtype(TokenStream& in, bool alone) {
  const Token& token = in.peek();
  if (auto dtype = dtype_from_name(token.kind == TokenKind::Name ? token.text : "")) {
    in.take();
    return *dtype;
  }
  std::vector<std::string> names;
  for (DType dtype : kAllDTypes) names.emplace_back(name(dtype));
  const std::string all = fmt::format("{}", fmt::join(names, ", "));
  if (alone)
    names.insert(names.end(),
                 {"tensor", "view", "shared", "fragment", "local", "channel", "token"});
  const std::string near = nearest(token.text, names);
  in.fail_expected(alone ? "a type" : "an element type",
                   near.empty() ? "one of " + all : hint(near));
}

Shape parse_shape(TokenStream& in, bool dynamic) {
  // Every product of extents, in bytes of the widest element, fits 63 bits.
  constexpr int64_t kMaxCount = static_cast<int64_t>(kMaxInt64 / 8);
  Shape shape;
  int64_t product = 1;
  in.expect('[', "before the extents");
  if (in.accept(']')) return shape;
  do {
    const Token& token = in.peek();
    if (dynamic && token.is('?')) {
      shape.push_back(kDynamic);
    } else if (token.kind != TokenKind::Integer || token.negative) {
      in.fail_expected(dynamic ? "an extent: an integer, 0 or more, or '?'"
                               : "an extent of a tile: an integer, 0 or more");
    } else if (token.magnitude > kMaxInt64 ||
               __builtin_mul_overflow(product, static_cast<int64_t>(token.magnitude), &product) ||
               product > kMaxCount) {
      in.fail(token, fmt::format("too many elements: expected at most {}", kMaxCount));
    } else {
      shape.push_back(static_cast<int64_t>(token.magnitude));
    }
    in.take();
  } while (in.accept(','));
  in.expect(']', "after the extents");
  return shape;
}

Space parse_space(TokenStream& in) {
  const Token& token = in.peek();
  if (token.is("global")) return in.take(), Space::Global;
  if (token.is("shared")) return in.take(), Space::Shared;
  if (token.is("fragment")) return in.take(), Space::Fragment;
  if (token.is("local")) return in.take(), Space::Local;
  in.fail_expected("'global', 'shared', 'fragment' or 'local'");
}

int64_t parse_int64(TokenStream& in, const std::string& what) {
  const Token& token = in.peek();
  if (token.kind != TokenKind::Integer) in.fail_expected(what);
  if (token.magnitude > kMaxInt64 + (token.negative ? 1 : 0))
    in.fail(token, fmt::format("{} is out of the range of 64 bits", token.text));
  in.take();
  return static_cast<int64_t>(token.negative ? 0 - token.magnitude : token.magnitude);
}

double as_double(const Token& number) {
  if (number.kind == TokenKind::Float) return number.real;
  const double magnitude = static_cast<double>(number.magnitude);
  return number.negative ? -magnitude : magnitude;
}

bool representable(DType dtype, double value) {
  Scalar scalar;
  scalar.dtype = dtype;
  scalar.f = value;
  unsigned char bytes[8];
  store_element(scalar, bytes);
  const double stored = load_element(dtype, bytes).f;
  return stored == value || (std::isnan(stored) && std::isnan(value));
}

AttrValue float_number(const TokenStream& in, const Token& literal, DType dtype) {
  const double value = as_double(literal);
  // Of integers that 64 bits hold, those change as a double that round up to 2^64 or lose bits.
  const bool exact = literal.kind == TokenKind::Float ||
                     (std::abs(value) < std::ldexp(1.0, 64) &&
                      static_cast<uint64_t>(std::abs(value)) == literal.magnitude);
  if (!exact || !representable(dtype, value))
    in.fail(literal, fmt::format("{} has no exact representation in {}", literal.text, name(dtype)),
            fmt::format("the nearest that has: {}", float_text(round_to(dtype, value))));
  return value;
}

AttrValue int_number(const TokenStream& in, const Token& literal, DType dtype) {
  if (literal.kind != TokenKind::Integer)
    in.fail(literal,
            fmt::format("expected an integer of type {}, got '{}'", name(dtype), literal.text));
  const int bits = static_cast<int>(8 * size_of(dtype));
  const uint64_t largest = dtype == Bool ? 1 : ~uint64_t{0} >> (64 - bits + is_signed_int(dtype));
  const uint64_t limit = !literal.negative      ? largest
                         : is_signed_int(dtype) ? largest + 1
                                                : uint64_t{0};
  if (literal.magnitude > limit) {
    const std::string lowest =
        is_signed_int(dtype) ? fmt::format("-{}", largest + 1) : std::string("0");
    in.fail(literal, fmt::format("{} does not fit {}: expected {} to {}", literal.text, name(dtype),
                                 lowest, largest));
  }
  return static_cast<int64_t>(literal.negative ? 0 - literal.magnitude : literal.magnitude);
}

}  // namespace

Type parse_type(TokenStream& in) {
  const Token& token = in.peek();
  if (token.is("tensor")) {
    in.take();
    const DType dtype = parse_dtype(in, false);
    return Type::tensor(dtype, parse_shape(in, true));
  }
  if (token.is("view")) {
    in.take();
    const Space space = parse_space(in);
    const DType dtype = parse_dtype(in, false);
    return Type::view(space, dtype, parse_shape(in, true));
  }
  if (token.is("shared") || token.is("fragment") || token.is("local")) {
    const Space space = parse_space(in);
    const DType dtype = parse_dtype(in, false);
    return Type::tile(space, dtype, parse_shape(in, false));
  }
  if (token.is("channel")) {
    in.take();
    const DType dtype = parse_dtype(in, false);
    return Type::channel(dtype, parse_shape(in, false));
  }
  if (token.is("token")) return in.take(), Type::token();
  return Type::scalar(parse_dtype(in, true));
}

AttrValue parse_attribute(TokenStream& in, const AttrInfo& attr) {
  const Token& token = in.peek();
  const std::string for_attr = fmt::format(" for '{}'", attr.name);
  switch (attr.type) {
    case AttrType::Bool:
      if (!token.is("true") && !token.is("false")) in.fail_expected("true or false" + for_attr);
      return in.take().text == "true";
    case AttrType::Int: return parse_int64(in, "an integer" + for_attr);
    case AttrType::Float:
    case AttrType::Number:
      if (token.kind != TokenKind::Float && token.kind != TokenKind::Integer)
        in.fail_expected("a number" + for_attr);
      return as_double(in.take());
    case AttrType::Text: return in.expect(TokenKind::String, "a string" + for_attr).string;
    case AttrType::Word: {
      for (const std::string& word : attr.words)
        if (token.is(word)) return in.take(), word;
      in.fail_expected(fmt::format("one of {}{}", fmt::join(attr.words, ", "), for_attr),
                       hint(nearest(token.text, attr.words)));
    }
    case AttrType::Ints: break;
  }
  std::vector<int64_t> list;
  if (!in.accept('[')) in.fail_expected("a list of integers" + for_attr + ", as in [16, 8]");
  if (in.accept(']')) return list;
  do {
    list.push_back(parse_int64(in, "an integer" + for_attr));
  } while (in.accept(','));
  in.expect(']', "after the list");
  return list;
}

Token parse_number(TokenStream& in, const AttrInfo& attr) {
  const Token& token = in.peek();
  if (token.kind != TokenKind::Float && token.kind != TokenKind::Integer && !token.is("true") &&
      !token.is("false"))
    in.fail_expected(fmt::format("a number for '{}'", attr.name));
  return in.take();
}

AttrValue number_of(const TokenStream& in, const Token& literal, DType dtype) {
  if (literal.kind == TokenKind::Name) {
    if (dtype != Bool)
      in.fail(literal,
              fmt::format("expected a number of type {}, got '{}'", name(dtype), literal.text));
    return int64_t{literal.text == "true"};
  }
  return is_float(dtype) ? float_number(in, literal, dtype) : int_number(in, literal, dtype);
}

}  // namespace kiln
