// Channels: rings of slots with two mbarriers a slot.
//
//     full[s]    completes when slot s has been handed over: an arrival of each warp that pushes,
//                and the bytes of the asynchronous copies into it
//     empty[s]   completes when slot s has been given back: an arrival of each warp that pops
//
// Each end of a channel waits for the slots in order and knows the parity of the round: the popping
// end starts with 0, the pushing end with 1, so that its first round passes at once.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/nvptx_assembly_impl.h"
#include "codegen/nvptx_emit_impl.h"
#include "codegen/roles_impl.h"
#include "ir/channel.h"
#include "ir/error.h"
#include "ir/walk.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

// The state of a role's ends: registers of the fragment under the channel's id.
enum State : size_t { kPushIndex, kPushPhase, kPopIndex, kPopPhase, kNewest, kOldest, kHeld, kAll };

// Waiting is not a loop of LLVM's: blocks stay whole, and nothing is moved into it.
constexpr const char* kWait =
    "{\n\t.reg .pred p;\nL_wait_${:uid}:\n\t"
    "mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1;\n\t"
    "@p bra L_done_${:uid};\n\tbra L_wait_${:uid};\nL_done_${:uid}:\n\t}";

bool pushes(OpCode code) {
  return code == OpCode::PushBegin || code == OpCode::PushEnd;
}
bool is_end(OpCode code) {
  return pushes(code) || code == OpCode::Pop || code == OpCode::Held || code == OpCode::Release;
}

template <class Found>
bool any_op(const Kernel& kernel, RegionId region, Found&& found) {
  bool any = false;
  walk(kernel, region, [&](OpId id) { any = any || found(kernel.op(id)); });
  return any;
}

// What the parts of the code around a channel do with it.
struct Uses {
  int64_t push_arrivals = 1, pop_arrivals = 1;
};

Uses uses_of(const Kernel& kernel, const Op& roles, Value channel) {
  Uses uses;
  for (const Role& role : roles_of(kernel, roles)) {
    const int64_t arrivals = role.one_thread ? 1 : role.warps;
    walk(kernel, role.region, [&](OpId id) {
      const Op& op = kernel.op(id);
      if (!is_end(op.code) || op.operands[0] != channel) return;
      (pushes(op.code) ? uses.push_arrivals : uses.pop_arrivals) = arrivals;
    });
  }
  return uses;
}

// Do the threads of the region write slots of a channel themselves, unseen by the asynchronous
// copies that come into them later or read them?
bool writes_slots(const Kernel& kernel, RegionId region, Value channel) {
  return any_op(kernel, region, [&](const Op& op) {
    if (op.code == OpCode::CopyAsync || is_end(op.code)) return false;
    const auto all = accesses(kernel, op);
    return std::any_of(all.begin(), all.end(), [&](const Access& access) {
      const Op* owner = channel_of(kernel, access.base);
      return owner && owner->result == channel && access.effect != Effect::Read;
    });
  });
}

bool stores_slots(const Kernel& kernel, RegionId region, Value channel) {
  return any_op(kernel, region, [&](const Op& op) {
    if (op.code != OpCode::StoreAsync) return false;
    const Op* owner = channel_of(kernel, base_of(kernel, op.operands[0]));
    return owner && owner->result == channel;
  });
}

}  // namespace

void Emitter::emit_channel(const Op& op) {
  const bool slots = kernel_.type(op.result).rank() > 0;
  if ((slots && op.integer("offset") < 0) || op.integer("control") < 0 || !shared_)
    throw InternalError(op.loc, "the channel has no place in shared memory");
  if (slots && op.word("layout").empty()) throw InternalError(op.loc, "the channel has no layout");
  channels_.push_back(&op);
}

Val Emitter::control(const Op& channel, Val index, int64_t bytes_each, int64_t offset) {
  auto& ir = b.ir;
  Val at = ir.CreateAdd(ir.CreateMul(index, b.i32(bytes_each)),
                        b.i32(channel.integer("control") + offset));
  return ir.CreateGEP(ir.getInt8Ty(), shared_, at);
}

