// A kernel of the library with the problems that its mutants are run on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "runtime/emulator_device.h"

namespace kiln::testing {

// How a problem's tensors are made: its dims, where their rows are, what is chosen at random.
struct ProblemShape {
  std::map<std::string, int64_t> dims;
  int64_t gap = 0;       // elements between rows, NaN
  int64_t offset = 0;    // elements before the first, from an address that is a multiple of 256
  double density = 0.6;  // of masks and lists
  double infinities = 0; // share of −infinity among the inputs
};

struct SubjectInfo {
  std::string name;  // for people
  std::string kernel;
  std::map<std::string, std::string> options;
  std::vector<ProblemShape> problems;  // cheap ones first
  std::string target = "sm_80";
};

// Tensors in memory of their own; what lies between rows is NaN, as is an output before the run.
// Copies are independent.
class Tensors {
 public:
  Tensors(const Kernel& kernel, const ProblemShape& shape, std::map<std::string, Scalar> params,
          uint64_t seed);
  Bindings bindings();
  // What is in the outputs and everything around them; and in all inputs, which must not change.
  bool equal(const Tensors& other) const;
  // An input or a byte outside the elements that was written; empty if none.
  std::string damage(const Tensors& before) const;

 private:
  struct Tensor {
    std::string role;
    Memory memory;  // with the offset in bytes of the first element for its data
    std::vector<std::byte> bytes;
    std::byte* data();
  };
  void add(const std::string& name, const std::string& role, DType dtype, Shape shape);
  void fill(const std::string& name, Tensor& tensor);

  ProblemShape shape_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, Scalar> params_;
  uint64_t random_;
};

struct Run {
  std::string finding;  // the first; empty if none
  std::string wrong;    // how the result differs from the float64 reference; empty if it does not
  bool same = false;    // as without the mutation, bit for bit
  std::vector<ptx::Report> reports;
};

class Subject {
 public:
  explicit Subject(const SubjectInfo& info);
  const SubjectInfo& info() const { return info_; }
  const GpuCode& code() const { return code_; }
  size_t problems() const { return problems_.size(); }
  // Of the code as it is.
  const Run& right(size_t problem, ptx::AsyncMode mode) const;
  Run run(const Executable& executable, size_t problem, ptx::AsyncMode mode) const;
  std::unique_ptr<Executable> executable(const std::string& ptx) const;

 private:
  struct Problem {
    Tensors inputs;
    std::optional<Tensors> results;  // of the code as it is
    ReferenceResults reference;
    uint64_t most_instructions = uint64_t{1} << 32;
    std::map<ptx::AsyncMode, Run> right;
  };
  std::string compare_with_reference(Problem& problem, Tensors& results) const;

  SubjectInfo info_;
  const KernelEntry& entry_;
  Options options_;
  Kernel kernel_;
  GpuCode code_;
  std::vector<Problem> problems_;
};

inline constexpr ptx::AsyncMode kModes[] = {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest};

}  // namespace kiln::testing
