// The handle of every library kernel: a Function that takes the kernel's own struct of arguments.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "ir/error.h"
#include "runtime/compile.h"

namespace kiln {

// What a configuration's `target` makes of the device that the caller named: itself if the target
// is empty or its own; else the same GPU or emulator with code for that architecture. UserError
// naming the target if the device cannot run it.
Device& device_for(Device& device, std::string_view target);

// At most N values.
template <class T, size_t N>
struct UpTo {
  std::array<T, N> values = {};
  size_t count = N;
  operator std::span<const T>() const { return {values.data(), count}; }
};

// The scalars of a call: params in the signature's order, and the dims that no tensor tells.
template <size_t Params, size_t Dims = 0>
struct CallScalars {
  UpTo<Scalar, Params> params = {};
  UpTo<int64_t, Dims> dims = {};
};

// `Interface` says what the kernel takes: types Config, Args and Limits; kTensors, the names of all
// tensors that a configuration may have; kernel(config), tensors(args) in the order of the names
// (null: not given), scalars(config, args), check(config, args) of what the signature does not say,
// dims(limits). Where a caller may leave out axes: in_full(config, args), the arguments with them.
template <class Interface>
class LibraryFunction : public Function {
 public:
  using Config = typename Interface::Config;
  using Args = typename Interface::Args;
  using Limits = typename Interface::Limits;

  LibraryFunction() = default;  // released
  // Compiles, or loads what was compiled before. `config` is complete.
  LibraryFunction(Device& device, const Config& config)
      : Function(compile(device, Interface::kernel(config))), config_(config) {
    for (const TensorInfo& tensor : signature().tensors()) {
      const auto& names = Interface::kTensors;
      const auto found = std::find(names.begin(), names.end(), tensor.name);
      if (found == names.end()) throw InternalError("no argument for tensor " + tensor.name);
      order_[count_++] = static_cast<size_t>(found - names.begin());
    }
  }

  const Config& config() const { return config_; }

  // Checks and launches (runtime/function.h); allocates nothing on cuda.
  void operator()(const Args& args, Stream stream, const Workspace& workspace = {}) const {
    executable();  // of a handle that is not released
    const Args& full = in_full(args);
    Interface::check(config_, full);
    const auto given = Interface::tensors(full);
    Tensors ordered;
    for (size_t i = 0; i < count_; ++i) ordered[i] = given[order_[i]];
    const auto scalars = Interface::scalars(config_, full);
    Function::operator()(
        {.tensors = {ordered.data(), count_}, .params = scalars.params, .dims = scalars.dims},
        stream, workspace);
  }
  // On no stream of the caller's, to the end. Overlapping tensors are found too.
  void operator()(const Args& args) const { executable()->run(bind(args)); }

  Bindings bind(const Args& args) const {  // checked; allocates
    const Signature& expected = signature();
    const Args& full = in_full(args);
    Interface::check(config_, full);
    const auto given = Interface::tensors(full);
    const auto scalars = Interface::scalars(config_, full);
    const std::span<const Scalar> params = scalars.params;
    const std::span<const int64_t> dims = scalars.dims;
    Arguments arguments;
    for (size_t i = 0; i < given.size(); ++i)
      if (given[i]) arguments.tensor(std::string(Interface::kTensors[i]), *given[i]);
    for (size_t i = 0; i < params.size(); ++i)
      arguments.param(expected.params()[i].name, params[i]);
    for (size_t i = 0; i < dims.size(); ++i)
      arguments.dim(executable()->plan().free_dims()[i], dims[i]);
    return Function::bind(arguments);
  }

  // Bytes of workspace that no call within the limits exceeds.
  uint64_t workspace_bytes(const Limits& limits) const {
    kiln::Limits dims = Interface::dims(limits);
    std::erase_if(dims, [&](const auto& dim) { return !signature().has_dim(dim.first); });
    return Function::workspace_bytes(dims);
  }

 private:
  const Args& in_full(const Args& args) const {
    if constexpr (requires { Interface::in_full(config_, args); })
      return Interface::in_full(config_, args);
    else
      return args;
  }
  using Tensors = std::array<const Memory*, Interface::kTensors.size()>;
  Config config_;
  std::array<size_t, Interface::kTensors.size()> order_ = {};  // of the signature, among the names
  size_t count_ = 0;
};

}  // namespace kiln
