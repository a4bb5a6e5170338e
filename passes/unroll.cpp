#include <fmt/format.h>

#include "ir/error.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

constexpr int64_t kMaxOps = 1 << 18;  // made by all loops together; more is a mistake

class Unroller {
 public:
  explicit Unroller(Kernel& kernel) : kernel_(kernel) {}

  bool operator()(Builder& build, OpId id) {
    const Op& op = kernel_.op(id);
    if (op.code != OpCode::For || op.word("kind") != "unroll") return false;
    auto begin = constant_int(kernel_, op.operands[0]), end = constant_int(kernel_, op.operands[1]),
         step = constant_int(kernel_, op.operands[2]);
    if (!begin || !end || !step)
      throw UserError(op.loc, "unroll needs bounds that are constants when the kernel is traced",
                      "use serial, or make the bounds C++ numbers");
    if (*step <= 0)
      throw UserError(op.loc, fmt::format("unroll: expected a step above 0, got {}", *step),
                      "to count down, index with end - 1 - i");
    // Inner loops first, so that each is unrolled once and copied.
    rewrite(kernel_, op.regions[0], names, *this);
    int64_t trips = *begin < *end ? (*end - *begin + *step - 1) / *step : 0;
    reserve(op, trips);
    for (int64_t i = *begin; i < *end; i += *step) {
      ValueMap copies;
      copies[kernel_.region(op.regions[0]).args[0].id] = build.constant(I32, i);
      clone_body(kernel_, op.regions[0], build.region(), copies);
    }
    return true;
  }

  ValueMap names;  // nothing outside a loop uses a value of its body: stays empty

 private:
  void reserve(const Op& op, int64_t trips) {
    int64_t body = 1;
    walk(kernel_, op.regions[0], [&](OpId) { ++body; });
    if (trips > kMaxOps / body || (made_ += trips * body) > kMaxOps)
      throw UserError(
          op.loc,
          fmt::format("unrolling {} iterations of {} operations is too much: at most {} "
                      "operations in all",
                      trips, body, kMaxOps),
          "use serial");
  }

  Kernel& kernel_;
  int64_t made_ = 0;
};

}  // namespace

void unroll(Kernel& kernel) {
  Unroller unroller(kernel);
  rewrite(kernel, kernel.body, unroller.names, unroller);
}

}  // namespace kiln
