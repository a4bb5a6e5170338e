// Binding a kernel's arguments: everything that can be wrong with a call is found here.
#pragma once

#include <concepts>
#include <map>
#include <string>
#include <vector>

#include "ir/interp.h"
#include "runtime/array.h"
#include "runtime/signature.h"

namespace kiln {

// Arguments by name. Dims are needed only where no tensor's extent tells them.
class Arguments {
 public:
  Arguments& tensor(const std::string& name, Memory memory);
  Arguments& tensor(const std::string& name, Array& array) { return tensor(name, array.view()); }
  Arguments& dim(const std::string& name, int64_t value);
  Arguments& param(const std::string& name, Scalar value);
  template <class T>
  requires std::integral<T> || std::floating_point<T> Arguments& param(const std::string& name,
                                                                       T value) {
    if constexpr (std::floating_point<T>)
      return param(name, Scalar::of_float(F64, value));
    else
      return param(
          name, Scalar::of_int(std::unsigned_integral<T> ? U64 : I64, static_cast<int64_t>(value)));
  }

  const std::map<std::string, Memory>& tensors() const { return tensors_; }
  const std::map<std::string, int64_t>& dims() const { return dims_; }
  const std::map<std::string, Scalar>& params() const { return params_; }

 private:
  std::map<std::string, Memory> tensors_;
  std::map<std::string, int64_t> dims_;
  std::map<std::string, Scalar> params_;
};

// Infers the dims, converts the params, checks all. UserError naming the kernel, the argument, what
// was expected and what came. Only the tensors' descriptions are looked at, never their elements.
Bindings bind(const Signature& signature, const Arguments& arguments);

// Zeroed arrays for the outputs (not inouts) that `arguments` lacks, shaped by what it has.
std::map<std::string, Array> make_outputs(const Signature& signature, const Arguments& arguments);

}  // namespace kiln
