// Channels while the interpreter runs: the slots of a ring and who has each.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "ir/channel.h"
#include "ir/interp_storage_impl.h"

namespace kiln::interp {

struct Channel;

// One use of a place in the ring, from push_begin to release. Each use is a Slot of its own, so
// that a value that names a past one is recognised.
struct Slot {
  struct CopiedIn {
    const Op* op = nullptr;  // the copy_async issued last
    int64_t group = 0;       // of the block's groups of copies
  };
  Channel* channel = nullptr;
  Storage storage;
  std::optional<std::vector<Scalar>> message;  // none: pushed without fields
  CopiedIn copied;
  // What happened to it so far.
  const Op *begun = nullptr, *pushed = nullptr, *popped = nullptr, *released = nullptr;

  bool open() const { return !pushed; }
  bool held() const { return popped && !released; }
  // "the slot was released at file:line", as the agent sees it.
  std::string fate(size_t agent) const;
};

struct Channel {
  const Op* op = nullptr;
  std::string name;  // "channel f16[64, 64] of file:line"
  std::vector<MessageField> fields;
  std::deque<std::unique_ptr<Slot>> slots;  // all of the block, in the order of their pushes
  size_t pushed = 0, popped = 0, released = 0;
  std::optional<size_t> pusher, popper;  // agents

  bool pushing() const { return pushed < slots.size(); }
  bool full() const { return slots.size() - released >= static_cast<size_t>(op->integer("slots")); }
};

// UserError if `op` of this agent may not use a slot's payload.
void check_slot(const Op& op, const Slot& slot, size_t agent);
// UserError if an agent that ends has a push open or holds a slot.
void check_left(const Channel& channel, size_t agent, const std::string& name);
// UserError if `pop`, in a launch without roles, may come before the copies into the slot are done:
// `committed` groups of copies were closed so far.
void check_arrived(const Op& pop, const Slot& slot, int64_t committed);
// UserError if slots were pushed that nobody popped.
void check_drained(const Channel& channel);

}  // namespace kiln::interp
