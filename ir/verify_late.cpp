// Rules of single ops of the late IR; what they must keep together is in verify_agents.cpp,
// verify_order.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/channel.h"
#include "ir/verify_impl.h"

namespace kiln {
namespace {

constexpr int64_t kRingAlignment = 1024;   // of swizzled tiles that tensor maps write
constexpr int64_t kMostSlots = 4096;       // their barriers alone take 64 KiB
constexpr int64_t kControlAlignment = 16;  // messages are read as vectors
constexpr int64_t kFewestRegisters = 24, kMostRegisters = 256;  // PTX ISA, "setmaxnreg"

void require_bool(const Law& law, const Op& op, size_t operand) {
  const Type& got = law.type(op.operands[operand]);
  if (got != Type::scalar(Bool))
    law.fail(op, fmt::format("{}: expected bool, got {}", operand_name(op, operand), str(got)),
             "compare it with something");
}

void require_same_dtype(const Law& law, const Op& op) {
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  if (from.dtype != to.dtype)
    law.fail(
        op,
        fmt::format("dtypes differ: the source is {}, the destination {}", brief(from), brief(to)),
        "convert through a fragment with copy");
}

void require_space(const Law& law, const Op& op, size_t operand, Space space, const char* words) {
  const Type& got = law.type(op.operands[operand]);
  if (got.space != space)
    law.fail(op, fmt::format("{}: expected {}, got {}", operand_name(op, operand), words, str(got)),
             "move it there first");
}

void require_as_allocated(const Law& law, const Op& op, size_t operand) {
  const Value tile = op.operands[operand];
  if (base_of(law.kernel, tile) != whole_of(law.kernel, tile))
    law.fail(op,
             fmt::format("{}: expected a tile as it was made, got {} by reshape",
                         operand_name(op, operand), str(law.type(tile))),
             "what is asynchronous reads swizzled tiles");
}

// The op that defines a slot, looked at through no slices; null if it is none of `codes`.
template <size_t N>
const Op* slot_by(const Law& law, Value slot, const std::array<OpCode, N>& codes) {
  for (OpCode code : codes)
    if (const Op* op = law.kernel.def_as(slot, code)) return op;
  return nullptr;
}
constexpr std::array kPushed = {OpCode::PushBegin};
constexpr std::array kPopped = {OpCode::Pop, OpCode::Held};

template <size_t N>
const Op& require_slot(const Law& law, const Op& op, size_t operand,
                       const std::array<OpCode, N>& codes, const char* words) {
  const Op* by = slot_by(law, op.operands[operand], codes);
  if (!by)
    law.fail(op,
             fmt::format("{}: expected a slot of {}, got {}", operand_name(op, operand), words,
                         str(law.type(op.operands[operand]))),
             "slots come from push_begin, pop and held");
  return *by;
}

// `channel` and `slot` are operands 0 and 1.
void require_slot_of_channel(const Law& law, const Op& op, const Op& slot) {
  if (slot.operands[0] != op.operands[0])
    law.fail(op, fmt::format("'slot': is of another channel, taken {}", on_line(slot)),
             "a slot of the op's own channel");
}

// Where the table can only say that the result is a tile.
void check_slot(const Law& law, const Op& op) {
  const Type& ring = law.type(op.operands[0]);
  const Type expected = Type::tile(Space::Shared, ring.dtype, ring.shape);
  if (law.type(op.result) != expected)
    law.fail(
        op, fmt::format("the result: expected {}, got {}", str(expected), str(law.type(op.result))),
        "a slot has the channel's dtype and shape");
}

// Op channel of operand `channel`; a channel is always the result of one.
const Op& channel_op(const Law& law, Value channel) {
  return law.kernel.op(law.kernel.def(channel));
}

void require_entries(const Law& law, const Op& op, const char* attribute, size_t got) {
  if (got != op.regions.size())
    law.fail(
        op, fmt::format("{}: expected {}, one a region, got {}", attribute, op.regions.size(), got),
        "an entry a role, in the order of the regions");
}

void check_roles(const Law& law, const Op& op) {
  const std::vector<std::string> names = role_names(op);
  require_entries(law, op, "names", names.size());
  require_entries(law, op, "warps", op.ints("warps").size());
  require_entries(law, op, "registers", op.ints("registers").size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<ptrdiff_t>(i))
      law.fail(op, fmt::format("names: '{}' is there twice", names[i]),
               "another word for one of them");
    const int64_t warps = op.ints("warps")[i], registers = op.ints("registers")[i];
    if (warps < 1 || warps > kMostWarps || (warps != 1 && warps % kWarpsPerGroup != 0))
      law.fail(op,
               fmt::format("warps of '{}': expected 1 or a multiple of {} up to {}, got {}",
                           names[i], kWarpsPerGroup, kMostWarps, warps),
               "one warp for a role that only moves data, whole groups for others");
    if (registers % 8 != 0 || registers < kFewestRegisters || registers > kMostRegisters)
      law.fail(op,
               fmt::format("registers of '{}': expected a multiple of 8 from {} to {}, got {}",
                           names[i], kFewestRegisters, kMostRegisters, registers),
               "the sum over all threads is what the launch starts with");
  }
  for (RegionId region : op.regions)
    if (const size_t got = law.kernel.region(region).args.size())
      law.fail(op, fmt::format("region arguments: expected 0, got {}", got),
               "roles share channels only");
}

void require_alignment(const Law& law, const Op& op, const char* attribute, int64_t alignment) {
  require_place(law, op, attribute);
  const int64_t at = op.integer(attribute);
  if (at != kNoPlace && at % alignment != 0)
    law.fail(op, fmt::format("{}: expected a multiple of {}, got {}", attribute, alignment, at),
             fmt::format("{}", (at + alignment - 1) / alignment * alignment));
}

void check_channel(const Law& law, const Op& op) {
  require_tile_extents(law, op);
  if (op.integer("slots") < 1 || op.integer("slots") > kMostSlots)
    law.fail(op, fmt::format("slots: expected 1 to {}, got {}", kMostSlots, op.integer("slots")),
             "as many as the producer may run ahead");
  const Type& type = law.type(op.result);
  if (message_fields(op).empty() && type.shape.empty())
    law.fail(op, "carries neither tiles nor messages", "give it a shape, or a message");
  law.require_layout(op, type.shape, Space::Shared);
  require_alignment(law, op, "offset", kRingAlignment);
  require_alignment(law, op, "control", kControlAlignment);
}

void require_pending(const Law& law, const Op& op) {
  if (op.integer("pending") < 0)
    law.fail(op, fmt::format("pending: expected 0 or more, got {}", op.integer("pending")),
             "0 waits for all");
}

void check_push_end(const Law& law, const Op& op) {
  require_slot_of_channel(law, op, require_slot(law, op, 1, kPushed, "push_begin"));
  constexpr size_t kFirst = 2;  // field
  const size_t given = op.operands.size() - kFirst;
  if (given == 0) return;
  const std::vector<MessageField> fields = message_fields(channel_op(law, op.operands[0]));
  if (given != fields.size())
    law.fail(op,
             fmt::format("message: expected {} fields{}, got {}", fields.size(),
                         fields.empty() ? "" : " or none", given),
             "a value for each field of the channel's message, in order");
  for (size_t i = 0; i < given; ++i) {
    const Type& got = law.type(op.operands[kFirst + i]);
    if (got != Type::scalar(fields[i].dtype))
      law.fail(op,
               fmt::format("message field '{}': expected {}, got {}", fields[i].name,
                           name(fields[i].dtype), str(got)),
               "cast it");
  }
}

void check_message(const Law& law, const Op& op) {
  const Op& slot = require_slot(law, op, 0, kPopped, "pop or held");
  const std::string& wanted = op.word("field");
  std::string names;
  for (const MessageField& field : message_fields(channel_op(law, slot.operands[0]))) {
    if (field.name == wanted) {
      if (law.type(op.result) != Type::scalar(field.dtype))
        law.fail(op,
                 fmt::format("the result: expected {}, got {}", name(field.dtype),
                             str(law.type(op.result))),
                 "the field's dtype");
      return;
    }
    names += (names.empty() ? "" : ", ") + field.name;
  }
  law.fail(op, fmt::format("the channel's messages have no field '{}'", wanted),
           names.empty() ? "they have none" : "one of " + names);
}

void check_copy_async(const Law& law, const Op& op) {
  require_space(law, op, 0, Space::Global, "a tensor or a view of one");
  const Value base = base_of(law.kernel, op.operands[1]);
  if (!slot_by(law, base, kPushed))
    law.fail(op,
             fmt::format("'destination': expected a slot of push_begin, got {}",
                         str(law.type(op.operands[1]))),
             "copy writes any other tile");
  require_same_dtype(law, op);
  require_copy_shapes(law, op);
}

void check_store_async(const Law& law, const Op& op) {
  require_space(law, op, 0, Space::Shared, "a shared tile");
  require_as_allocated(law, op, 0);
  require_space(law, op, 1, Space::Global, "a tensor or a view of one");
  require_same_dtype(law, op);
  require_copy_shapes(law, op);
  const Type& source = law.type(op.operands[0]);
  if (op.word("split") == "warps" && source.rank() < 2)
    law.fail(
        op,
        fmt::format("split: expected a source of rows, with two axes or more, got {}", str(source)),
        "leave split out");
}

void check_gemm_async(const Law& law, const Op& op) {
  check_tile_op(law, op);
  require_space(law, op, 1, Space::Shared, "a shared tile");
  for (size_t operand : {0, 1}) require_as_allocated(law, op, operand);
  if (op.operand(3)) require_bool(law, op, 3);
}

void check_next_tile(const Law& law, const Op& op) {
  law.require_i32(op, 0);
  if (law.type(op.result) != Type::scalar(I32))
    law.fail(op, fmt::format("the result: expected i32, got {}", str(law.type(op.result))),
             "tiles are counted in i32");
  if (!op.operand(1)) return;
  const Type &got = law.type(op.operands[1]), expected = Type::tensor(I32, {1});
  if (got != expected)
    law.fail(op, fmt::format("'counter': expected {}, got {}", str(expected), str(got)),
             "a workspace of one element");
}

}  // namespace

std::string on_line(const Op& op) {
  return op.loc.known() ? fmt::format("on line {}", op.loc.line) : "elsewhere";
}

void check_late(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::Roles: return check_roles(law, op);
    case OpCode::Channel: return check_channel(law, op);
    case OpCode::Pop: require_pending(law, op); return check_slot(law, op);
    case OpCode::PushBegin:
    case OpCode::Held: return check_slot(law, op);
    case OpCode::PushEnd: return check_push_end(law, op);
    case OpCode::Message: return check_message(law, op);
    case OpCode::Release:
      return require_slot_of_channel(law, op, require_slot(law, op, 1, kPopped, "pop or held"));
    case OpCode::CopyAsync: return check_copy_async(law, op);
    case OpCode::StoreAsync: return check_store_async(law, op);
    case OpCode::GemmAsync: return check_gemm_async(law, op);
    case OpCode::NextTile: return check_next_tile(law, op);
    case OpCode::AwaitStores: return require_pending(law, op);
    default: return;  // await: the table says it all
  }
}

}  // namespace kiln
