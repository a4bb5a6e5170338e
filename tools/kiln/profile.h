// What the emulator is asked, and what it counted.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "runtime/device.h"
#include "runtime/ptx/ptx.h"
#include "tools/kiln/common.h"

namespace kiln::cli {

// The counters, and what each line of the user's source (of the PTX if it names none) did; to
// stdout.
void print_profile(const ptx::Report& report);

// The timeline as JSON (ptx::trace_events); UserError if the file cannot be written.
void write_timeline(const std::string& path, const ptx::Timeline& timeline);

// --block-only, --profile and --timeline of commands that run kernels.
struct EmulatorChoice {
  std::string only, timeline;
  bool profile = false;
  bool given() const { return profile || !only.empty() || !timeline.empty(); }
};
// `choice` keeps their values.
void add_emulator_options(CLI::App& command, EmulatorChoice& choice);
// The device. UserError if the emulator is asked something and it is another one.
Device& chosen_device(const DeviceChoice& device, const EmulatorChoice& choice);
// Runs a kernel as chosen. DeviceError with the findings; UserError if it is not an emulator's.
void run_emulated(const Executable& executable, const Bindings& bindings,
                  const EmulatorChoice& choice);

// "i", "i,j" or "i,j,k", none negative; missing ones are `missing`. UserError naming the option.
ptx::Dim3 parse_dim3(const char* option, const std::string& text, uint32_t missing);

}  // namespace kiln::cli
