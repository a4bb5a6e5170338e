// The library's kernels as PTX: what ptxas makes of it, that it is the same every time, and what a
// softmax costs in it.
#include <fmt/format.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "codegen/nvptx.h"
#include "kernels/kernels.h"
#include "passes/gpu_target.h"
#include "passes/pipeline.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/ptxas.h"

using namespace kiln;
using namespace kiln::test;

namespace {

struct Job {
  std::string text;
  Kernel kernel;
};

Kernel lowered_for(Kernel kernel, std::string_view target) {
  kernel.target = target;
  run_passes(kernel, pipeline_for(Tier::Sm80), {.verify_each = true, .after_each = {}});
  return kernel;
}

std::string ptx_of(const Kernel& kernel, std::string_view target) {
  return compile_ptx(lowered_for(kernel, target)).ptx;
}

Job attention_job(const AttentionConfig& config) {
  constexpr const char* kForms[] = {"mask", "mask_i8", "lists", "dense"};
  return {fmt::format("attention {} {} dim {} blocks {}x{} tiles {}x{}", name(config.dtype),
                      kForms[static_cast<int>(config.form)], config.head_dim, config.block.q,
                      config.block.k, config.block_m, config.block_n),
          block_sparse_attention_kernel(config)};
}

Job decode_job(const DecodeConfig& given) {
  const DecodeConfig c = validated(given);
  constexpr const char* kForms[] = {"indices", "mask", "mask_i8", "dense"};
  return {
      fmt::format("decode {} {} dim {} group {} tokens {} block {} page {}", name(c.dtype),
                  kForms[static_cast<int>(c.form)], c.head_dim, c.group, c.tokens, c.block, c.page),
      sparse_decode_kernel(c)};
}

// Every shipped configuration, with the target's tiles and the host's, and the other kernels'
// defaults.
std::vector<Job> shipped(std::string_view target) {
  std::vector<Job> jobs;
  for (const AttentionConfig& config : shipped_attention_configs()) {
    const AttentionConfig host = validated(config), gpu = validated(config, target);
    jobs.push_back(attention_job(gpu));
    if (host != gpu) jobs.push_back(attention_job(host));
  }
  for (const MatmulConfig& config : shipped_matmul_configs()) {
    const MatmulConfig gpu = validated(config, target);
    jobs.push_back({fmt::format("matmul {} tiles {}x{}x{}", name(gpu.dtype), gpu.block_m,
                                gpu.block_n, gpu.block_k),
                    matmul_kernel(gpu)});
  }
  if (target == "sm_80" || target == "sm_90")
    for (const DecodeConfig& config : shipped_decode_configs()) jobs.push_back(decode_job(config));
  for (const char* other :
       {"row_softmax", "tile_copy", "minmax_pool", "quest_score", "antidiag_scores",
        "select_blocks", "softmax_block_sum", "xattn_estimate"}) {
    const KernelEntry& entry = kernel_named(other);
    for (const auto& settings : entry.shipped)
      jobs.push_back({other, entry.build(entry.with_defaults(settings), target)});
  }
  return jobs;
}

// body(i) for every i below count, in a few threads.
template <class Body>
void in_threads(size_t count, size_t threads, const Body& body) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> pool;
  for (size_t t = 0; t < threads; ++t)
    pool.emplace_back([&] {
      for (size_t i; (i = next++) < count;) body(i);
    });
  for (std::thread& thread : pool) thread.join();
}