Val Emitter::full(const Op& channel, Val index) {
  return control(channel, index, 8, 0);
}

Val Emitter::empty(const Op& channel, Val index) {
  return control(channel, index, 8, 8 * channel.integer("slots"));
}

void Emitter::start_channels(const Op& roles) {
  if (channels_.empty()) return;
  const auto start = [&] {
    for (const Op* channel : channels_) {
      const Uses uses = uses_of(kernel_, roles, channel->result);
      for (int64_t i = 0; i < channel->integer("slots"); ++i) {
        b.call(I::nvvm_mbarrier_init_shared, {full(*channel, b.i32(i)), b.i32(uses.push_arrivals)});
        b.call(I::nvvm_mbarrier_init_shared, {empty(*channel, b.i32(i)), b.i32(uses.pop_arrivals)});
      }
    }
    b.call(I::nvvm_fence_mbarrier_init_release_cluster, {});
    b.call(I::nvvm_fence_proxy_async_shared_cta, {});
  };
  b.when(leader(), start);
  barrier();
}

void Emitter::start_channel_ends() {
  for (const Op* channel : channels_) {
    const bool here = any_op(kernel_, body_, [&](const Op& op) {
      return is_end(op.code) && op.operands[0] == channel->result;
    });
    if (!here) continue;
    Values state(kAll, b.i32(0));
    state[kPushPhase] = b.i32(1);
    fragments_.insert_or_assign(channel->result.id, Fragment{I32, nullptr, std::move(state)});
  }
}

void Emitter::wait(Val barrier, Val phase) {
  assembly(b, kWait, "r,r,~{memory}", {},
           Values{b.ir.CreatePtrToInt(barrier, b.ir.getInt32Ty()), phase});
}

Place Emitter::slot_place(const Op& channel, Val index) {
  const Type& type = kernel_.type(channel.result);
  Place place;
  place.dtype = type.dtype;
  place.space = Space::Shared;
  if (type.rank() == 0) return place;
  place.layout = layout(channel.word("layout"));
  const int64_t bytes =
      place.layout->extent(Resource::Offset) * static_cast<int64_t>(size_of(type.dtype));
  Val at = b.ir.CreateAdd(b.ir.CreateMul(index, b.i32(bytes)), b.i32(channel.integer("offset")));
  place.pointer = b.ir.CreateGEP(b.ir.getInt8Ty(), shared_, at);
  for (int64_t extent : type.shape)
    place.axes.push_back(
        {nullptr, b.i32(0), b.i32(0), b.i32(extent), b.i32(extent), extent, 0, extent});
  return place;
}

// The slot of a push_begin, pop or held; of the latter two, its message if somebody reads it.
void Emitter::take_slot(const Op& op, Val index) {
  const Op& channel = *kernel_.def_as(op.operands[0], OpCode::Channel);
  SlotState slot{&channel, index, region_, 0, {}};
  const bool read = any_op(kernel_, body_, [&](const Op& other) {
    return other.code == OpCode::Message && other.operands[0] == op.result;
  });
  if (read) slot.message = read_message(channel, index);
  slots_[op.result.id] = std::move(slot);
  places_[op.result.id] = slot_place(channel, index);
}

Val Emitter::message_address(const Op& channel, Val index, int64_t first_word) {
  const int64_t vectors = (message_words(message_fields(channel)) + 3) / 4;
  return control(channel, index, 16 * vectors, 16 * channel.integer("slots") + 4 * first_word);
}

