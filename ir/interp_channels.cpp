// The ops of channels, and the law that who has a slot alone uses it.
#include "ir/interp_channels_impl.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/interp_impl.h"

namespace kiln::interp {

std::string Slot::fate(size_t agent) const {
  if (!pushed) return fmt::format("the push begun at {} is not ended", str(begun->loc));
  const bool is_pusher = agent == channel->pusher && agent != channel->popper;
  if (is_pusher || !popped) return fmt::format("the slot was handed over at {}", str(pushed->loc));
  if (!released) return fmt::format("the slot was popped at {}", str(popped->loc));
  return fmt::format("the slot was released at {}", str(released->loc));
}

void check_slot(const Op& op, const Slot& slot, size_t agent) {
  if (slot.open() && agent == slot.channel->pusher) return;
  if (slot.held() && agent == slot.channel->popper) return;
  throw UserError(op.loc,
                  fmt::format("{} uses a slot of {}, but {}", info(op.code).name,
                              slot.channel->name, slot.fate(agent)),
                  "a slot is the role's own from push_begin to push_end, or from pop to release");
}

void check_left(const Channel& channel, size_t agent, const std::string& name) {
  if (channel.pusher == agent && channel.pushing())
    throw UserError(
        channel.slots.back()->begun->loc,
        fmt::format("push_begin: {} ends with this push of {} open", name, channel.name),
        "push_end hands the slot over");
  if (channel.popper == agent && channel.released < channel.popped)
    throw UserError(
        channel.slots[channel.released]->popped->loc,
        fmt::format("pop: {} ends and {} of {} popped is not released", name,
                    channel.popped - channel.released == 1
                        ? "the slot"
                        : fmt::format("the first of {} slots", channel.popped - channel.released),
                    channel.name),
        "release each slot that is popped");
}

void check_drained(const Channel& channel) {
  if (channel.popped == channel.pushed) return;
  throw UserError(channel.slots[channel.popped]->pushed->loc,
                  fmt::format("push_end: {} of the {} slots pushed of {} were never popped",
                              channel.pushed - channel.popped, channel.pushed, channel.name),
                  "the role that pops takes all that is pushed before it ends");
}

// A block's own copies are there when their group is not among the latest that may be under way.
void check_arrived(const Op& pop, const Slot& slot, int64_t committed) {
  const auto& [copy, group] = slot.copied;
  if (!copy) return;
  const int64_t later = committed - group - 1, pending = pop.integer("pending");
  if (later < 0)
    throw UserError(pop.loc,
                    fmt::format("pop: the copy_async at {} is in no group yet", str(copy->loc)),
                    "commit_copies closes one");
  if (later < pending)
    throw UserError(pop.loc,
                    fmt::format("pop: pending = {}, but {} groups of copies were closed after that "
                                "of the copy_async at {}: it may still be under way",
                                pending, later, str(copy->loc)));
}

void Interpreter::run_channel(const Op& op) {
  if (auto old = channels_.find(op.result.id); old != channels_.end()) {
    check_left(*old->second, agent_number(), agent().name);
    check_drained(*old->second);
  }
  auto channel = std::make_unique<Channel>();
  channel->op = &op;
  channel->name = fmt::format("{} of {}", str(kernel_.type(op.result)), str(op.loc));
  channel->fields = message_fields(op);
  channels_[op.result.id] = std::move(channel);
}

// The channel that an op names. A channel has one agent at each end.
Channel& Interpreter::channel_at(const Op& op, std::optional<size_t> Channel::*end) {
  Channel& channel = *channels_.at(op.operands[0].id);
  const size_t agent = agent_number();
  if (!(channel.*end)) channel.*end = agent;
  if (channel.*end == agent) return channel;
  throw UserError(op.loc,
                  fmt::format("{} of {} by {}: that end of it is {}'s", info(op.code).name,
                              channel.name, agents_[agent].name, agents_[*(channel.*end)].name),
                  "a channel has one role that pushes and one that pops");
}

Slot& Interpreter::slot_at(const Op& op, size_t operand) const {
  Slot* slot = view(op.operands[operand]).base->slot;
  if (!slot) throw InternalError(op.loc, fmt::format("{} of no slot", info(op.code).name));
  return *slot;
}

void Interpreter::run_push_begin(const Op& op) {
  Channel& channel = channel_at(op, &Channel::pusher);
  if (channel.pushing())
    throw UserError(op.loc, "push_begin: " + channel.slots.back()->fate(agent_number()),
                    "one push at a time of a channel: push_end first");
  auto describe = [&] {
    return Waiting{op.loc, fmt::format("push_begin of {}: all {} slots are held", channel.name,
                                       channel.op->integer("slots"))};
  };
  wait([&] { return !channel.full(); }, describe);
  auto slot = std::make_unique<Slot>();
  slot->channel = &channel;
  slot->begun = &op;
  slot->storage = new_tile(kernel_.type(op.result));
  slot->storage.slot = slot.get();
  views_[op.result.id] = View::whole(slot->storage);
  channel.slots.push_back(std::move(slot));
}

void Interpreter::run_push_end(const Op& op) {
  Channel& channel = channel_at(op, &Channel::pusher);
  Slot& slot = slot_at(op, 1);
  if (slot.channel != &channel)
    throw UserError(
        op.loc, fmt::format("push_end of {}: the slot is of {}", channel.name, slot.channel->name));
  if (!slot.open())
    throw UserError(op.loc, "push_end: " + slot.fate(agent_number()),
                    "it takes the slot that push_begin gave last");
  work_.check_unused(op, slot.storage);
  const size_t given = op.operands.size() - 2;
  if (given > 0 && given != channel.fields.size())
    throw UserError(op.loc, fmt::format("push_end: expected the {} fields \"{}\", got {}",
                                        channel.fields.size(), channel.op->word("message"), given));
  if (given > 0) slot.message.emplace();
  for (size_t i = 0; i < given; ++i) slot.message->push_back(scalar(op.operands[i + 2]));
  slot.pushed = &op;
  ++channel.pushed;
}

void Interpreter::run_pop(const Op& op) {
  Channel& channel = channel_at(op, &Channel::popper);
  auto describe = [&] {
    return Waiting{op.loc, fmt::format("pop of {}: nothing was pushed", channel.name)};
  };
  wait([&] { return channel.popped < channel.pushed; }, describe);
  Slot& slot = *channel.slots[channel.popped++];
  if (!in_roles_) check_arrived(op, slot, committed_);
  work_.arrive(slot.storage);
  slot.popped = &op;
  views_[op.result.id] = View::whole(slot.storage);
}

// Where all are released it is the newest, of which nothing may be used.
void Interpreter::run_held(const Op& op) {
  const Channel& channel = channel_at(op, &Channel::popper);
  if (channel.popped == 0)
    throw UserError(op.loc, fmt::format("held: no slot of {} was popped", channel.name),
                    "pop one first");
  const bool oldest = op.word("which") == "oldest" && channel.released < channel.popped;
  Slot& slot = *channel.slots[oldest ? channel.released : channel.popped - 1];
  views_[op.result.id] = View::whole(slot.storage);
}

void Interpreter::run_message(const Op& op) {
  const Slot& slot = slot_at(op, 0);
  const std::string& field = op.word("field");
  if (!slot.held())
    throw UserError(op.loc,
                    fmt::format("message: field '{}': {}", field, slot.fate(agent_number())),
                    "read a message between pop and release of its slot");
  const std::vector<MessageField>& fields = slot.channel->fields;
  size_t which = 0;
  while (which < fields.size() && fields[which].name != field) ++which;
  if (which == fields.size())
    throw UserError(op.loc,
                    fmt::format("message: {} has no field '{}'", slot.channel->name, field));
  if (!slot.message)
    throw UserError(op.loc,
                    fmt::format("message: field '{}' of a slot pushed without fields, at {}", field,
                                str(slot.pushed->loc)),
                    "give push_end the fields");
  scalars_[op.result.id] = (*slot.message)[which];
}

void Interpreter::run_release(const Op& op) {
  Channel& channel = channel_at(op, &Channel::popper);
  Slot& slot = slot_at(op, 1);
  if (slot.channel != &channel)
    throw UserError(
        op.loc, fmt::format("release of {}: the slot is of {}", channel.name, slot.channel->name));
  if (!slot.held()) throw UserError(op.loc, "release: " + slot.fate(agent_number()));
  const Slot& next = *channel.slots[channel.released];
  if (&slot != &next)
    throw UserError(op.loc,
                    fmt::format("release of {}: the slot popped before this one, at {}, is still "
                                "held",
                                channel.name, str(next.popped->loc)),
                    "slots go back in the order of the ring");
  work_.check_unused(op, slot.storage);
  slot.released = &op;
  slot.storage.cells = {};  // what is left of it says what happened to it
  slot.storage.written = {};
  ++channel.released;
}

// A copy_async goes into a slot that the agent is pushing.
void Interpreter::require_open(const Op& op, const Storage& to) const {
  if (to.slot && to.slot->open()) return;
  throw UserError(
      op.loc, fmt::format("copy_async into {}: expected a slot between its push_begin and "
                          "push_end, but {}",
                          str(to.type), to.slot ? to.slot->fate(agent_number()) : "it is none"));
}

}  // namespace kiln::interp
