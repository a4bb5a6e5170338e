#include "runtime/ptx/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

namespace kiln::ptx {
namespace {

using Kind = SyntaxOperand::Kind;

constexpr int kLanes = 32;
constexpr uint64_t kMostLocalBytes = 512 << 10, kMostSharedBytes = 1 << 20;

const std::unordered_map<std::string_view, void (*)(Decoder&)>& mnemonics() {
  static const auto table = [] {
    std::unordered_map<std::string_view, void (*)(Decoder&)> all;
    for (auto list : {integer_mnemonics(), bit_mnemonics(), arithmetic_mnemonics(),
                      math_mnemonics(), compare_mnemonics(), move_mnemonics(), convert_mnemonics(),
                      memory_mnemonics(), atomic_mnemonics(), warp_mnemonics(), matrix_mnemonics(),
                      mma_mnemonics(), wmma_mnemonics(), async_mnemonics(), control_mnemonics(),
                      mbarrier_mnemonics(), cluster_mnemonics(), wgmma_mnemonics()})
      for (const Mnemonic& mnemonic : list) all.emplace(mnemonic.name, mnemonic.decode);
    return all;
  }();
  return table;
}

struct SpecialName {
  std::string_view name;
  Special special;
};
constexpr SpecialName kSpecials[] = {
    {"%tid.x", Special::TidX},
    {"%tid.y", Special::TidY},
    {"%tid.z", Special::TidZ},
    {"%ntid.x", Special::NtidX},
    {"%ntid.y", Special::NtidY},
    {"%ntid.z", Special::NtidZ},
    {"%ctaid.x", Special::CtaidX},
    {"%ctaid.y", Special::CtaidY},
    {"%ctaid.z", Special::CtaidZ},
    {"%nctaid.x", Special::NctaidX},
    {"%nctaid.y", Special::NctaidY},
    {"%nctaid.z", Special::NctaidZ},
    {"%laneid", Special::LaneId},
    {"%warpid", Special::WarpId},
    {"%nwarpid", Special::NwarpId},
    {"%smid", Special::Zero},
    {"%nsmid", Special::One},
    {"%gridid", Special::Zero},
    {"%clock", Special::Zero},
    {"%clock_hi", Special::Zero},
    {"%globaltimer_lo", Special::Zero},
    {"%globaltimer_hi", Special::Zero},
    {"%lanemask_eq", Special::LaneMaskEq},
    {"%lanemask_lt", Special::LaneMaskLt},
    {"%lanemask_le", Special::LaneMaskLe},
    {"%lanemask_gt", Special::LaneMaskGt},
    {"%lanemask_ge", Special::LaneMaskGe},
    {"%dynamic_smem_size", Special::DynamicShared},
    {"%total_smem_size", Special::TotalShared},
    {"%cluster_ctaid.x", Special::Zero},
    {"%cluster_ctaid.y", Special::Zero},
    {"%cluster_ctaid.z", Special::Zero},
    {"%cluster_ctarank", Special::Zero},
    {"%cluster_nctaid.x", Special::One},
    {"%cluster_nctaid.y", Special::One},
    {"%cluster_nctaid.z", Special::One},
    {"%cluster_nctarank", Special::One},
    {"%clusterid.x", Special::CtaidX},
    {"%clusterid.y", Special::CtaidY},
    {"%clusterid.z", Special::CtaidZ},
    {"%nclusterid.x", Special::NctaidX},
    {"%nclusterid.y", Special::NctaidY},
    {"%nclusterid.z", Special::NctaidZ},
};

// Clocks of 64 bits: mov reads them (move.cpp); to any other instruction they are 0.
bool tells_time(std::string_view name) {
  return name == "%clock64" || name == "%globaltimer";
}

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// A register holds at least 4 bytes a lane.
uint8_t lane_bytes(Type type) {
  return type == Type::Pred ? 0 : static_cast<uint8_t>(std::max(4, bytes_of(type)));
}

}  // namespace

Decoder::Decoder(Function& function, Module& module, Entry& entry)
    : function_(function), module_(module), entry_(entry) {}

void Decoder::run() {
  place_shared();
  for (const Statement& each : function_.body) statement(each);
  // Falling off the end is a return.
  static const Statement kEnd = [] {
    Statement end;
    end.opcode = "ret";
    end.full = "ret";
    return end;
  }();
  now = Instruction{};
  now.flow = Flow::Exit;
  now.source = function_.body.empty() ? &kEnd : &function_.body.back();
  first_operand_.push_back(static_cast<uint32_t>(entry_.operands.size()));
  entry_.code.push_back(now);
  for (size_t i = 0; i < entry_.code.size(); ++i)
    entry_.code[i].operand = entry_.operands.data() + first_operand_[i];
}

// Dynamic shared memory follows the rest, so all of it is placed first.
void Decoder::place_shared() {
  for (bool dynamic : {false, true})
    for (size_t i = 0; i < function_.variables.size(); ++i) {
      const Variable& variable = function_.variables[i];
      if (variable.space != Space::Shared || (variable.bytes == 0) != dynamic) continue;
      if (dynamic) entry_.shared_alignment = std::max(entry_.shared_alignment, variable.alignment);
      uint64_t address = align_up(kSharedBase + entry_.static_shared,
                                  dynamic ? entry_.shared_alignment : variable.alignment);
      if (!dynamic) entry_.static_shared = address + variable.bytes - kSharedBase;
      if (entry_.static_shared > kMostSharedBytes)
        throw Error("more than 1 MiB of shared memory", variable.line);
      addresses_[static_cast<int>(i)] = {Space::Shared, address};
      entry_.shared_variables.push_back(variable);
      entry_.shared_variables.back().offset = address;
    }
  for (const Variable& variable : entry_.shared_variables)
    if (variable.bytes == 0 && variable.offset % entry_.shared_alignment != 0)
      throw Error(
          fmt::format("'{}': declare the most aligned dynamic shared memory first", variable.name),
          variable.line);
}

void Decoder::statement(const Statement& statement) {
  statement_ = &statement;
  auto known = mnemonics().find(statement.opcode);
  if (known == mnemonics().end()) unknown();
  modifiers_ = statement.modifiers;
  now = Instruction{};
  now.source = &statement;
  if (statement.guard >= 0) {
    now.guard = statement.guard;
    now.guard_negated = statement.guard_negated;
  }
  auto first = static_cast<uint32_t>(entry_.operands.size());
  known->second(*this);
  if (!modifiers_.empty()) unknown();
  now.operands = static_cast<uint32_t>(entry_.operands.size()) - first;
  first_operand_.push_back(first);
  entry_.code.push_back(now);
}

void Decoder::fail(const std::string& message) const {
  throw Error(fmt::format("{}: {}", statement_->full, message), statement_->line);
}

void Decoder::unknown() const {
  std::string rest;
  if (modifiers_.size() < statement_->modifiers.size())
    for (std::string_view modifier : modifiers_) rest += fmt::format(" .{}", modifier);
  throw Error(fmt::format("unknown instruction '{}'{}{}", statement_->full,
                          rest.empty() ? "" : "; not understood:", rest),
              statement_->line);
}

bool Decoder::take(std::string_view modifier) {
  auto it = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (it == modifiers_.end()) return false;
  modifiers_.erase(it);
  return true;
}

std::string_view Decoder::take_one(std::initializer_list<std::string_view> modifiers) {
  for (std::string_view modifier : modifiers)
    if (take(modifier)) return modifier;
  return "";
}

bool Decoder::take_prefix(std::string_view prefix) {
  return std::erase_if(modifiers_, [&](auto modifier) { return modifier.starts_with(prefix); }) > 0;
}

std::optional<Type> Decoder::maybe_type() {
  for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it)
    if (auto type = type_named(*it)) {
      modifiers_.erase(it);
      return type;
    }
  return std::nullopt;
}

