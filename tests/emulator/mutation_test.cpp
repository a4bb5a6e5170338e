// Every barrier, fence, wait, predicate and transposition of shipped kernels, wrong one at a time:
// each mistake is detected, or shown to change nothing.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <iostream>

#include "tests/emulator/judge.h"

namespace kiln::testing {
namespace {

using Dims = std::map<std::string, int64_t>;

Dims attention(int64_t heads, int64_t seq, int64_t seq_kv, int64_t rows,
               std::pair<std::string, int64_t> last) {
  return {{"batch", 1}, {"heads", heads},   {"heads_kv", 1},
          {"seq", seq}, {"seq_kv", seq_kv}, {"rows", rows},
          last};
}

Dims dense(int64_t heads, int64_t seq, int64_t seq_kv) {
  return {{"batch", 1}, {"heads", heads}, {"heads_kv", 1}, {"seq", seq}, {"seq_kv", seq_kv}};
}

// Partial tiles, several blocks, several rounds of each loop and none; rows that are aligned, rows
// with gaps that keep them so, and rows that are not; selected blocks in both parts of long rows.
// So each guard holds some lanes back and lets others pass.
const std::vector<SubjectInfo>& subjects() {
  static const std::vector<SubjectInfo> all = {
      {"matmul",
       {},
       "sm_80",
       {{{{"m", 100}, {"n", 72}, {"k", 200}}},
        {{{"m", 70}, {"n", 67}, {"k", 67}}, 3, 1},
        {{{"m", 64}, {"n", 33}, {"k", 136}}, 8, 4},
        {{{"m", 127}, {"n", 72}, {"k", 0}}}}},
      {"block_sparse_attention",
       {{"head_dim", "64"}, {"causal", "true"}, {"lse", "true"}},
       "sm_80",
       {{attention(2, 70, 200, 2, {"cols", 4})},
        {attention(1, 65, 130, 2, {"cols", 3}), 3, 1},
        {attention(1, 100, 70, 2, {"cols", 2}), 8, 0, 1},
        {attention(1, 20, 190, 1, {"cols", 3}), 3, 1, 1},
        {attention(1, 20, 0, 1, {"cols", 0})},
        {attention(6, 20, 38400, 1, {"cols", 600}), 0, 0, 0.02}}},  // rows in two parts
      {"block_sparse_attention",
       {{"dtype", "bf16"}, {"form", "lists"}},
       "sm_80",
       {{attention(2, 70, 300, 2, {"entries", 5})},
        {attention(1, 65, 190, 2, {"entries", 3}), 3, 1, 0.95},
        {attention(1, 64, 130, 1, {"entries", 3}), 8, 0, 1},
        {attention(6, 20, 25600, 1, {"entries", 400}), 0, 0, 0.02}}},
      {"block_sparse_attention",
       {{"head_dim", "32"}, {"dtype", "bf16"}, {"form", "dense"}, {"written_out", "true"}},
       "sm_90",
       {{dense(2, 70, 200)}, {dense(1, 65, 130), 3, 1}, {dense(1, 65, 64), 8}, {dense(1, 20, 0)}}},
      {"matmul",
       {{"dtype", "f32"}},
       "sm_90",
       {{{{"m", 70}, {"n", 72}, {"k", 136}}},
        {{{"m", 70}, {"n", 67}, {"k", 67}}, 3, 1},
        {{{"m", 20}, {"n", 36}, {"k", 68}}, 8},
        {{{"m", 33}, {"n", 40}, {"k", 0}}}}},
      {"row_softmax",
       {},
       "sm_80",
       {{{{"rows", 20}, {"cols", 300}}},
        {{{"rows", 20}, {"cols", 100}}},
        {{{"rows", 20}, {"cols", 128}}, 8},
        {{{"rows", 17}, {"cols", 100}}, 3, 1},
        {{{"rows", 5}, {"cols", 259}}, 3, 1}}},
      {"tile_copy",
       {{"out", "f16"}},
       "sm_80",
       {{{{"rows", 12}, {"cols", 1104}}}, {{{"rows", 9}, {"cols", 1111}}, 3, 1}}},
  };
  return all;
}

TEST_CASE("the kernels that are to have mistakes are right and clean without") {
  for (const SubjectInfo& info : subjects()) {
    Subject subject(info);
    for (size_t problem = 0; problem < subject.problems(); ++problem)
      for (ptx::AsyncMode mode : kModes) {
        INFO(info.name() << ", problem " << problem);
        CHECK(subject.right(problem, mode).finding == "");
        CHECK(subject.right(problem, mode).wrong == "");
        CHECK(subject.right(problem, mode).same);
      }
  }
}

TEST_CASE("mistakes in the PTX are detected, or change nothing for a reason", "[mutation][long]") {
  std::vector<Judgement> all;
  std::string equivalent, missed;
  for (const SubjectInfo& info : subjects()) {
    Subject subject(info);
    for (Judgement& judgement : judge_all(subject)) {
      INFO(info.name() << ": " << judgement.mutant.what() << ": " << judgement.evidence);
      if (judgement.mutant.synchronizes()) CHECK(judgement.verdict == Verdict::Found);
      const bool known = judgement.verdict <= Verdict::Wrong;
      std::string& list = is_equivalent(judgement.verdict) ? equivalent : missed;
      if (!known)
        list += fmt::format("{}: {}\n    {}: {}\n", info.name(), judgement.mutant.what(),
                            name(judgement.verdict), judgement.evidence);
      all.push_back(std::move(judgement));
    }
  }
  std::cout << table(all) << "\nchange nothing:\n" << equivalent << std::endl;
  INFO("not detected, and no reason:\n" << missed);
  const auto count = [&](auto is) { return std::count_if(all.begin(), all.end(), is); };
  const auto rest = count([](auto& j) { return !is_equivalent(j.verdict); });
  const auto detected = count([](auto& j) { return j.verdict <= Verdict::Wrong; });
  CHECK(detected * 100 >= rest * 95);
  CHECK(missed == "");
}

}  // namespace
}  // namespace kiln::testing
