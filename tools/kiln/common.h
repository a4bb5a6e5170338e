// What several subcommands share: options, files, devices.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "ir/kernel.h"
#include "kernels/registry.h"
#include "runtime/array.h"
#include "runtime/device.h"
#include "runtime/launch.h"

namespace kiln::cli {

using NamedTexts = std::map<std::string, std::string>;

// Names of the library and of kernels have no '-': wherever one is given, '-' stands for '_'.
std::string underscored(std::string name);

// "name=value" texts to a map. UserError on a text without a name or `=`, or a name twice.
NamedTexts named(const char* option, const std::vector<std::string>& texts);

// Adds --device; `name` keeps its value.
void add_device_option(CLI::App& command, std::string& name);

// UserError if one cannot be written, or if two (by option) are the same file: said before the
// work.
void check_output_paths(const NamedTexts& paths);

// A whole number that is not negative.
CLI::Validator not_negative();

// A .tile file (by its ending), or a library kernel with options.
bool is_tile_file(const std::string& target);
Kernel load_tile(const std::string& path);
// Either, canonical. `settings` are the library kernel's options; UserError with a .tile file.
Kernel load_kernel(const std::string& target, const NamedTexts& settings);

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