Values Emitter::read_message(const Op& channel, Val index) {
  auto& ir = b.ir;
  const int words = message_words(message_fields(channel));
  Values message;
  for (int first = 0; first < words; first += 4) {
    const int count = std::min(words - first, 4);
    llvm::Type* type = ir.getInt32Ty();
    if (count > 1)
      type = llvm::FixedVectorType::get(type, static_cast<unsigned>(count == 2 ? 2 : 4));
    Val vector =
        ir.CreateAlignedLoad(type, message_address(channel, index, first), llvm::Align(16));
    for (int i = 0; i < count; ++i)
      message.push_back(count == 1 ? vector : ir.CreateExtractElement(vector, b.i32(i)));
  }
  return message;
}

void Emitter::write_message(const Op& channel, Val index, std::span<const Value> values) {
  auto& ir = b.ir;
  const std::vector<MessageField> fields = message_fields(channel);
  Values words(static_cast<size_t>(message_words(fields)), b.i32(0));
  for (size_t i = 0; i < fields.size(); ++i) {
    const MessagePlace at = message_place(fields, fields[i].name);
    Val& word = words[static_cast<size_t>(at.word)];
    Val value = scalar(values[i]);
    word =
        at.bit < 0
            ? value
            : ir.CreateOr(word, ir.CreateShl(ir.CreateZExt(value, ir.getInt32Ty()), b.i32(at.bit)));
  }
  words.resize((words.size() + 3) / 4 * 4, b.i32(0));
  for (size_t first = 0; first < words.size(); first += 4) {
    Val vector = llvm::PoisonValue::get(llvm::FixedVectorType::get(ir.getInt32Ty(), 4));
    for (size_t i = 0; i < 4; ++i)
      vector = ir.CreateInsertElement(vector, words[first + i], b.i32(static_cast<int64_t>(i)));
    ir.CreateAlignedStore(vector, message_address(channel, index, static_cast<int64_t>(first)),
                          llvm::Align(16));
  }
}

void Emitter::advance(Values& state, size_t index, size_t phase, int64_t slots) {
  auto& ir = b.ir;
  Val next = ir.CreateAdd(state[index], b.i32(1));
  Val wraps = ir.CreateICmpEQ(next, b.i32(slots));
  state[index] = ir.CreateSelect(wraps, b.i32(0), next);
  state[phase] = ir.CreateXor(state[phase], ir.CreateZExt(wraps, ir.getInt32Ty()));
}

void Emitter::emit_push_end(const Op& op) {
  SlotState& slot = slots_.at(op.operands[1].id);
  const Op& channel = *slot.channel;
  if (writes_slots(kernel_, body_, channel.result))
    b.call(I::nvvm_fence_proxy_async_shared_cta, {});
  if (!agent_.one_thread) b.call(I::nvvm_bar_warp_sync, {b.i32(-1)});
  const auto fields = std::span(op.operands).subspan(2);
  Val barrier = full(channel, slot.index);
  if (!fields.empty()) b.when(leader(), [&] { write_message(channel, slot.index, fields); });
  const auto arrive = [&] { b.call(I::nvvm_mbarrier_arrive_shared, {barrier}); };
  const auto arrive_expecting = [&] {
    b.call(I::nvvm_mbarrier_arrive_expect_tx_scope_cta_space_cta, {barrier, b.i32(slot.bytes)});
  };
  if (slot.bytes == 0)
    b.when(first_lane(), arrive);
  else if (agent_.one_thread || agent_.warps == 1)
    b.when(first_lane(), arrive_expecting);
  else
    b.when(leader(), arrive_expecting, [&] { b.when(first_lane(), arrive); });
  advance(fragment(op.operands[0]).registers, kPushIndex, kPushPhase, channel.integer("slots"));
}

void Emitter::emit_pop(const Op& op) {
  const Op& channel = *kernel_.def_as(op.operands[0], OpCode::Channel);
  Values& state = fragment(op.operands[0]).registers;
  Val index = state[kPopIndex];
  wait(full(channel, index), state[kPopPhase]);
  take_slot(op, index);
  state[kNewest] = index;
  if (counts_held(channel)) {
    Val none = b.ir.CreateICmpEQ(state[kHeld], b.i32(0));
    state[kOldest] = b.ir.CreateSelect(none, index, state[kOldest]);
    state[kHeld] = b.ir.CreateAdd(state[kHeld], b.i32(1));
  }
  advance(state, kPopIndex, kPopPhase, channel.integer("slots"));
}

