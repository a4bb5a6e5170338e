// Rules of the kernel's interface and of structured control flow.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/evaluate_impl.h"
#include "ir/verify_impl.h"
#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kMostInt32 = std::numeric_limits<int32_t>::max();

void require_arguments(const Law& law, const Op& op, size_t expected) {
  for (RegionId region : op.regions) {
    const std::vector<Value>& args = law.kernel.region(region).args;
    if (args.size() != expected)
      law.fail(op, fmt::format("region arguments: expected {}, got {}", expected, args.size()),
               "one index an axis, an axis a loop");
    for (Value arg : args)
      if (law.type(arg) != Type::scalar(I32))
        law.fail(op, fmt::format("region argument: expected i32, got {}", str(law.type(arg))),
                 "indices are i32");
  }
}

void require_stages(const Law& law, const Op& op) {
  if (op.integer("stages") < 0)
    law.fail(op, fmt::format("stages: expected 0 or more, got {}", op.integer("stages")),
             "how many rounds ahead copies are fetched, 2 or 3; 0 and 1: not ahead");
}

void check_tensor(const Law& law, const Op& op) {
  const Type& type = law.type(op.result);
  if (type.space != Space::Global)
    law.fail(op, fmt::format("expected global memory, got {}", str(type)),
             "tiles are made by alloc");
  auto dynamic = std::count(type.shape.begin(), type.shape.end(), kDynamic);
  if (static_cast<size_t>(dynamic) != op.operands.size())
    law.fail(op,
             fmt::format("expected {} extents, one for each ? of {}, got {}", dynamic, str(type),
                         op.operands.size()),
             "dims or arithmetic on them, in the order of the ?");
  for (size_t i = 0; i < op.operands.size(); ++i) law.require_i32(op, i);
  for (int64_t extent : type.shape)
    if (extent < 0 && extent != kDynamic)
      law.fail(op, fmt::format("expected extents of 0 or more, got {}", str(type)),
               "? for an extent known at launch");
}

void check_launch(const Law& law, const Op& op) {
  if (op.operands.empty() || op.operands.size() > 3)
    law.fail(op, fmt::format("expected 1 to 3 extents, got {}", op.operands.size()),
             "make one extent of several, and take its index apart with / and %");
  for (size_t i = 0; i < op.operands.size(); ++i) law.require_i32(op, i);
  const int64_t panel = op.integer("rasterize");
  if (panel < 0 || panel > kMostInt32)
    law.fail(op, fmt::format("rasterize: expected 0 to {}, got {}", kMostInt32, panel),
             "the width of a panel of blocks, 8 for example; 0 leaves their order as it is");
  require_arguments(law, op, op.operands.size());
}

void check_for(const Law& law, const Op& op) {
  static constexpr const char* kNames[] = {"begin", "end", "step"};
  for (size_t i = 0; i < 3; ++i) law.require_i32(op, i);
  for (size_t i = 0; i < 3; ++i)
    if (op.word("kind") == "unroll" && !constant_int(law.kernel, op.operands[i]))
      law.fail(op,
               fmt::format("unroll needs constant bounds; '{}' is known only when the kernel "
                           "runs",
                           kNames[i]),
               "use serial");
  auto step = constant_int(law.kernel, op.operands[2]);
  if (step && *step <= 0)
    law.fail(op, fmt::format("expected a step above 0, got {}", *step),
             "to count down, index with end - 1 - i");
  require_stages(law, op);
  require_arguments(law, op, 1);
}

void check_selected(const Law& law, const Op& op) {
  const Type& row = law.type(op.operands[0]);
  auto units = std::count(row.shape.begin(), row.shape.end(), 1);
  if (row.rank() - units > 1)
    law.fail(op, fmt::format("expected a row with one axis that is not 1, got {}", str(row)),
             "slice it so that the other axes have extent 1");
  if (row.dtype != Bool && row.dtype != I8 && row.dtype != I32)
    law.fail(op,
             fmt::format("expected a row of bool or i8 (a mask) or i32 (a list), got {}", str(row)),
             "copy it to a shared tile of one of these, which converts");
  if (row.space == Space::Fragment)
    law.fail(op, fmt::format("expected a row in global or shared memory, got {}", str(row)),
             "copy it to a shared tile first");
  for (size_t i = 1; i < op.operands.size(); ++i)
    if (op.operands[i]) law.require_i32(op, i);
  if (op.operand(2) && row.dtype != I32)
    law.fail(op, fmt::format("'count' goes with a list of i32; the row is {}", str(row)),
             "use 'limit' for a mask");
  Value base = base_of(law.kernel, op.operands[0]);
  for (RegionId region : op.regions)
    walk(law.kernel, region, [&](OpId id) {
      for (const Access& access : accesses(law.kernel, law.kernel.op(id)))
        if (access.base == base && access.effect != Effect::Read)
          law.fail(law.kernel.op(id), "writes the row that the selected loop around it reads",
                   "copy the row first");
    });
  require_stages(law, op);
  require_arguments(law, op, 1);
}

// What to write instead of an op that a parallel does not hold.
std::string instead_in_parallel(const Law& law, const Op& op) {
  const std::string out = "move it out of the parallel";
  switch (op.code) {
    case OpCode::If: return "use select for a condition";
    case OpCode::For:
    case OpCode::Selected:
    case OpCode::Loop: return out + ", or repeat what is inside with a C++ loop over C++ numbers";
    case OpCode::Alloc: break;
    default: return out;
  }
  const bool variable = op.result && law.type(op.result).shape.empty();
  return out + "; alloc_local gives each point its own" +
         (variable ? ", and t(i) += x adds to an element" : "");
}

void check_parallel(const Law& law, const Op& op) {
  constexpr int64_t kMost = int64_t{1} << 31;
  const Shape& extents = op.ints("extents");
  int64_t points = 1;
  for (int64_t extent : extents) {
    if (extent < 1)
      law.fail(op, fmt::format("expected extents of 1 or more, got {}", str(extents)),
               "leave the loop out where there is nothing to do");
    if (extent > kMost / points)
      law.fail(op, fmt::format("expected at most {} points, got {}", kMost, str(extents)),
               "a parallel over a tile, in a loop over tiles");
    points *= extent;
  }
  require_arguments(law, op, extents.size());
  law.require_layout(op, extents, Space::Fragment);
}

}  // namespace

void check_interface(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::Dim:
      if (law.type(op.result).dtype != I32)
        law.fail(op, fmt::format("expected i32, got {}", str(law.type(op.result))),
                 "dims are i32; a param may be of any dtype");
      return;
    case OpCode::Tensor: return check_tensor(law, op);
    case OpCode::Launch: return check_launch(law, op);
    default: return;
  }
}

void check_in_parallel(const Law& law, const Op& op) {
  if (op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Atomic) return;
  if (is_scalar_op(op.code) || op.code == OpCode::DeviceAssert) return;
  const bool tile = op.code == OpCode::Alloc && op.result;
  if (tile && law.type(op.result).space == Space::Local) return;
  law.fail(op, "stands inside a parallel, which holds scalar ops, loads, stores and atomics only",
           instead_in_parallel(law, op));
}

void check_structure(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::For: return check_for(law, op);
    case OpCode::Selected: return check_selected(law, op);
    case OpCode::Parallel: return check_parallel(law, op);
    case OpCode::Loop: return require_arguments(law, op, 0);
    default: break;
  }
  if (law.type(op.operands[0]) != Type::scalar(Bool))
    law.fail(op, fmt::format("condition: expected bool, got {}", str(law.type(op.operands[0]))),
             "compare it with something");
  require_arguments(law, op, 0);
}

}  // namespace kiln
