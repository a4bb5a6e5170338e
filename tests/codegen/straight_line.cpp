#include "tests/codegen/straight_line.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsNVPTX.h>

#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "ir/dtype.h"

namespace kiln::testing {
namespace {

namespace I = llvm::Intrinsic;
using llvm::CmpInst;
using llvm::Instruction;

[[noreturn]] void fail(const char* why, const llvm::Value& value) {
  std::string text = std::string(why) + ": ";
  llvm::raw_string_ostream out(text);
  value.print(out);
  throw std::runtime_error(text);
}

unsigned width(const llvm::Type* type) {
  return static_cast<unsigned>(type->getPrimitiveSizeInBits().getFixedValue());
}

uint64_t masked(uint64_t bits, unsigned width) {
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

int64_t as_signed(uint64_t bits, unsigned width) {
  return static_cast<int64_t>(bits << (64 - width)) >> (64 - width);
}

uint64_t constant_bits(const llvm::Constant& constant) {
  if (auto* integer = llvm::dyn_cast<llvm::ConstantInt>(&constant)) return integer->getZExtValue();
  if (auto* real = llvm::dyn_cast<llvm::ConstantFP>(&constant))
    return real->getValueAPF().bitcastToAPInt().getZExtValue();
  fail("unknown constant", constant);
}

DType integer_dtype(unsigned width, bool is_signed) {
  switch (width) {
    case 8: return is_signed ? I8 : U8;
    case 16: return is_signed ? I16 : U16;
    case 32: return is_signed ? I32 : U32;
    default: return is_signed ? I64 : U64;
  }
}

// A float to an integer as cvt.rzi of 32 bits and LLVM's saturating conversions do.
uint64_t saturated(double value, unsigned width, bool is_signed) {
  Scalar scalar = Scalar::of_float(F64, value);
  return masked(static_cast<uint64_t>(convert(scalar, integer_dtype(width, is_signed)).i), width);
}

float toward_zero(long double value) {
  const float nearest = static_cast<float>(value);
  return std::fabs(static_cast<long double>(nearest)) > std::fabs(value)
             ? std::nextafter(nearest, 0.0f)
             : nearest;
}

bool integers_compare(CmpInst::Predicate predicate, uint64_t x, uint64_t y, unsigned width) {
  const int64_t a = as_signed(x, width), b = as_signed(y, width);
  switch (predicate) {
    case CmpInst::ICMP_EQ: return x == y;
    case CmpInst::ICMP_NE: return x != y;
    case CmpInst::ICMP_ULT: return x < y;
    case CmpInst::ICMP_ULE: return x <= y;
    case CmpInst::ICMP_UGT: return x > y;
    case CmpInst::ICMP_UGE: return x >= y;
    case CmpInst::ICMP_SLT: return a < b;
    case CmpInst::ICMP_SLE: return a <= b;
    case CmpInst::ICMP_SGT: return a > b;
    default: return a >= b;
  }
}

// The bits of a predicate are: unordered, less, greater, equal.
bool reals_compare(CmpInst::Predicate predicate, double x, double y) {
  const int holds = std::isnan(x) || std::isnan(y) ? 8 : x < y ? 4 : x > y ? 2 : 1;
  return (predicate & holds) != 0;
}

// LLVM leaves these undefined: our code must not get there.
void require_defined(const Instruction& instruction, uint64_t x, uint64_t y, unsigned width) {
  if (y == 0) fail("division by 0", instruction);
  if (instruction.getOpcode() == Instruction::SDiv || instruction.getOpcode() == Instruction::SRem)
    if (y == masked(~uint64_t{0}, width) && x == uint64_t{1} << (width - 1))
      fail("quotient overflows", instruction);
}

uint64_t integer_operation(const Instruction& instruction, uint64_t x, uint64_t y, unsigned width) {
  if (instruction.isIntDivRem()) require_defined(instruction, x, y, width);
  const int64_t a = as_signed(x, width), b = as_signed(y, width);
  switch (instruction.getOpcode()) {
    case Instruction::Add: return x + y;
    case Instruction::Sub: return x - y;
    case Instruction::Mul: return x * y;
    case Instruction::And: return x & y;
    case Instruction::Or: return x | y;
    case Instruction::Xor: return x ^ y;
    case Instruction::Shl: return x << y;
    case Instruction::LShr: return x >> y;
    case Instruction::AShr: return static_cast<uint64_t>(a >> y);
    case Instruction::UDiv: return x / y;
    case Instruction::URem: return x % y;
    case Instruction::SDiv: return static_cast<uint64_t>(a / b);
    case Instruction::SRem: return static_cast<uint64_t>(a % b);
    default: fail("unknown instruction", instruction);
  }
}

double real_result(unsigned opcode, double x, double y) {
  switch (opcode) {
    case Instruction::FAdd: return x + y;
    case Instruction::FSub: return x - y;
    case Instruction::FMul: return x * y;
    default: return x / y;
  }
}

uint64_t pair(uint64_t low, uint64_t high, unsigned bits) {
  return low | high << bits;
}

}  // namespace

StraightLine::StraightLine(const llvm::Function& function)
    : flush_(function.getFnAttribute("denormal-fp-math-f32").getValueAsString() ==
             "preserve-sign") {
  if (function.size() != 1) fail("control flow", function);
  for (const llvm::Argument& argument : function.args()) slot(&argument);
  for (const Instruction& instruction : function.getEntryBlock()) {
    std::vector<size_t> in;
    for (const llvm::Value* operand : instruction.operand_values())
      if (!llvm::isa<llvm::Function>(operand)) in.push_back(slot(operand));
    if (llvm::isa<llvm::ReturnInst>(instruction)) {
      returned_ = in[0];
    } else {
      steps_.push_back({&instruction, in, slot(&instruction)});
    }
  }
}

size_t StraightLine::slot(const llvm::Value* value) {
  auto [found, inserted] = slot_of_.try_emplace(value, slots_.size());
  if (inserted) {
    auto* constant = llvm::dyn_cast<llvm::Constant>(value);
    slots_.push_back(constant ? constant_bits(*constant) : 0);
    poison_.push_back(false);
  }
  return found->second;
}

uint64_t StraightLine::operator()(std::span<const uint64_t> arguments) {
  std::copy(arguments.begin(), arguments.end(), slots_.begin());
  for (const Step& step : steps_) {
    poison_[step.result] = is_poison(step);
    slots_[step.result] = poison_[step.result] ? 0 : run(step);
  }
  if (poison_[returned_]) fail("the result is poison", *steps_.back().instruction);
  return slots_[returned_];
}

bool StraightLine::is_poison(const Step& step) const {
  const Instruction& instruction = *step.instruction;
  if (instruction.getOpcode() == Instruction::Freeze) return false;
  if (instruction.getOpcode() == Instruction::Select) {
    const size_t chosen = slots_[step.in[0]] ? step.in[1] : step.in[2];
    return poison_[step.in[0]] || poison_[chosen];
  }
  for (size_t slot : step.in)
    if (poison_[slot]) return true;
  const llvm::Type* type = instruction.getType();
  if (instruction.isShift()) return slots_[step.in[1]] >= width(type);
  const bool is_signed = instruction.getOpcode() == Instruction::FPToSI;
  if (!is_signed && instruction.getOpcode() != Instruction::FPToUI) return false;
  const double value = read(instruction.getOperand(0)->getType(), slots_[step.in[0]]);
  const double end = std::ldexp(1.0, static_cast<int>(width(type)) - (is_signed ? 1 : 0));
  const double begin = is_signed ? -end : 0;
  return !(value < end && (value >= begin || value > begin - 1));
}

double StraightLine::read(const llvm::Type* type, uint64_t bits) const {
  if (type->isHalfTy()) return from_bits16(F16, static_cast<uint16_t>(bits));
  if (type->isBFloatTy()) return from_bits16(BF16, static_cast<uint16_t>(bits));
  if (type->isDoubleTy()) return std::bit_cast<double>(bits);
  const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
  return flush_ && std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0, value) : value;
}

uint64_t StraightLine::rounded(const llvm::Type* type, double value) const {
  if (type->isHalfTy()) return to_bits16(F16, value);
  if (type->isBFloatTy()) return to_bits16(BF16, value);
  if (type->isDoubleTy()) return std::bit_cast<uint64_t>(value);
  float single = static_cast<float>(value);
  if (flush_ && std::fpclassify(single) == FP_SUBNORMAL) single = std::copysign(0.0f, single);
  return std::bit_cast<uint32_t>(single);
}

uint64_t StraightLine::real_operation(const Instruction& instruction,
                                      std::span<const uint64_t> in) const {
  const llvm::Type* from = instruction.getOperand(0)->getType();
  const llvm::Type* to = instruction.getType();
  const unsigned from_width = width(from), to_width = width(to);
  const uint64_t sign = uint64_t{1} << (from_width - 1);
  switch (instruction.getOpcode()) {
    case Instruction::FNeg: return in[0] ^ sign;
    case Instruction::FAdd:
    case Instruction::FSub:
    case Instruction::FMul:
    case Instruction::FDiv:
      return rounded(to,
                     real_result(instruction.getOpcode(), read(from, in[0]), read(from, in[1])));
    case Instruction::FPTrunc:
    case Instruction::FPExt: return rounded(to, read(from, in[0]));
    case Instruction::FPToSI:
    case Instruction::FPToUI:
      return saturated(read(from, in[0]), to_width, instruction.getOpcode() == Instruction::FPToSI);
    default: {  // an integer to a float
      const bool is_signed = instruction.getOpcode() == Instruction::SIToFP;
      Scalar value;
      value.dtype = is_signed ? I64 : U64;
      value.i = is_signed ? as_signed(in[0], from_width) : static_cast<int64_t>(in[0]);
      const DType dtype = to->isHalfTy()     ? F16
                          : to->isBFloatTy() ? BF16
                          : to->isFloatTy()  ? F32
                                             : F64;
      return rounded(to, convert(value, dtype).f);
    }
  }
}

uint64_t StraightLine::run(const Step& step) const {
  const Instruction& instruction = *step.instruction;
  std::array<uint64_t, 4> values{};
  if (step.in.size() > values.size()) fail("too many operands", instruction);
  for (size_t i = 0; i < step.in.size(); ++i) values[i] = slots_[step.in[i]];
  const std::span<const uint64_t> in(values.data(), step.in.size());
  const llvm::Type* from = instruction.getOperand(0)->getType();
  const unsigned to_width = width(instruction.getType());
  switch (instruction.getOpcode()) {
    case Instruction::Call:
      if (auto* intrinsic = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction))
        return call(*intrinsic, in);
      fail("a call", instruction);
    case Instruction::Select: return in[0] ? in[1] : in[2];
    case Instruction::Freeze:
    case Instruction::BitCast:
    case Instruction::ZExt: return in[0];
    case Instruction::SExt:
      return masked(static_cast<uint64_t>(as_signed(in[0], width(from))), to_width);
    case Instruction::Trunc: return masked(in[0], to_width);
    case Instruction::ExtractElement: return masked(in[0] >> (in[1] * to_width), to_width);
    case Instruction::ICmp:
      return integers_compare(llvm::cast<CmpInst>(instruction).getPredicate(), in[0], in[1],
                              width(from));
    case Instruction::FCmp:
      return reals_compare(llvm::cast<CmpInst>(instruction).getPredicate(), read(from, in[0]),
                           read(from, in[1]));
    case Instruction::FNeg:
    case Instruction::FAdd:
    case Instruction::FSub:
    case Instruction::FMul:
    case Instruction::FDiv:
    case Instruction::FPTrunc:
    case Instruction::FPExt:
    case Instruction::FPToSI:
    case Instruction::FPToUI:
    case Instruction::SIToFP:
    case Instruction::UIToFP: return real_operation(instruction, in);
    default: return masked(integer_operation(instruction, in[0], in[1], to_width), to_width);
  }
}

