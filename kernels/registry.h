// The library by name: what tools can build, run on files, check and measure without knowing it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/interp.h"
#include "ir/kernel.h"

namespace kiln {

// A compile-time option of a kernel; values are text, as on a command line.
struct OptionInfo {
  std::string name;
  std::string default_value;
  std::string legal;  // for people and messages: "f16, bf16 or f32", "16 to 256, multiples of 16"
  std::string doc;
};

// A full set of options: every one of the kernel's has a value.
class Options {
 public:
  explicit Options(std::map<std::string, std::string> values) : values_(std::move(values)) {}
  const std::string& text(std::string_view name) const;
  // UserError naming the option and the legal values if the text is not one.
  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t low, int64_t high) const;
  bool boolean(std::string_view name) const;  // true, false, 1, 0
  DType dtype(std::string_view name, std::initializer_list<DType> legal) const;
  size_t choice(std::string_view name, std::span<const std::string_view> words) const;
  size_t choice(std::string_view name, std::initializer_list<std::string_view> words) const {
    return choice(name, std::span(words.begin(), words.size()));
  }

 private:
  std::map<std::string, std::string> values_;
};

struct Work {
  double flops = 0, bytes = 0;
};
// Outputs by name, in float64 and row-major order.
using ReferenceResults = std::map<std::string, std::vector<double>>;

// Of a call by name: a tensor, if it is given; and the bytes of one.
std::optional<Memory> tensor_of(const Bindings& bindings, const char* name);
double bytes_of(const Memory& memory);

struct KernelEntry {
  std::string name;
  std::string summary;
  std::vector<OptionInfo> options;
  // The settings that are measured and tested one by one, those of `kiln prebuild`; options that
  // one leaves out have their defaults.
  std::vector<std::map<std::string, std::string>> shipped =
      std::vector<std::map<std::string, std::string>>(1);
  // `target` is a Device's target(): what the options leave open is chosen for it.
  std::function<Kernel(const Options&, std::string_view target)> build;
  // Params that a caller may leave out.
  std::function<std::map<std::string, Scalar>(const Options&)> default_params;
  // What a launch must satisfy beyond its signature; UserError.
  std::function<void(const Options&, const Bindings&)> check;
  std::function<ReferenceResults(const Options&, const Bindings&)> reference;
  std::function<Work(const Options&, const Bindings&)> work;

  // The given options over the defaults. UserError on a name the kernel does not have.
  Options with_defaults(const std::map<std::string, std::string>& given) const;
  bool has_option(std::string_view name) const;
};

const std::vector<KernelEntry>& kernel_registry();
const KernelEntry& kernel_named(std::string_view name);  // UserError listing the names

}  // namespace kiln
