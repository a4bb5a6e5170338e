// An instruction that a kernel already names is kept, or is a mistake if it cannot do the work.
#include <fmt/format.h>

#include <cmath>

#include "ir/error.h"
#include "passes/gemm_plan.h"
#include "passes/launch_warps.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

constexpr int64_t kChunk = 16;  // bytes that one cp.async moves

// ---- gemm ----

std::string mma_reason(const Kernel& kernel, const Op& gemm, int64_t warps) {
  const GemmPlan plan = gemm_plan(kernel, gemm, warps);
  const auto [m, n, k] = plan.shape;
  const std::string_view dtype = name(kernel.type(gemm.operands[0]).dtype);
  std::string text = fmt::format("mma.sync m16n8k{}: {}, {}x{}x{} over {} x {} warps", plan.input.k,
                                 dtype, m, n, k, plan.warps.m, plan.warps.n);
  if (plan.warps.copies > 1)
    text += fmt::format(", each strip computed {} times", plan.warps.copies);
  return text;
}

class Gemms {
 public:
  Gemms(Kernel& kernel, int64_t warps) : kernel_(kernel), warps_(warps) {}

  void run(RegionId region) {
    ValueMap names;
    rewrite(kernel_, region, names, [&](Builder& build, OpId id) {
      if (kernel_.op(id).code == OpCode::Gemm) choose(build, kernel_.op(id));
      return false;
    });
  }

 private:
  void choose(Builder& build, Op& gemm) {
    const GpuTarget& target = gpu_target(kernel_.target);
    const MmaSupport support = mma_support(kernel_, gemm, target);
    const std::string given = gemm.word("instruction");
    const DType dtype = kernel_.type(gemm.operands[0]).dtype;
    if (given == "mma" && !support.operands)
      throw UserError(gemm.loc, "gemm: mma cannot do it: " + support.why_not,
                      mma_needs() + "; or leave the instruction to the compiler");
    const bool mma = support.operands && given != "fma";
    stage(build, gemm, mma, mma ? *support.operands : dtype);
    gemm.attrs.set("instruction", std::string(mma ? "mma" : "fma"));
    std::string reason;
    if (mma) {
      reason = mma_reason(kernel_, gemm, warps_);
      if (*support.operands != dtype)
        reason += fmt::format(", {} as f16: {} multiplies none", name(dtype), target.name);
    } else {
      reason = "fma: " + (support.operands ? "as the kernel says" : support.why_not);
    }
    if (gemm.word("reason").empty()) gemm.attrs.set("reason", std::move(reason));
  }

  // a and b become tiles that copies just before the gemm fill, where the instruction cannot take
  // what they are: for fma fragments, for mma another dtype.
  void stage(Builder& build, Op& gemm, bool mma, DType dtype) {
    ValueMap staged;
    for (size_t i : {0, 1}) {
      const Value source = gemm.operands[i];
      const Type type = kernel_.type(source);
      if (type.dtype == dtype && (mma || type.space == Space::Shared)) continue;
      auto [it, is_new] = staged.try_emplace(source.id);
      if (is_new) {
        it->second = build.alloc(mma ? type.space : Space::Shared, dtype, type.shape);
        build.emit(OpCode::Copy, {source, it->second});
      }
      gemm.operands[i] = it->second;
    }
  }

  Kernel& kernel_;
  const int64_t warps_;
};

// ---- copy ----

int64_t bytes_of(int64_t elements, DType dtype) {
  return elements * static_cast<int64_t>(size_of(dtype));
}

// Why the rows of a shared tile, or of a view of one, are not made of whole chunks; empty if they
// are. What the source's rows are like is known at launch, and looked at there.
std::string why_not_chunks(const Kernel& kernel, Value storage) {
  const DType dtype = kernel.type(storage).dtype;
  while (true) {
    const Shape& shape = kernel.type(storage).shape;
    if (shape.empty() || (shape.back() != kDynamic && bytes_of(shape.back(), dtype) % kChunk))
      return fmt::format("rows of {} bytes are not chunks of {}",
                         bytes_of(shape.empty() ? 1 : shape.back(), dtype), kChunk);
    const Op* slice = kernel.def_as(storage, OpCode::Slice);
    if (!slice) return "";
    const auto column = constant_int(kernel, slice->operands.back());
    if (!column || bytes_of(*column, dtype) % kChunk)
      return fmt::format("the part of the tile may begin inside a chunk of {} bytes", kChunk);
    storage = slice->operands[0];
  }
}