Type Decoder::type() {
  auto found = maybe_type();
  if (!found) unknown();
  return *found;
}

Space Decoder::space() {
  if (take("global")) return Space::Global;
  // A cluster is one block: its shared memory is the block's own.
  if (take("shared") || take("shared::cta") || take("shared::cluster")) return Space::Shared;
  if (take("local")) return Space::Local;
  if (take("const")) return Space::Const;
  if (take("param") || take("param::entry")) return Space::Param;
  return Space::Generic;
}

const SyntaxOperand& Decoder::syntax(size_t index) {
  if (index >= statement_->operands.size()) fail(fmt::format("operand {} is missing", index));
  return statement_->operands[index];
}

void Decoder::expect_operands(size_t least, size_t most) {
  size_t count = statement_->operands.size();
  if (count < least || count > most)
    fail(least == most ? fmt::format("{} operands, expected {}", count, least)
                       : fmt::format("{} operands, expected {} to {}", count, least, most));
}

Operand Decoder::constant(uint64_t bits, int bytes) {
  auto [it, is_new] = constants_.emplace(std::pair(bits, bytes), 0);
  if (is_new) {
    auto slot = static_cast<int32_t>(entry_.constants.size() / kLanes);
    it->second = ~slot;
    size_t words = static_cast<size_t>(std::max(bytes, 4)) / 4;
    for (int lane = 0; lane < kLanes; ++lane)
      for (size_t word = 0; word < words; ++word)
        entry_.constants.push_back(word < 2 ? static_cast<uint32_t>(bits >> (32 * word)) : 0);
  }
  return {it->second, static_cast<uint8_t>(std::max(bytes, 4))};
}

