#include "ir/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "ir/error.h"

namespace kiln {
namespace {

constexpr int kMostBools = 32;

MessageField parse_field(const Op& channel, std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view type = colon == text.npos ? "" : text.substr(colon + 1);
  const auto dtype = dtype_from_name(type);
  if (colon == 0 || !dtype || (*dtype != Bool && *dtype != I32))
    throw UserError(
        channel.loc,
        fmt::format("channel: message field '{}': expected name:bool or name:i32", text));
  return {std::string(text.substr(0, colon)), *dtype};
}

bool has_bools(const std::vector<MessageField>& fields) {
  return std::any_of(fields.begin(), fields.end(),
                     [](const MessageField& field) { return field.dtype == Bool; });
}

}  // namespace

std::vector<MessageField> message_fields(const Op& channel) {
  std::vector<MessageField> fields;
  std::string_view rest = channel.word("message");
  while (!rest.empty()) {
    const size_t space = std::min(rest.find(' '), rest.size());
    if (space > 0) fields.push_back(parse_field(channel, rest.substr(0, space)));
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  int bools = 0;
  for (size_t i = 0; i < fields.size(); ++i) {
    bools += fields[i].dtype == Bool;
    for (size_t j = 0; j < i; ++j)
      if (fields[i].name == fields[j].name)
        throw UserError(channel.loc,
                        fmt::format("channel: message field '{}' is given twice", fields[i].name));
  }
  if (bools > kMostBools)
    throw UserError(channel.loc, fmt::format("channel: message: expected at most {} bools, got {}",
                                             kMostBools, bools));
  return fields;
}

MessagePlace message_place(const std::vector<MessageField>& fields, std::string_view name) {
  int word = has_bools(fields) ? 1 : 0, bit = 0;
  for (const MessageField& field : fields) {
    if (field.name == name)
      return field.dtype == Bool ? MessagePlace{0, bit} : MessagePlace{word, -1};
    ++(field.dtype == Bool ? bit : word);
  }
  throw InternalError(fmt::format("no message field '{}'", name));
}

int message_words(const std::vector<MessageField>& fields) {
  int words = has_bools(fields) ? 1 : 0;
  for (const MessageField& field : fields) words += field.dtype != Bool;
  return words;
}

int64_t control_bytes(const Op& channel) {
  const int64_t vectors = (message_words(message_fields(channel)) + 3) / 4;
  return channel.integer("slots") * (16 + 16 * vectors);
}

std::vector<std::string> role_names(const Op& roles) {
  std::istringstream text(roles.word("names"));
  std::vector<std::string> names;
  for (std::string name; text >> name;) names.push_back(name);
  return names;
}

}  // namespace kiln
