// Every scalar op on every dtype that it takes, as computations of one GPU thread and as the
// interpreter evaluates them; and values to try them on.
#pragma once

#include <random>

#include "ir/builder.h"
#include "tests/codegen/device_code.h"

namespace kiln::testing {

class Operation {
 public:
  Operation(OpCode code, std::vector<DType> operands, DType result, Attrs attrs = {});

  OpCode code() const { return op().code; }
  const std::string& name() const { return name_; }
  const std::vector<DType>& operands() const { return operands_; }
  DType result() const { return result_; }
  Computation computation() const;
  Scalar expected(const std::vector<Scalar>& in) const;

 private:
  const Op& op() const { return kernel_->op(id_); }

  std::string name_;
  std::vector<DType> operands_;
  DType result_;
  std::shared_ptr<Kernel> kernel_;
  OpId id_;
};

// All whose results are exact, floats' rounded once.
std::vector<Operation> exact_operations(DType dtype);
std::vector<Operation> casts(DType from);
std::vector<Operation> functions(DType dtype, bool fast);  // exp, …, of a float

Scalar from_bits(DType dtype, uint64_t bits);
uint64_t to_bits(const Scalar& value);

class Values {
 public:
  explicit Values(uint64_t seed) : random_(seed) {}
  // Special values, any bits, small numbers.
  Scalar draw(DType dtype);
  // A value of `from` that lies on or just beside the middle of two neighbours in `to`.
  Scalar near_tie(DType from, DType to);

 private:
  uint64_t below(uint64_t end) { return random_() % end; }
  std::mt19937_64 random_;
};

}  // namespace kiln::testing
