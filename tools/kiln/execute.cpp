#include "tools/kiln/execute.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "ir/canon.h"
#include "ir/error.h"
#include "tools/kiln/device_array.h"
#include "tools/kiln/progress.h"
#include "tools/npy/npy.h"

namespace kiln::cli {
namespace {

const TensorInfo& tensor_named(const Signature& signature, const char* option,
                               const std::string& name) {
  if (const TensorInfo* tensor = signature.tensor(name)) return *tensor;
  throw UserError(fmt::format("{} {}: the kernel has no tensor of that name", option, name),
                  signature.text());
}

std::map<std::string, Array> load_inputs(const Signature& signature, const NamedTexts& paths) {
  Progress progress("reading");
  std::map<std::string, Array> arrays;
  for (const auto& [name, path] : paths) {
    const TensorInfo& tensor = tensor_named(signature, "--in", name);
    if (tensor.role == Role::Output)
      throw UserError(fmt::format("--in {}: it is an output", name), signature.text());
    arrays.emplace(name, load_as(name, path, tensor.dtype));
  }
  return arrays;
}

void check_outputs(const Signature& signature, const NamedTexts& paths) {
  for (const auto& [name, path] : paths)
    if (!tensor_named(signature, "--out", name).written())
      throw UserError(fmt::format("--out {}: it is an input", name), signature.text());
  check_output_paths(paths);
}

}  // namespace

void run_on_files(const Kernel& kernel, const FileRun& files, Arguments arguments,
                  const std::function<void(const Bindings&)>& check) {
  Device& where = files.device;
  Signature signature(std::make_shared<const Kernel>(canonical(kernel)));
  check_outputs(signature, files.outputs);
  std::map<std::string, Array> arrays = load_inputs(signature, files.inputs);
  for (auto& [name, array] : arrays) arguments.tensor(name, array);
  for (auto& [name, array] : make_outputs(signature, arguments)) {
    arrays[name] = std::move(array);
    arguments.tensor(name, arrays[name]);
  }
  Bindings bindings = bind(signature, arguments);
  if (check) check(bindings);

  std::map<std::string, DeviceArray> on_device;
  for (const auto& [name, array] : arrays) {
    auto it = on_device.emplace(name, DeviceArray(where, array.view())).first;
    bindings.tensors[name] = it->second.memory();
  }
  std::unique_ptr<Executable> executable = [&] {
    Progress progress("compiling");
    return where.compile(signature.kernel());
  }();
  auto start = std::chrono::steady_clock::now();
  {
    Progress progress("running");
    if (files.emulator.given())
      run_emulated(*executable, bindings, files.emulator);
    else
      executable->run(bindings);
    where.synchronize();
  }
  fmt::print(stderr, "note: {} ran on {} in {:.3g} ms\n", kernel.name, where.name(),
             milliseconds_since(start));
  Progress progress("writing");
  for (const TensorInfo& tensor : signature.tensors()) {
    if (!tensor.written()) continue;
    auto path = files.outputs.find(tensor.name);
    if (path == files.outputs.end()) {
      fmt::print(stderr, "note: output {} is not written: no --out {}=FILE\n", tensor.name,
                 tensor.name);
      continue;
    }
    Array& array = arrays.at(tensor.name);
    on_device.at(tensor.name).download(array);
    write_npy(path->second, array);
    fmt::print("{}: {} {} {}\n", path->second, tensor.name, name(array.dtype()),
               str(array.shape()));
  }
}

}  // namespace kiln::cli
