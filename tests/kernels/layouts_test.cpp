// The library's kernels as infer_layouts leaves them.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "kernels/kernels.h"
#include "passes/pipeline.h"
#include "tests/passes/layout_law.h"

using namespace kiln;

namespace {

struct Counts {
  int converts = 0, shared = 0;
  bool operator==(const Counts&) const = default;
};

Counts counts_of(const Kernel& kernel) {
  Counts counts;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    counts.converts += op.code == OpCode::Convert;
    counts.shared += op.code == OpCode::Alloc && kernel.type(op.result).space == Space::Shared;
  });
  return counts;
}

struct Inferred {
  Counts before, after;
};

// Runs the GPU tier's passes until infer_layouts, with so many warps (0: as chosen).
Inferred infer(Kernel kernel, int64_t warps) {
  kernel.target = "sm_90";
  for (const Pass& pass : pipeline_for(Tier::Sm80)) {
    if (pass.name != "infer_layouts") {
      pass.run(kernel);
      continue;
    }
    for (OpId id : kernel.region(kernel.body).ops)
      if (warps > 0 && kernel.op(id).code == OpCode::Launch)
        kernel.op(id).attrs.set("warps", warps);
    const Counts before = counts_of(kernel);
    pass.run(kernel);
    CHECK(kiln::testing::broken_layout_law(kernel) == "");
    return {before, counts_of(kernel)};
  }
  throw std::logic_error("the pipeline has no infer_layouts");
}

}  // namespace

TEST_CASE("layouts: attention's scores are the next operand, without a conversion", "[layouts]") {
  for (AttentionConfig config : shipped_attention_configs())
    for (const int64_t tile : {0, 64, 128})
      for (const int64_t warps : {0, 4, 8})
        for (const bool written_out : {false, true}) {
          config.written_out = written_out;
          if (tile > 0) config.block = tile;
          config.block_m = config.block_n = tile;
          INFO(fmt::format("{} dim {} tile {} warps {} written out {}", name(config.dtype),
                           config.head_dim, tile, warps, written_out));
          const Inferred inferred = infer(block_sparse_attention_kernel(validated(config)), warps);
          CHECK(inferred.after.converts == 0);
          CHECK(inferred.after == inferred.before);
        }
}

TEST_CASE("layouts: rows of a softmax stay in a warp where there are enough", "[layouts]") {
  for (const DType dtype : {F32, F16})
    for (const int64_t warps : {0, 1, 3, 4, 8})
      for (const auto& [rows, columns] :
           {std::pair{16, 128}, {1, 1024}, {4, 64}, {128, 32}, {3, 100}, {17, 33}}) {
        INFO(fmt::format("{} {}x{} warps {}", name(dtype), rows, columns, warps));
        const Inferred inferred = infer(row_softmax_kernel({dtype, rows, columns}), warps);
        CHECK(inferred.after.converts == 0);
        if (rows >= warps && warps > 0) CHECK(inferred.after.shared == 0);
      }
}

TEST_CASE("layouts: matmul needs its two shared tiles only", "[layouts]") {
  for (const DType dtype : {F16, F32, F64})
    for (const int64_t warps : {0, 1, 3, 4, 8})
      for (const auto& [m, n, k] : {std::tuple{64, 64, 64}, {128, 128, 32}, {8, 8, 8}, {24, 40, 9}})
        for (const bool transpose : {false, true}) {
          INFO(fmt::format("{} {}x{}x{} warps {}", name(dtype), m, n, k, warps));
          const Inferred inferred = infer(matmul_kernel({.dtype = dtype,
                                                         .out = dtype,
                                                         .transpose_a = transpose,
                                                         .transpose_b = !transpose,
                                                         .block_m = m,
                                                         .block_n = n,
                                                         .block_k = k}),
                                          warps);
          CHECK(inferred.after == Counts{0, 2});
        }
}