template <class Make>
std::string text_or_error(const Make& make) {
  try {
    return make();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace

// On sm_80 ptxas keeps one word of these in memory: of the 255 registers none is left.
static bool is_known(const std::string& text, const std::string& target, const std::string& fault) {
  return target == "sm_80" && text == "xattn_estimate" && fault.starts_with("8 bytes stack frame");
}

TEST_CASE("PTX: shipped kernels assemble for every GPU, nothing is spilled", "[ptx][long]") {
  struct Assembly {
    Job job;
    std::string target, fault;
  };
  std::vector<Assembly> all;
  for (const GpuTarget& target : gpu_targets())
    for (Job& job : shipped(target.name))
      all.push_back({std::move(job), std::string(target.name), ""});
  in_threads(all.size(), 2, [&](size_t i) {
    Assembly& one = all[i];
    one.fault = text_or_error(
        [&] { return testing::assembly_fault(ptx_of(one.job.kernel, one.target), one.target); });
  });
  for (const Assembly& one : all) {
    INFO(one.job.text << " for " << one.target);
    CHECK((one.fault == "" || is_known(one.job.text, one.target, one.fault)));
  }
}

TEST_CASE("PTX: the same bytes every time, in any thread", "[ptx]") {
  std::mt19937_64 random(run_seed());
  for (int n = 0; n < 3; ++n) {
    const GpuTarget& target = gpu_targets()[random() % gpu_targets().size()];
    const std::vector<Job> jobs = shipped(target.name);
    const Job& job = jobs[random() % jobs.size()];
    INFO(job.text << " for " << target.name);
    const GpuCode first = compile_ptx(lowered_for(job.kernel, target.name));
    // Others are compiled at the same time.
    std::vector<GpuCode> again(3);
    in_threads(2 * again.size(), 4, [&](size_t i) {
      if (i % 2)
        ptx_of(jobs[i].kernel, "sm_80");
      else
        again[i / 2] = compile_ptx(lowered_for(job.kernel, target.name));
    });
    for (const GpuCode& code : again) CHECK((code == first));
  }
}

namespace {

// Of one kernel, whatever this process did before.
size_t hash_of_ptx() {
  AttentionConfig config{.dtype = BF16, .head_dim = 96, .causal = true, .lse = true};
  const Kernel kernel = block_sparse_attention_kernel(validated(config, "sm_90"));
  return std::hash<std::string>()(ptx_of(kernel, "sm_90"));
}

}  // namespace

TEST_CASE("child: hash of PTX", "[.child-ptx]") {
  std::printf("PTX has hash %zx\n", hash_of_ptx());
}

TEST_CASE("PTX: another process gives the same bytes", "[ptx]") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "bash -c 'exec -a gpu_tests \"" + self + "\" \"[.child-ptx]\"'";
  for (int i = 0; i < 2; ++i) {
    FILE* child = popen(command.c_str(), "r");
    REQUIRE(child != nullptr);
    std::string said;
    char buffer[1000];
    while (size_t n = std::fread(buffer, 1, sizeof buffer, child)) said.append(buffer, n);
    CHECK(pclose(child) == 0);
    CHECK_THAT(said, Catch::Contains(fmt::format("PTX has hash {:x}\n", hash_of_ptx())));
  }
}

TEST_CASE("PTX: dtype, head dimension and blocks change it", "[ptx]") {
  std::set<std::string> all;
  size_t count = 0;
  for (DType dtype : {F16, BF16})
    for (int64_t dim : {64, 128})
      for (int64_t block : {64, 128}) {
        const AttentionConfig config{.dtype = dtype, .head_dim = dim, .block = block};
        all.insert(ptx_of(block_sparse_attention_kernel(validated(config, "sm_90")), "sm_90"));
        ++count;
      }
  CHECK(all.size() == count);
}

namespace {

int64_t lines_with(const std::string& text, std::string_view part) {
  std::istringstream lines(text);
  int64_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find(part) != std::string::npos;
  return count;
}

// The parts of PTX from label to label that hold an instruction.
std::vector<std::string> parts_with(const std::string& ptx, std::string_view instruction) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < ptx.size();) {
    const size_t end = std::min(ptx.size(), ptx.find("\n$L__BB", at + 1));
    std::string part = ptx.substr(at, end - at);
    if (part.find(instruction) != std::string::npos) parts.push_back(std::move(part));
    at = end;
  }
  return parts;
}

}  // namespace

// Beside one fma and one ex2 for each of its elements of S, a thread has the work of its rows: ex2
// for the factor of what came before, fma for the sum, and a product for each element of o.
TEST_CASE("PTX: a softmax costs one fma and one ex2 an element", "[ptx]") {
  for (const char* target : {"sm_80", "sm_90", "sm_120"})
    for (BlockForm form : {BlockForm::Dense, BlockForm::MaskBool, BlockForm::Lists})
      for (const auto& [dtype, dim, block] :
           {std::tuple{F16, 64, 64}, {F16, 128, 128}, {BF16, 80, 32}, {BF16, 128, 64}}) {
        const AttentionConfig config = validated({.dtype = dtype,
                                                  .head_dim = dim,
                                                  .block = block,
                                                  .causal = form == BlockForm::MaskBool,
                                                  .form = form},
                                                 target);
        const Job job = attention_job(config);
        INFO(job.text << " for " << target);
        const GpuCode code = compile_ptx(lowered_for(job.kernel, target));
        // A warp has 16 rows at least, its threads two of them; more warps repeat what others do.
        const int64_t warps = std::min<int64_t>(code.launches[0].threads / 32, config.block_m / 16);
        const int64_t rows = 2 * (config.block_m / 16 / warps);
        const int64_t elements = config.block_m * config.block_n / (32 * warps);
        const int64_t outputs = config.block_m * config.dim_v() / (32 * warps);
        // The softmax is one piece of straight code, in the loop over key tiles.
        const std::vector<std::string> parts = parts_with(code.ptx, "ex2.");
        REQUIRE(parts.size() == 1);
        const std::string& softmax = parts[0];
        CHECK(lines_with(softmax, "ex2.approx.ftz.f32") == elements + rows);
        CHECK(lines_with(softmax, "ex2.") == elements + rows);
        CHECK(lines_with(softmax, "fma.rn.ftz.f32") == elements + rows);
        CHECK(lines_with(softmax, "fma.") == elements + rows);
        CHECK(lines_with(softmax, "sub.ftz.f32") == rows);
        CHECK(lines_with(softmax, "mul.ftz.f32") == 2 * rows + outputs);
      }
}

TEST_CASE("PTX: the tiles chosen for a GPU fit into its shared memory", "[ptx][long]") {
  for (const GpuTarget& target : gpu_targets())
    for (DType dtype : {F16, BF16, F32})
      for (int64_t dim : {32, 80, 128, 256})
        for (int64_t dim_v : {int64_t{32}, dim})
          for (const auto& [block_m, block_n] :
               {std::pair{16, 128}, {48, 80}, {128, 128}, {112, 64}}) {
            const AttentionConfig config = validated(
                {.dtype = dtype, .head_dim = dim, .head_dim_v = dim_v, .block = {block_m, block_n}},
                target.name);
            CHECK_NOTHROW(lowered_for(block_sparse_attention_kernel(config), target.name));
          }
}
