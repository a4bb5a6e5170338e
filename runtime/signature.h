// A kernel's interface as its callers see it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

enum class Role : uint8_t { Input, Output, InOut };

// An axis of a tensor: a constant, a dim, or computed from dims and params.
struct AxisInfo {
  int64_t extent = kDynamic;  // if constant
  std::string dim;            // its name, if a dim
  Value value;                // if not constant
  std::string text;           // "64", "seq", "ceildiv(seq, 64)"
};

struct TensorInfo {
  std::string name;
  Role role;
  DType dtype;
  std::vector<AxisInfo> axes;
  std::string text() const;  // "f16 [batch, heads, seq, 64]"
  bool written() const { return role != Role::Input; }
};

struct ParamInfo {
  std::string name;
  DType dtype;
};

// What a kernel expects, in the order of the kernel. Workspaces are not the callers' business.
class Signature {
 public:
  explicit Signature(std::shared_ptr<const Kernel> kernel);

  const Kernel& kernel() const { return *kernel_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<std::string>& dims() const { return dims_; }
  const std::vector<ParamInfo>& params() const { return params_; }
  bool has_dim(std::string_view name) const;
  const TensorInfo* tensor(std::string_view name) const;  // null if there is none
  const ParamInfo* param(std::string_view name) const;
  // "input q f16 [seq, 64]; output o f16 [seq, 64]; dim seq; param scale f32"
  std::string text() const;

 private:
  void add_tensor(const Op& op);

  std::shared_ptr<const Kernel> kernel_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::string> dims_;
  std::vector<ParamInfo> params_;
};

// A scalar of the top level as a person would write it: "seq", "ceildiv(seq, 64)".
std::string expression(const Kernel& kernel, Value value);

}  // namespace kiln