void Decoder::use_constant(uint64_t bits, int bytes) {
  entry_.operands.push_back(constant(bits, bytes));
}

// Registers are virtual here: a slot is an index into the function's registers, those made here
// behind them; allocate_registers makes them real.
int Decoder::virtual_register(Type type) {
  function_.registers.push_back(type);
  function_.names.emplace_back();
  return static_cast<int>(function_.registers.size()) - 1;
}

Operand Decoder::sink(int bytes) {
  auto [it, is_new] = sinks_.emplace(bytes, 0);
  if (is_new)
    it->second = virtual_register(bytes == 0   ? Type::Pred
                                  : bytes <= 4 ? Type::B32
                                  : bytes == 8 ? Type::B64
                                               : Type::B128);
  return {it->second, static_cast<uint8_t>(bytes == 0 ? 0 : std::max(bytes, 4)),
          OperandRole::Define};
}

Operand Decoder::special(std::string_view name) {
  auto it = specials_.find(name);
  if (it == specials_.end()) {
    auto row = std::find_if(std::begin(kSpecials), std::end(kSpecials),
                            [&](const SpecialName& each) { return each.name == name; });
    if (row == std::end(kSpecials)) fail(fmt::format("unknown register '{}'", name));
    int index = virtual_register(Type::B32);
    entry_.specials.emplace_back(row->special, index);
    it = specials_.emplace(std::string(name), index).first;
  }
  return {it->second, 4};
}

Operand Decoder::register_operand(const SyntaxOperand& operand, OperandRole role, int bytes) {
  Type type = function_.registers[static_cast<size_t>(operand.index)];
  if ((bytes == 0) != (type == Type::Pred))
    fail(fmt::format("'{}' is {} predicate", operand.name, bytes == 0 ? "no" : "a"));
  if (bytes > lane_bytes(type)) fail(fmt::format("'{}' is too narrow", operand.name));
  return {operand.index, lane_bytes(type), role, operand.negated};
}

void Decoder::define(const SyntaxOperand& operand, int bytes) {
  define_wide(operand, bytes);
  if (entry_.operands.back().bytes > std::max(4, bytes) && bytes != 0)
    fail(fmt::format("'{}' is too wide", operand.name));
}

void Decoder::define_wide(const SyntaxOperand& operand, int bytes) {
  if (operand.kind == Kind::Sink)
    entry_.operands.push_back(sink(bytes));
  else if (operand.kind == Kind::Register)
    entry_.operands.push_back(register_operand(operand, OperandRole::Define, bytes));
  else
    fail("the result must be a register");
}

void Decoder::use(const SyntaxOperand& operand, Type type) {
  use_wide(operand, type);
  const Operand& used = entry_.operands.back();
  if (used.bytes > std::max(4, bytes_of(type))) fail(fmt::format("'{}' is too wide", operand.name));
}

void Decoder::use_wide(const SyntaxOperand& operand, Type type) {
  int bytes = bytes_of(type);
  uint64_t bits = operand.bits;
  switch (operand.kind) {
    case Kind::Register:
      entry_.operands.push_back(register_operand(operand, OperandRole::Use, bytes));
      return;
    case Kind::Special:
      if (bytes == 8 && tells_time(operand.name)) return use_constant(0, 8);
      if (bytes > 4) fail(fmt::format("'{}' has 32 bits", operand.name));
      entry_.operands.push_back(special(operand.name));
      return;
    case Kind::Variable:
      use_constant(variable_address(operand.index) + static_cast<uint64_t>(operand.offset), bytes);
      return;
    case Kind::Integer:
      if (type == Type::F64)
        bits = std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(bits)));
      else if (type == Type::F32)
        bits = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int64_t>(bits)));
      break;
    case Kind::Float32:
      if (bytes == 8)
        bits = std::bit_cast<uint64_t>(
            static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
      break;
    case Kind::Float64:
      if (bytes == 4)
        bits = std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
      break;
    default: fail("an operand must be a register or a number");
  }
  if (bytes == 0) {
    entry_.operands.push_back({~0, 0, OperandRole::Use, (bits != 0) == operand.negated});
    return;
  }
  if (bytes < 8) bits &= (uint64_t{1} << (8 * bytes)) - 1;
  use_constant(bits, bytes);
}