uint64_t StraightLine::call(const llvm::IntrinsicInst& call, std::span<const uint64_t> in) const {
  const llvm::Type* type = call.getType();
  const llvm::Type* from = call.getOperand(0)->getType();
  const unsigned bits = width(type), from_bits = width(from);
  const uint64_t sign = uint64_t{1} << (bits - 1);
  auto x = [&] { return read(from, in[0]); };
  auto y = [&] { return read(from, in[1]); };
  // Instructions with .ftz in their name.
  auto flushed = [](double value) {
    const float single = static_cast<float>(value);
    return std::fpclassify(single) == FP_SUBNORMAL ? std::copysign(0.0f, single) : single;
  };
  auto approximate = [&](double value) { return rounded(type, flushed(value)); };
  auto extremum = [&](bool larger) {
    if (std::isnan(x())) return in[1];
    if (std::isnan(y())) return in[0];
    return (larger ? x() >= y() : x() <= y()) ? in[0] : in[1];
  };
  auto chosen = [&](bool first) { return in[first ? 0 : 1]; };
  const int64_t a = from->isIntegerTy() ? as_signed(in[0], from_bits) : 0;
  const int64_t b = from->isIntegerTy() && in.size() > 1 ? as_signed(in[1], from_bits) : 0;
  switch (call.getIntrinsicID()) {
    case I::abs: return masked(a < 0 ? 0 - in[0] : in[0], bits);
    case I::smin: return chosen(a <= b);
    case I::smax: return chosen(a >= b);
    case I::umin: return chosen(in[0] <= in[1]);
    case I::umax: return chosen(in[0] >= in[1]);
    case I::fabs: return in[0] & ~sign;
    case I::copysign: return (in[0] & ~sign) | (in[1] & sign);
    case I::floor: return rounded(type, std::floor(x()));
    case I::ceil: return rounded(type, std::ceil(x()));
    case I::sqrt: return rounded(type, std::sqrt(x()));
    case I::minnum:
    case I::minimumnum: return extremum(false);
    case I::maxnum:
    case I::maximumnum: return extremum(true);
    case I::fma: {
      const double z = read(from, in[2]);
      if (type->isDoubleTy()) return rounded(type, std::fma(x(), y(), z));
      if (!type->isFloatTy()) fail("unknown width", call);
      return rounded(
          type, std::fma(static_cast<float>(x()), static_cast<float>(y()), static_cast<float>(z)));
    }
    case I::fptosi_sat: return saturated(x(), bits, true);
    case I::fptoui_sat: return saturated(x(), bits, false);
    case I::nvvm_f2i_rz: return saturated(x(), bits, true);
    case I::nvvm_f2ui_rz: return saturated(x(), bits, false);
    case I::nvvm_d2f_rz: return std::bit_cast<uint32_t>(toward_zero(x()));
    case I::nvvm_i2f_rz:
    case I::nvvm_ll2f_rz: return std::bit_cast<uint32_t>(toward_zero(a));
    case I::nvvm_ui2f_rz:
    case I::nvvm_ull2f_rz: return std::bit_cast<uint32_t>(toward_zero(in[0]));
    case I::nvvm_div_full_ftz: return approximate(flushed(x()) / flushed(y()));
    case I::nvvm_rcp_approx_ftz_f: return approximate(1 / flushed(x()));
    case I::nvvm_ex2_approx_ftz: return approximate(std::exp2(flushed(x())));
    case I::nvvm_lg2_approx_ftz_f: return approximate(std::log2(flushed(x())));
    case I::nvvm_sqrt_approx_ftz_f: return approximate(std::sqrt(flushed(x())));
    case I::nvvm_rsqrt_approx_ftz_f: return approximate(1 / std::sqrt(double{flushed(x())}));
    case I::nvvm_ff2f16x2_rn: return pair(to_bits16(F16, y()), to_bits16(F16, x()), 16);
    case I::nvvm_ff2bf16x2_rn: return pair(to_bits16(BF16, y()), to_bits16(BF16, x()), 16);
    case I::nvvm_ff_to_e4m3x2_rn:
    case I::nvvm_ff_to_e5m2x2_rn: {
      const DType to = call.getIntrinsicID() == I::nvvm_ff_to_e4m3x2_rn ? E4M3 : E5M2;
      return pair(to_bits8(to, round_to(to, y())), to_bits8(to, round_to(to, x())), 8);
    }
    case I::nvvm_e4m3x2_to_f16x2_rn:
      return pair(to_bits16(F16, from_bits8(E4M3, static_cast<uint8_t>(in[0]))),
                  to_bits16(F16, from_bits8(E4M3, static_cast<uint8_t>(in[0] >> 8))), 16);
    default: fail("unknown intrinsic", call);
  }
}

}  // namespace kiln::testing
