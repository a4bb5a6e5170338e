// Kernels on inputs that a test chooses, whose results it knows.
#pragma once

#include <catch2/catch.hpp>

#include "ir/interp.h"
#include "passes/pipeline.h"
#include "tests/codegen/harness.h"

namespace kiln::testing {

// Runs the kernel in the interpreter and at every level on what `set` makes of the inputs, and
// lets `look` judge each. Neither may change what it must not.
inline void run_exact(const Kernel& kernel, const std::map<std::string, int64_t>& dims,
                      const std::function<void(RandomBindings&)>& set,
                      const std::function<void(RandomBindings&)>& look) {
  Kernel lowered = kernel;
  if (on_host())
    run_passes(lowered, pipeline_for(Tier::Host), {.verify_each = true, .after_each = {}});
  std::vector<Level> all = {{"interpreter", [](const Kernel& one) -> Run {
                               return
                                   [&one](const Bindings& bindings) { interpret(one, bindings); };
                             }}};
  all.insert(all.end(), levels().begin(), levels().end());
  for (const Level& level : all) {
    INFO(level.name);
    const Run run = level.compile(lowered);
    RandomBindings bindings(kernel, dims);
    if (set) set(bindings);
    run(bindings.bindings());
    CHECK(bindings.damage() == "");
    look(bindings);
  }
}

inline double number(const Scalar& value) {
  return is_float(value.dtype) ? value.f : static_cast<double>(value.i);
}

// Whether every element of a tensor is what it should be; the first that is not fails a check.
inline void check_all(RandomBindings& bindings, const std::string& name, const Shape& shape,
                      const std::function<double(const Shape&)>& expected) {
  Shape index(shape.size(), 0);
  for (int64_t left = count(shape); left > 0; --left) {
    const double got = number(bindings.at(name, index)), right = expected(index);
    if (!(got == right)) {
      INFO(name << str(index));
      CHECK(got == right);
      return;
    }
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace kiln::testing
