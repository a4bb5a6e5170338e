// What several subcommands share: options, files, devices.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "kernels/registry.h"
#include "runtime/array.h"
#include "runtime/cuda_context.h"
#include "runtime/device.h"
#include "runtime/launch.h"

namespace kiln::cli {

using NamedTexts = std::map<std::string, std::string>;

// Names of the library and of kernels have no '-': wherever one is given, '-' stands for '_'.
std::string underscored(std::string name);

// "name=value" texts to a map. UserError on a text without a name or `=`, or a name twice.
NamedTexts named(const char* option, const std::vector<std::string>& texts);

// --device and --arch.
struct DeviceChoice {
  std::string device, arch;
};
// `choice` keeps their values.
void add_device_options(CLI::App& command, DeviceChoice& choice);
// The device. Without --device it is a GPU if one can be used, and then stderr is told; else the
// host.
Device& chosen_device(const DeviceChoice& choice);

// UserError if one cannot be written, or if two (by option) are the same file: said before the
// work.
void check_output_paths(const NamedTexts& paths);

// --without: passes that are left out of all that the command compiles.
void add_without_option(CLI::App& command);

// A whole number that is not negative.
CLI::Validator not_negative();

// A .tile file (by its ending), or a library kernel with options.
bool is_tile_file(const std::string& target);
Kernel load_tile(const std::string& path);
// Either, canonical. `settings` are the library kernel's options; UserError with a .tile file. What
// they leave open is chosen for `architecture`, a Device's target().
Kernel load_kernel(const std::string& target, const NamedTexts& settings,
                   std::string_view architecture);

// Where each --set belongs: to the kernel's options, or to the launch.
struct Settings {
  NamedTexts options, launch;
};
Settings split_settings(const KernelEntry& entry, const NamedTexts& settings);
// Adds dims and params, read from text, to the arguments. UserError on names the kernel lacks.
void add_launch_settings(const Signature& signature, const NamedTexts& settings,
                         Arguments& arguments);

// The file as an array of the wanted dtype: the same dtype, or its bits as u1 or u2 for a dtype
// that NumPy lacks (bf16, fp8). UserError otherwise.
Array load_as(const std::string& argument, const std::string& path, DType wanted);
Array reinterpreted(const Array& array, DType dtype);  // of the same width

double milliseconds_since(const std::chrono::steady_clock::time_point& start);

}  // namespace kiln::cli
