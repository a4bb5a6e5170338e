// On the text, where an extent is a number in brackets and a dtype a word: neither can be changed
// in a kernel, whose values keep their types.
#include "tests/differential/shrink.h"

#include <cctype>
#include <set>
#include <string>

#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"

namespace kiln::differential {
namespace {

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
}

// Calls visit(word, in_brackets) for every number and word outside of strings and names; what it
// gives takes the word's place.
template <class Visit>
std::string with_words(const std::string& text, Visit&& visit) {
  std::string out;
  int brackets = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') quoted = !quoted;
    if (c == '[') ++brackets;
    if (c == ']') --brackets;
    const bool is_name = at > 0 && (text[at - 1] == '%' || text[at - 1] == '@');
    size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end == at) {
      out += text[at++];
      continue;
    }
    const std::string word = text.substr(at, end - at);
    out += quoted || is_name ? word : visit(word, brackets > 0);
    at = end;
  }
  return out;
}

std::optional<Kernel> parsed(const std::string& text) {
  try {
    return parse(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

Shrinking renamed(const std::string& from, const std::string& to, bool is_extent) {
  return [=](const Kernel& kernel) -> std::optional<Kernel> {
    bool found = false;
    const std::string text = with_words(print(kernel), [&](const std::string& word, bool inside) {
      const bool same = word == from && inside == is_extent;
      found |= same;
      return same ? to : word;
    });
    return found ? parsed(text) : std::nullopt;
  };
}

}  // namespace

std::vector<Shrinking> shrinkings(const Kernel& kernel) {
  std::set<int64_t> extents;
  with_words(print(kernel), [&](const std::string& word, bool inside) {
    if (inside && std::isdigit(static_cast<unsigned char>(word[0])))
      extents.insert(std::stoll(word));
    return word;
  });
  std::vector<Shrinking> all;
  for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent)
    for (int64_t less : {int64_t{1}, int64_t{2}, int64_t{8}, *extent / 2, *extent - 1})
      if (less > 0 && less < *extent)
        all.push_back(renamed(std::to_string(*extent), std::to_string(less), true));
  for (DType dtype : kAllDTypes)
    for (DType plainer : {F32, I32})
      if (dtype != plainer && is_float(dtype) == is_float(plainer))
        all.push_back(renamed(std::string(name(dtype)), std::string(name(plainer)), false));
  return all;
}

}  // namespace kiln::differential
