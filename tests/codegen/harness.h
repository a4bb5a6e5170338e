// Runs kernels as the code generators make them, and compares with the interpreter: on the host
// tier for several CPU levels, or on the device that KILN_TEST_DEVICE names.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/host_impl.h"
#include "ir/builder.h"
#include "tests/support/random_bindings.h"

namespace kiln::testing {

using Run = std::function<void(const Bindings&)>;

struct Level {
  std::string name;  // "znver5", "cuda"
  std::function<Run(const Kernel&)> compile;
};

// What this machine can run: the levels of CPU code (its own, plain x86-64 with SSE2, x86-64-v3
// with AVX2), or the one device.
const std::vector<Level>& levels();
bool on_host();  // the former

void run_host(const Kernel& kernel, const Bindings& bindings, const HostObject& object);

struct Check {
  std::map<std::string, int64_t> dims;
  std::map<std::string, Scalar> params;
  RandomOptions options;
  std::optional<double> tolerance;  // none: bit for bit
};
// Verifies, interprets, runs at every level; the first difference or damage, empty if none.
std::string check_program(const Kernel& kernel, const std::vector<Check>& checks);
std::string check_program(const Kernel& kernel, const Check& check = {});
std::string check_program(const std::string& text, const Check& check = {});
// The same after the host tier's passes: of ops that those expand.
std::string check_lowered(const Kernel& kernel, const std::vector<Check>& checks);

// A kernel by the builder: tensors and one launch.
class Program {
 public:
  explicit Program(std::string name) : kernel(std::move(name)), b(kernel) {}

  Kernel kernel;
  Builder b;

  Value tensor(const std::string& name, DType dtype, Shape shape, const char* role = "input",
               std::vector<Value> extents = {});
  Value dim(const std::string& name);
  template <class Body>
  void launch(std::vector<Value> extents, Body&& body) {
    const size_t axes = extents.size();
    RegionId region = b.add_region(b.emit(OpCode::Launch, std::move(extents)));
    std::vector<Value> index;
    for (size_t i = 0; i < axes; ++i)
      index.push_back(kernel.add_argument(region, Type::scalar(I32)));
    Builder::Scope scope(b, region);
    body(std::span<const Value>(index));
  }
  template <class Body>
  void launch(Body&& body) {
    launch({b.constant(I32, 1)}, [&](std::span<const Value>) { body(); });
  }
  Value index(int64_t value) { return b.constant(I32, value); }
  void copy(Value from, Value to, double pad = 0) {
    Attrs attrs;
    attrs.set("pad", pad);
    b.emit(OpCode::Copy, {from, to}, attrs);
  }
};

uint64_t random_seed();  // of this run: from KILN_SEED, else the time; printed once

}  // namespace kiln::testing
