#include "ir/layout/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "ir/error.h"

namespace kiln {
namespace {

// Of any number in a text: what the largest tile has, with its padding; products of two stay exact.
constexpr int64_t kLargest = int64_t{1} << 28;
constexpr size_t kMostImages = 28;  // of a resource

// What the parts of a layout use of a resource, without a gap at the end.
int64_t used_extent(const Layout::Parts& parts, Resource resource) {
  int64_t extent = int64_t{1} << parts.atom[resource].size();
  for (const Digit& digit : parts.digits)
    if (digit.resource == resource) extent = std::max(extent, digit.stride * digit.extent);
  return extent;
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text), rest_(text) {}

  bool at_end() {
    skip_spaces();
    return rest_.empty();
  }
  bool sees(std::string_view word) {
    skip_spaces();
    return rest_.starts_with(word);
  }
  bool accept(std::string_view word) {
    if (!sees(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!accept(word)) fail(fmt::format("expected `{}`", word));
  }
  int64_t number() {
    skip_spaces();
    int64_t value = -1;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{} || value < 0 || value > kLargest) fail("expected a number");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  Coordinate tuple(std::string_view open, std::string_view close) {
    Coordinate values;
    expect(open);
    while (!accept(close)) {
      if (!values.empty()) expect(",");
      values.push_back(number());
    }
    return values;
  }
  std::optional<Resource> resource() {
    for (const Resource resource : kResources)
      if (accept(name(resource))) return resource;
    return std::nullopt;
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw UserError(fmt::format("layout `{}`: {} at `{}`", text_, what, rest_));
  }

 private:
  void skip_spaces() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }

  std::string_view text_, rest_;
};

Digit read_digit(Reader& reader) {
  Digit digit;
  digit.extent = reader.number();
  const auto resource = reader.resource();
  if (!resource) reader.fail("expected reg, lane, warp or offset");
  digit.resource = *resource;
  digit.stride = reader.number();
  if (reader.accept("copies")) return digit;
  reader.expect("axis");
  digit.axis = static_cast<int>(reader.number());
  digit.axis_stride = reader.number();
  return digit;
}

void read_images(Reader& reader, Images& images) {
  if (!images.empty()) reader.fail("images given twice");
  while (reader.sees("(")) {
    if (images.size() == kMostImages) reader.fail("too many images");
    images.push_back(reader.tuple("(", ")"));
  }
}

}  // namespace

std::string layout_text(const Layout& layout) {
  std::string text = fmt::format("[{}]", fmt::join(layout.shape(), ", "));
  for (const Resource resource : kResources) {
    const Images& images = layout.atom()[resource];
    if (images.empty()) continue;
    text += fmt::format(" {}", name(resource));
    for (const Coordinate& image : images) text += fmt::format(" {}", tuple_text(image));
  }
  for (const Digit& digit : layout.digits()) {
    text += fmt::format(" digit {} {} {}", digit.extent, name(digit.resource), digit.stride);
    if (digit.axis == kNoAxis) {
      text += " copies";
    } else {
      text += fmt::format(" axis {} {}", digit.axis, digit.axis_stride);
    }
  }
  const int64_t offsets = layout.extent(Resource::Offset);
  if (offsets != used_extent(layout.parts(), Resource::Offset))
    text += fmt::format(" pitch {}", offsets);
  return text;
}

Layout parse_layout(std::string_view text) {
  Reader reader(text);
  Layout::Parts parts;
  parts.shape = reader.tuple("[", "]");
  int64_t pitch = 0;
  while (!reader.at_end()) {
    if (reader.accept("digit")) {
      parts.digits.push_back(read_digit(reader));
    } else if (reader.accept("pitch")) {
      pitch = reader.number();
    } else if (const auto resource = reader.resource()) {
      read_images(reader, parts.atom[*resource]);
    } else {
      reader.fail("unexpected text");
    }
  }
  for (const Resource resource : kResources)
    parts.extents[static_cast<size_t>(resource)] = used_extent(parts, resource);
  int64_t& offsets = parts.extents[static_cast<size_t>(Resource::Offset)];
  offsets = std::max(offsets, pitch);
  try {
    return Layout(std::move(parts));
  } catch (const InternalError& error) {
    throw UserError(error.message());
  }
}

}  // namespace kiln
