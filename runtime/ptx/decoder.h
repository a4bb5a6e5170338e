// What the decoders of instructions share: they take modifiers and operands of one statement and
// leave one decoded instruction.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ptx/program.h"
#include "runtime/ptx/ptx.h"

namespace kiln::ptx {

class Decoder {
 public:
  Decoder(Function& function, Module& module, Entry& entry);
  void run();

  // Modifiers, taken in any order but types, which come one after the other. One left over is an
  // error.
  bool take(std::string_view modifier);
  std::string_view take_one(std::initializer_list<std::string_view> modifiers);  // or ""
  bool take_prefix(std::string_view prefix);  // all that start with it
  Type type();                                // the next modifier that is a type
  std::optional<Type> maybe_type();
  Space space();  // .global, .shared::cta, …; Generic if none

  // Operands become the instruction's, in order.
  const SyntaxOperand& syntax(size_t index);
  size_t syntax_count() const { return statement_->operands.size(); }
  void define(const SyntaxOperand& operand, int bytes);
  void define(size_t index, Type type) { define(syntax(index), bytes_of(type)); }
  void use(const SyntaxOperand& operand, Type type);  // a register or a constant of the type
  void use(size_t index, Type type) { use(syntax(index), type); }
  // The same for a register that may be wider, as ld, st and cvt take.
  void define_wide(const SyntaxOperand& operand, int bytes);
  void use_wide(const SyntaxOperand& operand, Type type);
  void define_vector(size_t index, Type element, size_t count);
  void use_vector(size_t index, Type element, size_t count);
  void use_constant(uint64_t bits, int bytes);
  void address(size_t index);      // the base becomes an operand, the offset the immediate
  uint64_t integer(size_t index);  // an immediate
  bool is_immediate(size_t index) { return syntax(index).kind == SyntaxOperand::Kind::Integer; }

  bool is_predicate(const SyntaxOperand& operand) const;
  bool is_wide(const SyntaxOperand& operand) const;  // a register of 64 bits

  void expect_operands(size_t least, size_t most);
  void expect_operands(size_t count) { expect_operands(count, count); }
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void unknown() const;

  Instruction now;  // the one being decoded
  Entry& entry() { return entry_; }
  const Operand& last_operand() const { return entry_.operands.back(); }
  const Statement& statement() const { return *statement_; }
  uint64_t variable_address(int index, Space* space = nullptr);

 private:
  void statement(const Statement& statement);
  void place_shared();
  Operand constant(uint64_t bits, int bytes);
  Operand register_operand(const SyntaxOperand& operand, OperandRole role, int bytes);
  Operand special(std::string_view name);
  Operand sink(int bytes);
  int virtual_register(Type type);

  Function& function_;  // registers are added
  Module& module_;
  Entry& entry_;
  const Statement* statement_ = nullptr;
  std::vector<std::string_view> modifiers_;  // not taken yet
  std::map<std::pair<uint64_t, int>, int32_t> constants_;
  std::map<std::string, int32_t, std::less<>> specials_;
  std::map<int, std::pair<Space, uint64_t>> addresses_;  // of variables
  std::map<int, int32_t> sinks_;
  std::vector<uint32_t> first_operand_;  // of each instruction
};

struct Mnemonic {
  std::string_view name;
  void (*decode)(Decoder& decoder);
};

// Each file of instructions lists its own.
std::span<const Mnemonic> integer_mnemonics();     // integer.cpp
std::span<const Mnemonic> bit_mnemonics();         // bits.cpp
std::span<const Mnemonic> arithmetic_mnemonics();  // arithmetic.cpp: add, mul, … of any type
std::span<const Mnemonic> math_mnemonics();        // math.cpp
std::span<const Mnemonic> compare_mnemonics();     // compare.cpp
std::span<const Mnemonic> move_mnemonics();        // move.cpp
std::span<const Mnemonic> convert_mnemonics();     // convert.cpp
std::span<const Mnemonic> memory_mnemonics();      // memory.cpp
std::span<const Mnemonic> atomic_mnemonics();      // atomic.cpp
std::span<const Mnemonic> warp_mnemonics();        // exchange.cpp
std::span<const Mnemonic> matrix_mnemonics();      // matrix_move.cpp
std::span<const Mnemonic> mma_mnemonics();         // mma.cpp
std::span<const Mnemonic> wmma_mnemonics();        // wmma.cpp
std::span<const Mnemonic> async_mnemonics();       // async.cpp
std::span<const Mnemonic> control_mnemonics();     // control.cpp
std::span<const Mnemonic> mbarrier_mnemonics();    // mbarrier.cpp
std::span<const Mnemonic> cluster_mnemonics();     // cluster.cpp
std::span<const Mnemonic> wgmma_mnemonics();       // wgmma.cpp

void decode_bulk(Decoder& decoder, bool reduces);  // cp.async.bulk, bulk_copy.cpp

}  // namespace kiln::ptx
