// The reference interpreter: slow, obvious, and the definition of what every op means.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "ir/memory.h"

namespace kiln {

// Values of the kernel's interface by name. Workspaces are not bound: the interpreter makes them.
struct Bindings {
  std::map<std::string, Memory> tensors;
  std::map<std::string, int64_t> dims;
  std::map<std::string, Scalar> params;
};

struct InterpOptions {
  bool reverse_blocks = false;    // blocks in descending order
  bool reverse_selected = false;  // unordered `selected` loops run backwards
  bool reverse_agents = false;    // the last of the roles that can go on does, else the first

  // When asynchronous ops take effect: when issued; when the program waits for them; or at a random
  // moment between, the roles then taking turns at random too. A softmax_step that may guess does
  // so never, always, or at random.
  enum class Async { Eager, Lazy, Random };
  Async async = Async::Eager;
  uint64_t seed = 1;  // of Random
};

// Runs every launch of a verified kernel. Checks what can only be seen while running, each a
// UserError at the op: an element read that was never written, two iterations of a `parallel` that
// touch one element, a softmax scale that is not finite and positive, a step that is not positive;
// storage that an asynchronous op still uses, a slot of a channel that another has, a slot or token
// forgotten, roles that all wait.
void interpret(const Kernel& kernel, const Bindings& bindings, const InterpOptions& options = {});

// The host side of a launch: evaluates the scalars of the top-level region.
class TopLevel {
 public:
  TopLevel(const Kernel& kernel, const std::map<std::string, int64_t>& dims,
           const std::map<std::string, Scalar>& params);
  const Scalar& scalar(Value value) const;             // any top-level scalar
  std::vector<int64_t> shape(const Op& tensor) const;  // extents of a `tensor` op
  std::vector<int64_t> grid(const Op& launch) const;   // always three, missing ones 1

 private:
  const Kernel& kernel_;
  std::map<uint32_t, Scalar> values_;
};

// The value of one pure scalar op on constant operands: shared by the interpreter, the top level
// and constant folding.
Scalar evaluate(const Kernel& kernel, const Op& op, const std::vector<Scalar>& operands);

}  // namespace kiln
