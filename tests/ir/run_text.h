// Runs a kernel's text in the interpreter on small tensors given as numbers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/error.h"
#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/verify.h"

namespace kiln::test {

using Numbers = std::vector<double>;

class Run {
 public:
  // Not `verified`: breaks a rule that the verifier would find before the interpreter does.
  explicit Run(const std::string& text, bool verified = true) : kernel_(parse(text, "test.tile")) {
    if (verified) verify(kernel_);
  }
  Run(Run&&) = default;  // the bindings point into bytes_, whose nodes stay where they are

  // A contiguous tensor; zeros if no values are given.
  Run& tensor(const std::string& name, DType dtype, Shape shape, const Numbers& values = {}) {
    std::vector<std::byte>& bytes = bytes_[name];
    bytes.assign(static_cast<size_t>(count(shape)) * size_of(dtype) + 1, std::byte{0});
    for (size_t i = 0; i < values.size(); ++i)
      store_element(convert(Scalar::of_float(F64, values[i]), dtype),
                    bytes.data() + i * size_of(dtype));
    bindings.tensors[name] = Memory::contiguous(bytes.data(), dtype, std::move(shape));
    return *this;
  }
  Run& dim(const std::string& name, int64_t size) {
    bindings.dims[name] = size;
    return *this;
  }
  Run& param(const std::string& name, const Scalar& value) {
    bindings.params[name] = value;
    return *this;
  }
  Run& operator()(const InterpOptions& options = {}) {
    interpret(kernel_, bindings, options);
    return *this;
  }
  Numbers values(const std::string& name) const {
    const Memory& memory = bindings.tensors.at(name);
    Numbers numbers;
    for (int64_t i = 0; i < count(memory.shape); ++i) {
      Scalar value = load_element(memory.dtype, static_cast<const std::byte*>(memory.data) +
                                                    static_cast<size_t>(i) * size_of(memory.dtype));
      numbers.push_back(is_float(memory.dtype) ? value.f : static_cast<double>(value.i));
    }
    return numbers;
  }
  // The message of the UserError that running it gives, with its line in front.
  std::string error(const InterpOptions& options = {}) {
    try {
      (*this)(options);
    } catch (const UserError& error) {
      return std::to_string(error.loc().line) + ": " + error.message();
    }
    return "no error";
  }

  const Kernel& kernel() const { return kernel_; }
  Bindings bindings;

 private:
  Kernel kernel_;
  std::map<std::string, std::vector<std::byte>> bytes_;
};

// A kernel of one block. The interface comes first, then the body.
inline std::string one_block(const std::string& interface, const std::string& body) {
  return "kernel @test {\n" + interface + "\n%one = const {value = 1} : i32\n" +
         "launch %one do |%bx: i32| {\n" + "%c0 = const {value = 0} : i32\n" +
         "%c1 = const {value = 1} : i32\n" + body + "\n}\n}\n";
}

}  // namespace kiln::test
