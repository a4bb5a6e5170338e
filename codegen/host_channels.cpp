// Channels: three counters, messages and a ring of tiles in the block's scratch memory. One role
// runs at a time, so that plain loads and stores do; a role that has to wait calls its agent, which
// lets others run.
#include <fmt/format.h>

#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"
#include "ir/channel.h"
#include "ir/error.h"

namespace kiln::host {

static constexpr unsigned kAgentArgument = 5;  // of a role's function

void Emitter::emit_channel(const Op& op) {
  const Type& type = kernel_.type(op.result);
  const int64_t slots = op.integer("slots");
  Channel& channel = channels_[op.result.id];
  channel.op = &op;
  channel.counters = take_scratch(3 * sizeof(int64_t));
  channel.words = message_words(message_fields(op));
  channel.messages = take_scratch(static_cast<uint64_t>(4 * channel.words * slots));
  if (!type.shape.empty()) {
    Shape ring = {slots};
    ring.insert(ring.end(), type.shape.begin(), type.shape.end());
    channel.ring = scratch_bytes_;
    channel.slots = new_tile(type.dtype, ring);
  }
  for (Counter which : {Counter::Pushed, Counter::Popped, Counter::Released})
    b.ir.CreateStore(b.i64(0), counter(channel, which));
}

Val Emitter::counter(const Channel& channel, Counter which) {
  return scratch_at(channel.counters + sizeof(int64_t) * static_cast<uint64_t>(which));
}

Val Emitter::count(const Channel& channel, Counter which) {
  return b.ir.CreateLoad(b.ir.getInt64Ty(), counter(channel, which));
}

void Emitter::increment(const Channel& channel, Counter which) {
  b.ir.CreateStore(b.ir.CreateAdd(count(channel, which), b.i64(1)), counter(channel, which));
}

void Emitter::await(const Op& op, const Channel& channel, Counter which, Val least,
                    const char* why) {
  auto& ir = b.ir;
  // A block without roles has nobody to wait for; that it need not is the interpreter's to check.
  if (function_->arg_size() <= kAgentArgument) return;
  b.when(ir.CreateICmpSLT(count(channel, which), least), [&] {
    Val agent = function_->getArg(kAgentArgument);
    const size_t number = waits_.size();
    waits_.push_back(
        {op.loc, fmt::format("{} of {} of {}: {}", info(op.code).name,
                             str(kernel_.type(channel.op->result)), str(channel.op->loc), why)});
    auto* type = llvm::FunctionType::get(
        ir.getInt1Ty(), {ir.getPtrTy(), ir.getPtrTy(), ir.getInt64Ty(), ir.getInt64Ty()}, false);
    llvm::CallInst* goes_on =
        ir.CreateCall(type, ir.CreateLoad(ir.getPtrTy(), agent),
                      {agent, counter(channel, which), least, b.i64(static_cast<int64_t>(number))});
    goes_on->addRetAttr(llvm::Attribute::ZExt);
    b.when(ir.CreateNot(goes_on), [&] {
      ir.CreateRetVoid();
      // Whatever follows is not reached.
      ir.SetInsertPoint(llvm::BasicBlock::Create(ir.getContext(), "never", function_));
    });
  });
}

// The op's result is the slot of the channel's use of this number.
void Emitter::use_slot(const Op& op, const Channel& channel, Val number) {
  auto& ir = b.ir;
  Val place = ir.CreateURem(number, b.i64(channel.op->integer("slots")));
  uses_[op.result.id] = {&channel, place};
  if (channel.slots.axes.empty()) return;
  Place slot = channel.slots;
  slot.pointer = ir.CreateGEP(b.tile_type(slot.dtype), scratch_at(channel.ring),
                              ir.CreateMul(place, b.i64(slot.pitches[0])));
  slot.axes.erase(slot.axes.begin());
  slot.pitches.erase(slot.pitches.begin());
  places_[op.result.id] = slot;
}

void Emitter::emit_channel_op(const Op& op) {
  auto& ir = b.ir;
  if (op.code == OpCode::Message) return emit_message(op);
  const Channel& channel = channels_.at(op.operands[0].id);
  switch (op.code) {
    case OpCode::PushBegin: {
      Val pushed = count(channel, Counter::Pushed);
      Val least = ir.CreateSub(pushed, b.i64(channel.op->integer("slots") - 1));
      await(op, channel, Counter::Released, least, "all its slots are held");
      return use_slot(op, channel, pushed);
    }
    case OpCode::PushEnd: return emit_push_end(op);
    case OpCode::Pop: {
      Val popped = count(channel, Counter::Popped), least = ir.CreateAdd(popped, b.i64(1));
      await(op, channel, Counter::Pushed, least, "nothing was pushed");
      increment(channel, Counter::Popped);
      return use_slot(op, channel, popped);
    }
    case OpCode::Held: {
      Val newest = ir.CreateSub(count(channel, Counter::Popped), b.i64(1));
      if (op.word("which") != "oldest") return use_slot(op, channel, newest);
      return use_slot(op, channel, b.smin(count(channel, Counter::Released), newest));
    }
    case OpCode::Release: return increment(channel, Counter::Released);
    default: throw InternalError(op.loc, "no op of channels");
  }
}

void Emitter::emit_push_end(const Op& op) {
  auto& ir = b.ir;
  const SlotUse& slot = uses_.at(op.operands[1].id);
  const std::vector<MessageField> fields = message_fields(*slot.channel->op);
  Val bools = nullptr;
  for (size_t i = 0; i + 2 < op.operands.size(); ++i) {
    const MessagePlace at = message_place(fields, fields[i].name);
    Val value = scalar(op.operands[i + 2]);
    if (at.bit < 0) {
      ir.CreateStore(value, message_word(slot, at.word));
      continue;
    }
    Val bit = ir.CreateShl(ir.CreateZExt(value, ir.getInt32Ty()), b.i32(at.bit));
    bools = bools ? ir.CreateOr(bools, bit) : bit;
  }
  if (bools) ir.CreateStore(bools, message_word(slot, 0));
  increment(*slot.channel, Counter::Pushed);
}

void Emitter::emit_message(const Op& op) {
  auto& ir = b.ir;
  const SlotUse& slot = uses_.at(op.operands[0].id);
  const MessagePlace at = message_place(message_fields(*slot.channel->op), op.word("field"));
  Val word = ir.CreateLoad(ir.getInt32Ty(), message_word(slot, at.word));
  if (at.bit >= 0) word = ir.CreateTrunc(ir.CreateLShr(word, b.i32(at.bit)), ir.getInt1Ty());
  set(op.result, {word});
}

Val Emitter::message_word(const SlotUse& slot, int64_t word) {
  auto& ir = b.ir;
  Val at = ir.CreateAdd(ir.CreateMul(slot.place, b.i64(slot.channel->words)), b.i64(word));
  return ir.CreateGEP(ir.getInt32Ty(), scratch_at(slot.channel->messages), at);
}

}  // namespace kiln::host
