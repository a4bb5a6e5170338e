#include "tools/kiln/cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "codegen/host.h"
#include "ir/error.h"
#include "runtime/version.h"
#include "tools/kiln/commands.h"

namespace kiln::cli {
namespace {

constexpr int kUsage = 2;  // exit status of a command line that was not understood

constexpr const char* kFooter = R"(Examples:
  kiln run block_sparse_attention --heads 8 --seq 4096 --dim 128 --density 0.25 --causal --check
  kiln attend --q q.npy --k k.npy --v v.npy --topk 8 --causal --out o.npy
  kiln dump block_sparse_attention --set head_dim=64 --tile > k.tile
  kiln run k.tile --in q=q.npy --in k=k.npy --in v=v.npy --in mask=m.npy --set scale=0.125 --out o=o.npy

`kiln COMMAND --help` tells more. Results go to stdout, notes and progress to stderr; the exit
status is 0 if everything asked for was done and, with --check, found right; 1 if not; 2 if the
command line was not understood.)";

bool repeats(const std::string& option) {
  return option == "--set" || option == "--in" || option == "--out";
}

// --heads_kv and --heads-kv are the same option; --set a=1 b=2 is --set a=1 --set b=2.
std::vector<std::string> normalized(int argc, char** argv) {
  std::vector<std::string> args;
  std::string option;  // the last one
  bool has_value = true;
  for (std::string arg : std::vector<std::string>(argv + 1, argv + argc)) {
    if (arg.starts_with("--")) {
      size_t equals = arg.find('=');
      std::replace(arg.begin(), arg.begin() + std::min(equals, arg.size()), '_', '-');
      option = arg.substr(0, equals);
      has_value = equals != arg.npos;
    } else {
      if (has_value && repeats(option) && arg.find('=') != arg.npos) args.push_back(option);
      has_value = true;
    }
    args.push_back(arg);
  }
  return {args.rbegin(), args.rend()};  // CLI11 wants them reversed
}

int fail(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "kiln: {}\n", message);
  return 1;
}

int run(int argc, char** argv) {
  CLI::App app("Kiln: a tile language and its compiler; kernels for sparse attention.", "kiln");
  app.set_version_flag("--version", fmt::format("kiln {} (LLVM {})", version(), llvm_version()));
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  app.failure_message([](const CLI::App* top, const CLI::Error& error) {
    std::string command = "kiln";
    for (auto chosen = top->get_subcommands(); !chosen.empty();
         chosen = chosen.front()->get_subcommands())
      command += " " + chosen.front()->get_name();
    return fmt::format("kiln: error: {}\n  try: {} --help\n", error.what(), command);
  });
  for (auto add : {add_run, add_attend, add_call, add_bench, add_dump, add_explain, add_opt,
                   add_emulate, add_prebuild, add_list, add_devices, add_cache})
    add(app);
  app.footer(kFooter);  // after the commands, which would inherit it
  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return kUsage;
  }
  try {
    app.parse(normalized(argc, argv));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return std::fflush(stdout) == 0 && !std::ferror(stdout) ? 0 : fail("cannot write to stdout");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("device error: out of memory\n  try: smaller tensors");
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what());
  }
}

}  // namespace kiln::cli
