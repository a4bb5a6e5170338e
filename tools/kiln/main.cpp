// kiln: build, run, measure and look into tile kernels from the command line.
#include <fmt/format.h>

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

constexpr const char* kFooter = R"(Examples:
  kiln run block_sparse_attention --heads 8 --seq 4096 --dim 128 --density 0.25 --causal --check
  kiln attend --q q.npy --k k.npy --v v.npy --topk 8 --causal --out o.npy
  kiln dump block_sparse_attention --set dim=64 --tile > k.tile
  kiln run k.tile --in q=q.npy --in k=k.npy --in v=v.npy --in mask=m.npy --set scale=0.125 --out o=o.npy

`kiln COMMAND --help` tells more. Results go to stdout, notes and progress to stderr; the exit
status is 0 only if everything asked for was done and, with --check, found right.)";

// --heads_kv and --heads-kv are the same option.
std::vector<std::string> normalized(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  for (std::string& arg : args)
    if (arg.starts_with("--"))
      for (char& c : arg) {
        if (c == '=') break;
        if (c == '_') c = '-';
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
  app.require_subcommand(1);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  for (auto add :
       {add_run, add_attend, add_call, add_dump, add_opt, add_list, add_devices, add_cache})
    add(app);
  if (argc == 1) {
    fmt::print(stderr, "{}", app.help());
    return 1;
  }
  try {
    app.parse(normalized(argc, argv));
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return std::fflush(stdout) == 0 && !std::ferror(stdout) ? 0 : fail("cannot write to stdout");
}

}  // namespace
}  // namespace kiln::cli

int main(int argc, char** argv) {
  using kiln::cli::fail;
  try {
    return kiln::cli::run(argc, argv);
  } catch (const kiln::Error& error) {
    return fail(error.what());
  } catch (const std::bad_alloc&) {
    return fail("device error: out of memory\n  try: smaller tensors");
  } catch (const std::exception& error) {
    return fail(std::string("internal error: ") + error.what());
  }
}