// What cp.async needs of a copy, and why one does not have it; empty if it has.
struct CopyRule {
  const char* needs;
  std::string (*why_not)(const Kernel&, const Op&);
};

std::string why_not_spaces(const Kernel& kernel, const Op& copy) {
  const Space from = kernel.type(copy.operands[0]).space, to = kernel.type(copy.operands[1]).space;
  if (from == Space::Fragment) return "from registers";
  if (to == Space::Fragment) return "to registers";
  if (from == Space::Shared) return "from shared memory";
  return to == Space::Global ? "to global memory" : "";
}
std::string why_not_dtypes(const Kernel& kernel, const Op& copy) {
  const DType from = kernel.type(copy.operands[0]).dtype, to = kernel.type(copy.operands[1]).dtype;
  return from == to ? "" : fmt::format("converts {} to {}", name(from), name(to));
}
std::string why_not_pad(const Kernel&, const Op& copy) {
  const double pad = copy.real("pad");
  return pad != 0 || std::signbit(pad) ? fmt::format("pads with {}", pad) : "";
}
std::string why_not_rows(const Kernel& kernel, const Op& copy) {
  const Type &from = kernel.type(copy.operands[0]), &to = kernel.type(copy.operands[1]);
  std::string why = why_not_chunks(kernel, copy.operands[1]);
  if (why.empty() && from.shape.back() != to.shape.back())
    why = "the last axes of source and destination are not the same";
  return why;
}

constexpr CopyRule kAsyncRules[] = {
    {"from a tensor to a shared tile", why_not_spaces},
    {"of one dtype", why_not_dtypes},
    {"padded with 0", why_not_pad},
    {"in rows of whole chunks of 16 bytes on both sides", why_not_rows},
};
static_assert(kChunk == 16);

std::string why_not_async(const Kernel& kernel, const Op& copy) {
  for (const CopyRule& rule : kAsyncRules)
    if (std::string why = rule.why_not(kernel, copy); !why.empty()) return why;
  return "";
}

std::string async_needs() {
  std::string text = "cp_async copies";
  for (const CopyRule& rule : kAsyncRules)
    text += fmt::format("{}{}", &rule == kAsyncRules ? " " : ", ", rule.needs);
  return text;
}

void choose_copy(const Kernel& kernel, Op& copy) {
  const std::string given = copy.word("instruction");
  const std::string why_not = why_not_async(kernel, copy);
  if (given == "cp_async" && !why_not.empty())
    throw UserError(copy.loc, "copy: cp_async cannot do it: " + why_not,
                    async_needs() + "; or leave the instruction to the compiler");
  const bool async = why_not.empty() && given != "vector";
  const Type& to = kernel.type(copy.operands[1]);
  std::string reason = !why_not.empty() ? "vector: " + why_not
                       : async          ? fmt::format("cp.async: rows of {} bytes, same dtype",
                                                      bytes_of(to.shape.back(), to.dtype))
                                        : "vector: as the kernel says";
  copy.attrs.set("instruction", std::string(async ? "cp_async" : "vector"));
  if (copy.word("reason").empty()) copy.attrs.set("reason", std::move(reason));
}

}  // namespace

void choose_instructions(Kernel& kernel) {
  walk(kernel, kernel.body, [&](OpId id) {
    Op& op = kernel.op(id);
    if (op.code == OpCode::Copy) choose_copy(kernel, op);
    if (op.code != OpCode::Launch) return;
    if (op.integer("warps") == 0) op.attrs.set("warps", launch_warps(kernel, op));
    Gemms(kernel, op.integer("warps")).run(op.regions[0]);
  });
}

}  // namespace kiln
