// A block gets as many warps as its work is shared by evenly, and no more than it feeds:
//
//  1. The gemm with the most products decides. It takes the most warps, up to 8, that share it
//     without two computing the same: a strip of 16 rows each (full_row), of 16 columns (full_col),
//     or 1024 elements of c (square; 32 x 32: fewer would load more of a and b than they multiply).
//     Only a prime number of strips makes it more than 8: 11 or 13. Without a gemm, 4.
//  2. Fewer than 4 leave copies and loops over elements short of threads. Then up to 8, if those
//     share the gemm as well, else 4 at the price of computing its strips more than once.
//  3. 64 elements of the largest tile to a warp: two a thread. Small kernels get 2 or 1.
//  4. While a thread would need more registers than there are for one: twice as many, up to 8, if
//     that takes a quarter off. More than 8 would share the same registers.
//
// More blocks on a multiprocessor do what more warps in a block would, without waiting for each
// other; so nothing here asks for more than the work of one block divides into.
#include "passes/launch_warps.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"
#include "passes/gemm_plan.h"
#include "passes/resources.h"

namespace kiln {
namespace {

constexpr int64_t kMost = 8;
constexpr int64_t kMostOfPrimes = 16;
constexpr int64_t kUseful = 4;  // what copies and loops can do with
constexpr int64_t kColumns = 16;
constexpr int64_t kElementsOfSquare = 1024;
constexpr int64_t kElementsToFeed = 64;

class Launch {
 public:
  Launch(const Kernel& kernel, const Op& launch) : kernel_(kernel), launch_(launch) {
    walk(kernel, launch.regions[0], [&](OpId id) { survey(kernel.op(id)); });
    for (const Op* gemm : gemms_)
      if (!main_ || products(*gemm) > products(*main_)) main_ = gemm;
  }

  struct Choice {
    int64_t warps;
    std::string reason;
  };
  Choice choose() const {
    Choice choice{kUseful, "enough for copies and loops over elements"};
    if (main_) choice = {sharing(*main_), shares_text()};
    if (choice.warps < kUseful && feeds(kUseful))
      choice = {widened(choice.warps), choice.reason + ", more for copies and loops"};
    while (choice.warps > 1 && !feeds(choice.warps))
      choice = {choice.warps / 2, "the largest tile feeds no more"};
    for (int64_t more = 2 * choice.warps;
         more <= kMost && registers(choice.warps) > GpuTarget::kMostRegisters; more *= 2)
      if (4 * registers(more) <= 3 * registers(choice.warps))
        choice = {more, "fewer would not have registers for the tiles"};
    return choice;
  }

 private:
  void survey(const Op& op) {
    if (op.code == OpCode::Gemm) gemms_.push_back(&op);
    if (op.code == OpCode::Parallel) most(op.ints("extents"));
    if (op.code == OpCode::Copy) most(kernel_.type(op.operands[1]).shape);
    if (op.code == OpCode::Alloc) most(kernel_.type(op.result).shape);
  }

  void most(const Shape& shape) { most_elements_ = std::max(most_elements_, count(shape)); }

  int64_t products(const Op& gemm) const {
    const GemmShape shape = gemm_shape(kernel_, gemm);
    return shape.m * shape.n * shape.k;
  }

  bool shares(const Op& gemm, int64_t warps) const {
    return gemm_warps(kernel_, gemm, warps).copies == 1;
  }

  bool has_strip_each(const Op& gemm, int64_t warps) const {
    const GemmShape shape = gemm_shape(kernel_, gemm);
    const std::string& policy = gemm.word("policy");
    if (policy == "full_row") return true;
    if (policy == "full_col") return shape.n >= kColumns * warps;
    return shape.m * shape.n >= kElementsOfSquare * warps;
  }

  int64_t sharing(const Op& gemm) const {
    for (int64_t most : {kMost, kMostOfPrimes})
      for (int64_t warps = most; warps > 1; --warps)
        if (shares(gemm, warps) && has_strip_each(gemm, warps)) return warps;
    return 1;
  }

  std::string shares_text() const {
    const GemmShape shape = gemm_shape(kernel_, *main_);
    return fmt::format("as the gemm {}x{}x{} divides ({})", shape.m, shape.n, shape.k,
                       main_->word("policy"));
  }

  int64_t widened(int64_t warps) const {
    for (int64_t more = kUseful; more <= kMost; ++more)
      if (shares(*main_, more)) return more;
    return kUseful % warps == 0 ? kUseful : warps;
  }

  bool feeds(int64_t warps) const { return most_elements_ >= kElementsToFeed * warps; }

  int64_t registers(int64_t warps) const {
    return estimate_registers(kernel_, launch_, warps).needed;
  }

  const Kernel& kernel_;
  const Op& launch_;
  std::vector<const Op*> gemms_;
  const Op* main_ = nullptr;
  int64_t most_elements_ = 0;
};

}  // namespace

int64_t launch_warps(const Kernel& kernel, const Op& launch) {
  return Launch(kernel, launch).choose().warps;
}

std::string launch_warps_reason(const Kernel& kernel, const Op& launch) {
  if (launch.integer("warps") > 0) return "as the kernel says";
  return Launch(kernel, launch).choose().reason;
}

}  // namespace kiln
