// The subcommands of `kiln`: each file adds one to the parser and runs it when it was chosen.
#pragma once

#include <CLI/CLI.hpp>

namespace kiln::cli {

void add_list(CLI::App& app);
void add_devices(CLI::App& app);
void add_cache(CLI::App& app);
void add_prebuild(CLI::App& app);
void add_run(CLI::App& app);
void add_attend(CLI::App& app);
void add_call(CLI::App& app);
void add_dump(CLI::App& app);
void add_opt(CLI::App& app);
void add_explain(CLI::App& app);
void add_bench(CLI::App& app);
void add_emulate(CLI::App& app);

}  // namespace kiln::cli