bool Emitter::counts_held(const Op& channel) {
  return any_op(kernel_, body_, [&](const Op& op) {
    return op.code == OpCode::Held && op.operands[0] == channel.result &&
           op.word("which") == "oldest";
  });
}

void Emitter::emit_release(const Op& op) {
  auto& ir = b.ir;
  const SlotState& slot = slots_.at(op.operands[1].id);
  const Op& channel = *slot.channel;
  Val barrier = empty(channel, slot.index);
  // store_async has a fence of its own.
  if (writes_slots(kernel_, body_, channel.result) && !stores_slots(kernel_, body_, channel.result))
    b.call(I::nvvm_fence_proxy_async_shared_cta, {});
  if (!agent_.one_thread) b.call(I::nvvm_bar_warp_sync, {b.i32(-1)});
  b.when(first_lane(), [&] { b.call(I::nvvm_mbarrier_arrive_shared, {barrier}); });
  if (!counts_held(channel)) return;
  // Where none is left, the newest stays.
  Values& state = fragment(op.operands[0]).registers;
  state[kHeld] = ir.CreateSub(state[kHeld], b.i32(1));
  Val next = ir.CreateAdd(state[kOldest], b.i32(1));
  next = ir.CreateSelect(ir.CreateICmpEQ(next, b.i32(channel.integer("slots"))), b.i32(0), next);
  state[kOldest] = ir.CreateSelect(ir.CreateICmpEQ(state[kHeld], b.i32(0)), state[kOldest], next);
}

void Emitter::emit_message(const Op& op) {
  const SlotState& slot = slots_.at(op.operands[0].id);
  const MessagePlace at = message_place(message_fields(*slot.channel), op.word("field"));
  Val word = slot.message.at(static_cast<size_t>(at.word));
  if (at.bit < 0) return set(op.result, word);
  Val bit = b.ir.CreateAnd(word, b.i32(int64_t{1} << at.bit));
  set(op.result, b.ir.CreateICmpNE(bit, b.i32(0)));
}

void Emitter::emit_channel_op(const Op& op) {
  if (op.code == OpCode::PushEnd) return emit_push_end(op);
  if (op.code == OpCode::Pop) return emit_pop(op);
  if (op.code == OpCode::Release) return emit_release(op);
  if (op.code == OpCode::Message) return emit_message(op);
  const Values& state = fragment(op.operands[0]).registers;
  if (op.code == OpCode::Held)
    return take_slot(op, state[op.word("which") == "oldest" ? kOldest : kNewest]);
  const Op& channel = *kernel_.def_as(op.operands[0], OpCode::Channel);
  wait(empty(channel, state[kPushIndex]), state[kPushPhase]);
  take_slot(op, state[kPushIndex]);
}

Val Emitter::full_barrier(Value slot) {
  const SlotState& state = slots_.at(slot.id);
  return full(*state.channel, state.index);
}

void Emitter::expect_bytes(Value slot, int64_t bytes) {
  SlotState& state = slots_.at(slot.id);
  // What always comes with the slot is announced all at once by push_end. The barrier may learn of
  // bytes before it is told to expect them: it cannot complete without the arrival.
  if (state.region == region_) {
    state.bytes += bytes;
    return;
  }
  b.call(I::nvvm_mbarrier_expect_tx_scope_cta_space_cta, {full_barrier(slot), b.i32(bytes)});
}

Val Emitter::first_lane() {
  return agent_.one_thread ? nullptr : b.ir.CreateICmpEQ(lane_, b.i32(0));
}

}  // namespace kiln::nvptx
