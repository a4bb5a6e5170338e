// kiln explain --conflicts: a small problem in the emulator, whose counters say how each line used
// the banks of shared memory and the sectors of global memory.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "ir/canon.h"
#include "ir/error.h"
#include "runtime/emulator_device.h"
#include "runtime/explain.h"
#include "runtime/launch.h"
#include "tools/kiln/explain_parts.h"

namespace kiln::cli {
namespace {

constexpr int64_t kEdge = 512;

// Small, but of several rounds: an extent that is the last or the one before in all tensors is one
// of elements, another (batch, heads) counts the same again.
std::map<std::string, int64_t> small_dims(const Signature& signature) {
  std::map<std::string, int64_t> dims;
  for (const std::string& dim : signature.dims()) dims[dim] = kEdge;
  for (const TensorInfo& tensor : signature.tensors())
    for (size_t axis = 0; axis + 2 < tensor.axes.size(); ++axis)
      if (!tensor.axes[axis].dim.empty()) dims[tensor.axes[axis].dim] = 1;
  return dims;
}

// Ones; integers count along the last axis, as lists of indices do.
Array contents(const TensorInfo& tensor, const Shape& shape) {
  Array array(tensor.dtype, shape);
  const bool list = !is_float(tensor.dtype) && size_of(tensor.dtype) > 1 && !shape.empty();
  for (int64_t i = 0; i < array.size(); ++i)
    array.set(i, list ? static_cast<double>(i % shape.back()) : 1);
  return array;
}

Shape shape_of(const TensorInfo& tensor, const std::map<std::string, int64_t>& dims) {
  Shape shape;
  for (const AxisInfo& axis : tensor.axes) {
    if (axis.extent == kDynamic && axis.dim.empty())
      throw UserError(
          fmt::format("--conflicts: {} has an extent that is computed, {}", tensor.name, axis.text),
          "run the kernel with --device emulator --profile");
    shape.push_back(axis.dim.empty() ? axis.extent : dims.at(axis.dim));
  }
  return shape;
}

// Of one line of the source.
struct Traffic {
  uint64_t shared = 0, wavefronts = 0, conflicts = 0;  // instructions of warps, …
  uint64_t global = 0, sectors = 0;
};

void print_traffic(const std::vector<ptx::Report>& reports) {
  std::map<std::pair<std::string, int>, Traffic> lines;
  uint64_t conflicts = 0;
  for (const ptx::Report& report : reports) {
    conflicts += report.counters.bank_conflicts;
    for (const ptx::LineProfile& line : report.lines) {
      if (line.wavefronts + line.sectors == 0) continue;
      Traffic& sum = lines[{line.file, line.file.empty() ? line.ptx_line : line.line}];
      if (line.wavefronts > 0) sum.shared += line.warps;
      if (line.sectors > 0) sum.global += line.warps;
      sum.wavefronts += line.wavefronts;
      sum.conflicts += line.conflicts;
      sum.sectors += line.sectors;
    }
  }
  fmt::print("    {:>10} {:>10} {:>10} {:>10} {:>10}\n", "shared", "", "", "global", "sectors");
  fmt::print("    {:>10} {:>10} {:>10} {:>10} {:>10}  line\n", "accesses", "wavefronts",
             "conflicts", "accesses", "each");
  for (const auto& [at, sum] : lines) {
    const double each =
        sum.global ? static_cast<double>(sum.sectors) / static_cast<double>(sum.global) : 0;
    fmt::print("    {:>10} {:>10} {:>10} {:>10} {:>10.3g}  {}\n", sum.shared, sum.wavefronts,
               sum.conflicts, sum.global, each,
               at.first.empty() ? fmt::format("PTX line {}", at.second)
                                : place({intern(at.first), at.second}));
  }
  fmt::print("    {} bank conflict{} in all\n", conflicts, conflicts == 1 ? "" : "s");
}

}  // namespace

void print_conflicts(const std::string& target, const NamedTexts& settings, const Kernel& kernel,
                     const std::string& arch) {
  const Signature signature(std::make_shared<const Kernel>(canonical(kernel)));
  Arguments arguments;
  if (!is_tile_file(target)) {
    const KernelEntry& entry = kernel_named(underscored(target));
    for (const auto& [name, value] : entry.default_params(entry.with_defaults(settings)))
      arguments.param(name, value);
  }
  for (const ParamInfo& param : signature.params())
    if (!arguments.params().contains(param.name)) arguments.param(param.name, 1);
  const std::map<std::string, int64_t> dims = small_dims(signature);
  std::map<std::string, Array> arrays;
  for (const TensorInfo& tensor : signature.tensors())
    if (tensor.role != Role::Output)
      arguments.tensor(tensor.name, arrays[tensor.name] = contents(tensor, shape_of(tensor, dims)));
  for (const std::string& dim : signature.dims()) {
    const auto has = [&](const TensorInfo& tensor) {
      return tensor.role != Role::Output &&
             std::any_of(tensor.axes.begin(), tensor.axes.end(),
                         [&](const AxisInfo& axis) { return axis.dim == dim; });
    };
    if (std::none_of(signature.tensors().begin(), signature.tensors().end(), has))
      arguments.dim(dim, dims.at(dim));
  }
  for (auto& [name, array] : make_outputs(signature, arguments))
    arguments.tensor(name, arrays[name] = std::move(array));

  std::vector<std::string> sizes;
  for (const auto& [name, size] : dims) sizes.push_back(fmt::format("{} {}", name, size));
  fmt::print("\n  in the emulator, with {}\n", fmt::join(sizes, ", "));
  const auto executable = emulator_device(arch).compile(signature.kernel());
  const auto reports = emulate(*executable, bind(signature, arguments), emulator_options());
  print_traffic(reports);
  for (const ptx::Report& report : reports)
    for (const ptx::Finding& finding : report.findings) fmt::print("{}\n", finding.text());
}

}  // namespace kiln::cli
