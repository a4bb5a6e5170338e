// A kernel of the library with the problems that its mutants are run on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "runtime/emulator_device.h"

namespace kiln::testing {

// How a problem's tensors are made.
struct ProblemShape {
  std::map<std::string, int64_t> dims;
  int64_t gap = 0;       // elements between rows
  int64_t offset = 0;    // elements before the first, from a multiple of 256 bytes
  double density = 0.6;  // of masks and lists; some rows of them are empty, unless this is 1
};

struct SubjectInfo {
  std::string kernel;
  std::map<std::string, std::string> options;
  std::string target;
  std::vector<ProblemShape> problems;  // what finds most first
  std::string name() const;            // "matmul stages=3"
};

// Tensors in memory of their own. What lies between and around rows is NaN (of a mask, set), and so
// are outputs before a run. Copies are independent.
class Tensors {
 public:
  Tensors(const Kernel& kernel, const ProblemShape& shape, std::map<std::string, Scalar> params);
  Bindings bindings();
  bool operator==(const Tensors& other) const;  // every byte
  // Names a tensor that was written where it must not; empty if there is none.
  std::string damage(const Tensors& before) const;

 private:
  struct alignas(256) Chunk {
    std::byte bytes[256];
  };
  struct Tensor {
    std::string role;
    Memory memory;           // without its data
    int64_t offset;          // in bytes, of the first element
    std::vector<Chunk> all;  // a chunk on each side is a guard
    std::byte* data() { return reinterpret_cast<std::byte*>(all.data()) + offset; }
    std::span<const std::byte> bytes() const { return std::as_bytes(std::span(all)); }
  };
  void add(const std::string& name, const std::string& role, DType dtype, Shape shape);
  void fill(const std::string& name, Tensor& tensor);
  Scalar element(const std::string& name, DType dtype, const Shape& index);
  bool chance(double share) { return std::bernoulli_distribution(share)(random_); }

  ProblemShape shape_;
  std::map<std::string, Scalar> params_;
  std::map<std::string, Tensor> tensors_;
  std::mt19937_64 random_{7};
  std::vector<int64_t> row_;  // of the list that is being filled
};

struct Run {
  std::string finding;  // the first; empty if none
  std::string wrong;    // how the result differs from the float64 reference; empty if it does not
  bool same = false;    // as the code without a mistake has it, bit for bit
  std::vector<ptx::Report> reports;
};

inline constexpr ptx::AsyncMode kModes[] = {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest};

class Subject {
 public:
  explicit Subject(const SubjectInfo& info);
  const SubjectInfo& info() const { return info_; }
  const GpuCode& code() const { return code_; }
  size_t problems() const { return problems_.size(); }
  // Of the code as it is.
  const Run& right(size_t problem, ptx::AsyncMode mode) const;
  std::unique_ptr<Executable> executable(const std::string& ptx) const;
  Run run(const Executable& executable, size_t problem, ptx::AsyncMode mode) const;

 private:
  struct Problem {
    Tensors inputs;
    std::vector<Tensors> results;  // of the code as it is; none before it has run
    ReferenceResults reference;
    uint64_t most_instructions = uint64_t{1} << 32;
    std::map<ptx::AsyncMode, Run> right;
  };
  Run run(const Executable& executable, const Problem& problem, ptx::AsyncMode mode,
          Tensors& results) const;
  std::string compared(const Problem& problem, Tensors& results) const;

  SubjectInfo info_;
  const KernelEntry& entry_;
  Options options_;
  Kernel kernel_;
  GpuCode code_;
  std::vector<Problem> problems_;
};

}  // namespace kiln::testing
