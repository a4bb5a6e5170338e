// What the examples share: options, random tensors that lie in NaN, and the check of a result.
#pragma once

#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "dsl/dsl.h"
#include "examples/examples.h"
#include "runtime/runtime.h"

namespace examples {

// A tensor in a device's memory and its elements as doubles. It lies in a larger box whose other
// bytes are 0xFF, NaN in every float type: the kernel must neither use nor change them.
class Data {
 public:
  Data(kiln::Device& device, kiln::DType dtype, kiln::Shape shape, int64_t beyond);
  ~Data();
  Data(Data&& other) noexcept;
  Data& operator=(Data&&) = delete;

  operator const kiln::Memory&() const { return memory_; }  // as an argument of a kernel
  const kiln::Shape& shape() const { return memory_.shape; }
  double operator()(std::initializer_list<int64_t> index) const;  // as last set or fetched
  const std::vector<double>& values() const { return values_; }   // in row-major order

  void set(const std::vector<double>& values);  // rounded to the dtype
  bool fetch();                                 // from the device; false if what is beyond changed

 private:
  std::vector<size_t> offsets() const;  // of the elements in box_, in bytes

  kiln::Device& device_;
  kiln::Memory memory_;
  void* allocation_;
  std::vector<std::byte> box_;
  std::vector<double> values_;
};

// One run of an example. Its options are asked for first, each with its default, then its data.
class Example {
 public:
  // argv: --device NAME, --seed N, --beyond N (elements beyond every end) and the example's own.
  Example(std::string name, int argc, char** argv);

  int64_t number(const std::string& option, int64_t otherwise);
  kiln::DType dtype(const std::vector<kiln::DType>& legal);  // --dtype; the first if not given
  bool flag(const std::string& option);                      // is --option there?

  Data random(kiln::DType dtype, kiln::Shape shape, double low = -1, double high = 1);
  Data tensor(kiln::DType dtype, kiln::Shape shape);  // to be written: NaN
  double uniform(double low, double high);            // a random number

  // UserError if the command line has an option that was not asked for.
  void run(const kiln::Kernel& kernel, const kiln::Arguments& arguments);
  // Each |x - r| <= tolerance (1 + |r|); NaN and infinities must be where the reference has them.
  void check(Data& result, const std::vector<double>& reference, double tolerance);
  // Prints "NAME on DEVICE: N elements, 0 wrong"; the program's exit status.
  int finish() const;

 private:
  std::string take(const std::string& option, const std::string& otherwise);

  std::string name_;
  std::map<std::string, std::string> given_;  // that nothing has asked for yet
  std::string asked_;                         // all options so far
  std::mt19937_64 random_;
  kiln::Device* device_;
  int64_t beyond_;
  int64_t elements_ = 0, wrong_ = 0;
};

// Of a result in that dtype.
double tolerance(kiln::DType dtype);

}  // namespace examples
