// Workspaces of calls: how large they may get, and what is wrong with one.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/error.h"
#include "ir/ranges.h"
#include "runtime/call_plan.h"

namespace kiln {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 50;  // more than any machine has

// The first dim without a limit, or param, that a scalar of the top level depends on; empty if
// there is none.
std::string unlimited(const Kernel& kernel, Value value, const Limits& limits) {
  const Op& op = kernel.op(kernel.def(value));
  if (op.code == OpCode::Param) return "param " + op.word("name");
  if (op.code == OpCode::Dim)
    return limits.contains(op.word("name")) ? "" : "dim " + op.word("name");
  for (Value operand : op.operands)
    if (std::string name = unlimited(kernel, operand, limits); !name.empty()) return name;
  return "";
}

// What is known of the scalars of the top level when the dims are within the limits.
Ranges ranges_within(const Signature& signature, const Limits& limits) {
  const Kernel& kernel = signature.kernel();
  for (const auto& [name, limit] : limits) {
    if (!signature.has_dim(name))
      throw UserError(fmt::format("{}: workspace_bytes: there is no dim '{}'", kernel.name, name),
                      "it takes " + signature.text());
    if (limit < 0)
      throw UserError(fmt::format("{}: workspace_bytes: {}: expected a limit of 0 or more, got {}",
                                  kernel.name, name, limit));
  }
  Ranges ranges(kernel);
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Dim) continue;
    if (auto limit = limits.find(op.word("name")); limit != limits.end())
      ranges.narrow(op.result, 0, limit->second);
  }
  return ranges;
}

}  // namespace

uint64_t CallPlan::workspace_bytes(const Limits& limits) const {
  const Kernel& kernel = signature_.kernel();
  Ranges ranges = ranges_within(signature_, limits);
  uint64_t bytes = 0;
  for (OpId id : workspace_ops_) {
    const Op& op = kernel.op(id);
    const Type& type = kernel.type(op.result);
    int64_t elements = 1;
    size_t next = 0;
    std::string missing;
    for (int64_t extent : type.shape) {
      if (extent == kDynamic) {
        const Value operand = op.operands[next++];
        if (missing.empty()) missing = unlimited(kernel, operand, limits);
        extent = std::max<int64_t>(0, ranges.of(operand).high);
      }
      elements =
          extent > 0 && elements > kMostElements / extent ? kMostElements + 1 : elements * extent;
    }
    if (!missing.empty())
      throw UserError(fmt::format("{}: workspace_bytes: {} has no limit", kernel.name, missing),
                      "limits of the dims that the workspace's size depends on");
    if (elements > kMostElements)
      throw UserError(fmt::format("{}: its workspaces are larger than any memory", kernel.name),
                      "smaller limits");
    bytes += aligned(static_cast<uint64_t>(elements) * size_of(type.dtype));
  }
  return bytes;
}

void CallPlan::refuse_workspace(const Workspace& workspace, uint64_t bytes) const {
  const std::string& name = signature_.kernel().name;
  if (!workspace.data)
    throw UserError(fmt::format("{}: workspace: expected {} bytes of the device's memory, got a "
                                "null address",
                                name, workspace.bytes),
                    "Workspace{}, without bytes, leaves it to the device");
  if (workspace.bytes < bytes)
    throw UserError(fmt::format("{}: workspace: expected at least {} bytes, got {}", name, bytes,
                                workspace.bytes),
                    "workspace_bytes says how many calls within limits take");
  throw UserError(fmt::format("{}: workspace: expected an address that is a multiple of {}, got {}",
                              name, kWorkspaceAlignment, workspace.data),
                  "any allocation of a device begins at such a multiple");
}

void CallPlan::check_no_stream(Stream stream, std::string_view device) const {
  if (!stream) return;
  throw UserError(fmt::format("{}: stream: expected null on {}, got {}", signature_.kernel().name,
                              device, stream),
                  "only cuda has streams; a call on other devices runs to the end");
}

}  // namespace kiln