void Decoder::define_vector(size_t index, Type element, size_t count) {
  const SyntaxOperand& operand = syntax(index);
  if (operand.kind != Kind::Vector) {
    if (count != 1) fail(fmt::format("operand {} must be a vector of {}", index, count));
    return define_wide(operand, bytes_of(element));
  }
  if (operand.parts.size() != count)
    fail(fmt::format("a vector of {}, expected {}", operand.parts.size(), count));
  for (const SyntaxOperand& part : operand.parts) define_wide(part, bytes_of(element));
}

void Decoder::use_vector(size_t index, Type element, size_t count) {
  const SyntaxOperand& operand = syntax(index);
  if (operand.kind != Kind::Vector) {
    if (count != 1) fail(fmt::format("operand {} must be a vector of {}", index, count));
    return use_wide(operand, element);
  }
  if (operand.parts.size() != count)
    fail(fmt::format("a vector of {}, expected {}", operand.parts.size(), count));
  for (const SyntaxOperand& part : operand.parts) use_wide(part, element);
}

void Decoder::address(size_t index) {
  const SyntaxOperand& operand = syntax(index);
  if (operand.kind != Kind::Address) fail(fmt::format("operand {} must be an address", index));
  const SyntaxOperand& base = operand.parts[0];
  now.immediate = static_cast<int64_t>(static_cast<uint64_t>(operand.offset) +
                                       static_cast<uint64_t>(base.offset));
  if (base.kind == Kind::Register) {
    entry_.operands.push_back(register_operand(base, OperandRole::Use, 4));
  } else if (base.kind == Kind::Variable) {
    Space space;
    uint64_t address = variable_address(base.index, &space);
    if (now.space == Space::Generic) {
      if (space == Space::Shared) address += kSharedWindow;
      if (space == Space::Local) address += kLocalWindow;
      if (space == Space::Param) address += kParamWindow;
    } else if (now.space != space) {
      fail(fmt::format("'{}' is in {} memory", base.name, name(space)));
    }
    use_constant(address, 8);
  } else if (base.kind == Kind::Integer) {
    use_constant(base.bits, 8);
  } else {
    fail("an address is a register or a variable, and an offset");
  }
}

uint64_t Decoder::integer(size_t index) {
  if (!is_immediate(index)) fail(fmt::format("operand {} must be a number", index));
  return syntax(index).bits;
}

bool Decoder::is_predicate(const SyntaxOperand& operand) const {
  return operand.kind == Kind::Register &&
         function_.registers[static_cast<size_t>(operand.index)] == Type::Pred;
}

bool Decoder::is_wide(const SyntaxOperand& operand) const {
  return operand.kind == Kind::Register &&
         bytes_of(function_.registers[static_cast<size_t>(operand.index)]) == 8;
}

uint64_t Decoder::variable_address(int index, Space* space) {
  const Variable& variable = function_.variables[static_cast<size_t>(index)];
  if (space) *space = variable.space;
  if (variable.space == Space::Param) return variable.offset;
  auto [it, is_new] = addresses_.emplace(index, std::pair(variable.space, uint64_t{0}));
  uint64_t& address = it->second.second;
  if (!is_new) return address;
  switch (variable.space) {
    case Space::Local:
      address =
          align_up(entry_.local_bytes + (entry_.local_bytes == 0 ? 16 : 0), variable.alignment);
      entry_.local_bytes = address + variable.bytes;
      if (entry_.local_bytes > kMostLocalBytes) fail("more than 512 KiB of local memory");
      break;
    default: {
      auto storage = module_.storage.find(variable.name);
      if (storage == module_.storage.end()) {
        if (variable.external) fail(fmt::format("'{}' is defined nowhere", variable.name));
        Storage made;
        made.variable = variable;
        made.memory = std::make_unique<std::byte[]>(variable.bytes + variable.alignment);
        auto begin = reinterpret_cast<uint64_t>(made.memory.get());
        made.begin = made.memory.get() + (align_up(begin, variable.alignment) - begin);
        if (!variable.initial.empty())
          std::memcpy(made.begin, variable.initial.data(), variable.initial.size());
        storage = module_.storage.emplace(variable.name, std::move(made)).first;
      }
      address = reinterpret_cast<uint64_t>(storage->second.begin);
    }
  }
  return address;
}

}  // namespace kiln::ptx
