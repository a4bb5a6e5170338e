// Roles and channels of the late IR: names, and what a message holds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// Attribute `names` of an op `roles`, one a role.
std::vector<std::string> role_names(const Op& roles);

struct MessageField {
  std::string name;
  DType dtype;  // bool or i32
  bool operator==(const MessageField&) const = default;
};

// Attribute `message` of an op `channel`: "first:bool kv:i32". UserError if it is not of that form,
// if a dtype is neither bool nor i32, or a name comes twice.
std::vector<MessageField> message_fields(const Op& channel);

// How a message lies in memory: all bools in the bits of word 0 if there are any, in order; then a
// word for each i32.
struct MessagePlace {
  int word = 0;
  int bit = -1;  // of a bool
};
MessagePlace message_place(const std::vector<MessageField>& fields, std::string_view name);
int message_words(const std::vector<MessageField>& fields);
// Bytes of a channel's barriers and messages: two barriers of 8 bytes a slot, then the messages,
// each in whole vectors of 16 bytes.
int64_t control_bytes(const Op& channel);

}  // namespace kiln
