// f32 arithmetic with f16 or bf16 operands (PTX ISA, "Mixed Precision Floating Point Instructions",
// from sm_100 on): a, and b of fma, are widened first; the last operand is f32.
#include "runtime/ptx/arithmetic.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

template <class N, bool Saturates>
struct Mixed {
  static float result(float x) {
    x = canonical(x);
    return Saturates ? saturate(x) : x;
  }
  struct Add {
    float operator()(N a, float c) const { return result(to_float(a) + c); }
  };
  struct Sub {
    float operator()(N a, float c) const { return result(to_float(a) - c); }
  };
  struct Fma {
    float operator()(N a, N b, float c) const { return result(fused(to_float(a), to_float(b), c)); }
  };
};

template <class N, bool Saturates>
Handler handler(Decoder& d, std::string_view opcode) {
  using Ops = Mixed<N, Saturates>;
  if (opcode == "add") return binary<typename Ops::Add, float, N, float>;
  if (opcode == "sub") return binary<typename Ops::Sub, float, N, float>;
  if (opcode == "fma") return ternary<typename Ops::Fma, float, N, N, float>;
  d.unknown();
}

}  // namespace

void decode_mixed(Decoder& d, Type narrow) {
  const std::string_view opcode = d.statement().opcode;
  d.take("rn");
  const bool saturates = d.take("sat");
  const size_t operands = opcode == "fma" ? 4 : 3;
  d.expect_operands(operands);
  d.define(0, Type::F32);
  for (size_t i = 1; i + 1 < operands; ++i) d.use(i, narrow);
  d.use(operands - 1, Type::F32);
  if (narrow == Type::F16)
    d.now.run = saturates ? handler<Half, true>(d, opcode) : handler<Half, false>(d, opcode);
  else if (narrow == Type::BF16)
    d.now.run = saturates ? handler<BFloat, true>(d, opcode) : handler<BFloat, false>(d, opcode);
  else
    d.unknown();
}

}  // namespace kiln::ptx
