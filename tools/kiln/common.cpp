#include "tools/kiln/common.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "ir/canon.h"
#include "ir/error.h"
#include "ir/parse.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "tools/npy/file.h"
#include "tools/npy/npy.h"

namespace kiln::cli {

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

NamedTexts named(const char* option, const std::vector<std::string>& texts) {
  NamedTexts out;
  for (const std::string& text : texts) {
    size_t equals = text.find('=');
    if (equals == text.npos || equals == 0)
      throw UserError(fmt::format("{}: expected name=value, got '{}'", option, text));
    std::string name = underscored(text.substr(0, equals));
    if (!out.emplace(name, text.substr(equals + 1)).second)
      throw UserError(fmt::format("{}: '{}' twice", option, name));
  }
  return out;
}

void add_device_options(CLI::App& command, DeviceChoice& choice) {
  command
      .add_option("--device", choice.device,
                  "where to run; `kiln devices` lists them. A GPU if there is one, else host")
      ->type_name("NAME");
  command
      .add_option("--arch", choice.arch,
                  "the architecture that code for cuda or emulator is made for, as sm_80")
      ->type_name("SM");
}

Device& chosen_device(const DeviceChoice& choice) {
  if (!choice.device.empty()) return device(choice.device, choice.arch);
  const auto gpu = cuda::usable_gpu();
  if (!gpu) return device("host", choice.arch);
  Device& chosen = device("cuda", choice.arch);
  fmt::print(stderr, "note: on {}, {}; --device host is the CPU\n", chosen.name(), gpu->name);
  return chosen;
}

void add_without_option(CLI::App& command) {
  command
      .add_option_function<std::vector<std::string>>(
          "--without",
          [](const std::vector<std::string>& names) {
            setenv("KILN_WITHOUT", passes_left_out(names).c_str(), 1);
          },
          "passes of the pipeline to leave out, which changes no result")
      ->type_name("A,B,…")
      ->delimiter(',')
      ->allow_extra_args(false);
}

CLI::Validator not_negative() {
  return CLI::Validator(
      [](std::string& text) {
        bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
        return digits ? "" : "expected a whole number from 0 on, got '" + text + "'";
      },
      "");
}

void check_output_paths(const NamedTexts& paths) {
  std::map<std::string, std::string> files;  // to what writes them
  for (const auto& [what, path] : paths) {
    require_writable(path);
    std::error_code none;
    if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none))
      continue;
    auto [it, fresh] = files.emplace(std::filesystem::weakly_canonical(path, none).string(), what);
    if (!fresh)
      throw UserError(
          fmt::format("{}: {} and {} are to be written to one file", path, it->second, what));
  }
}

bool is_tile_file(const std::string& target) {
  return target.ends_with(".tile");
}

Kernel load_tile(const std::string& path) {
  Kernel kernel = parse(read_file(path), path);
  verify(kernel);
  return kernel;
}

Kernel load_kernel(const std::string& target, const NamedTexts& settings,
                   std::string_view architecture) {
  if (!is_tile_file(target)) {
    const KernelEntry& entry = kernel_named(underscored(target));
    return canonical(entry.build(entry.with_defaults(settings), architecture));
  }
  if (!settings.empty()) throw UserError("--set: a .tile file has no options");
  return canonical(load_tile(target));
}

Settings split_settings(const KernelEntry& entry, const NamedTexts& settings) {
  Settings out;
  for (const auto& [name, value] : settings)
    (entry.has_option(name) ? out.options : out.launch)[name] = value;
  return out;
}

template <class Number>
static Number number(const std::string& name, const std::string& text, const char* what) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw UserError(fmt::format("--set {}: expected {}, got '{}'", name, what, text));
  return value;
}

void add_launch_settings(const Signature& signature, const NamedTexts& settings,
                         Arguments& arguments) {
  for (const auto& [name, text] : settings) {
    if (signature.has_dim(name)) {
      arguments.dim(name, number<int64_t>(name, text, "an integer"));
      continue;
    }
    const ParamInfo* param = signature.param(name);
    if (!param)
      throw UserError(
          fmt::format("--set {}: the kernel has no option, dim or param of that name", name),
          signature.text());
    if (is_float(param->dtype)) {
      arguments.param(name, number<double>(name, text, "a number"));
    } else if (param->dtype == Bool && (text == "true" || text == "false")) {
      arguments.param(name, text == "true" ? 1 : 0);
    } else {
      arguments.param(name, number<int64_t>(name, text, "an integer"));
    }
  }
}

Array reinterpreted(const Array& array, DType dtype) {
  Array out(dtype, array.shape());
  std::memcpy(out.data(), array.data(), array.bytes());
  return out;
}

Array load_as(const std::string& argument, const std::string& path, DType wanted) {
  Array array = read_npy(path);
  if (array.dtype() == wanted) return array;
  bool bits = (wanted == BF16 && array.dtype() == U16) ||
              ((wanted == E4M3 || wanted == E5M2) && array.dtype() == U8);
  if (!bits)
    throw UserError(fmt::format("{}: {}: expected dtype {}, got {}", argument, path, name(wanted),
                                name(array.dtype())),
                    wanted == BF16 ? "save ml_dtypes.bfloat16, or its bits as uint16"
                                   : "convert it with astype before numpy.save");
  return reinterpreted(array, wanted);
}

double milliseconds_since(const std::chrono::steady_clock::time_point& start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace kiln::cli
