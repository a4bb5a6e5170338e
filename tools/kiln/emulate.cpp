// kiln emulate: PTX text of any origin, on .npy files, in the emulator.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <list>
#include <memory>

#include "ir/error.h"
#include "runtime/ptx/program.h"
#include "runtime/thread_pool.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/profile.h"
#include "tools/npy/file.h"
#include "tools/npy/npy.h"

namespace kiln::cli {
namespace {

struct EmulateOptions {
  std::string file, entry, grid = "1", block, only, async = "issue", timeline;
  size_t shared = 0;
  std::vector<std::string> arguments;
  bool profile = false;
};

[[noreturn]] void bad_argument(const std::string& text, const std::string& what) {
  throw UserError(fmt::format("--arg {}: {}", text, what),
                  "u32:4, f32:0.5, in:x.npy, out:y.npy:f32[100,4], zeros:f32[100]");
}

// Kiln's names and those of PTX.
std::optional<DType> dtype_named(std::string name) {
  if (name.starts_with('s')) name[0] = 'i';
  return dtype_from_name(name);
}

template <class Number>
Number number(const std::string& argument, std::string_view text, const char* what) {
  Number value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    bad_argument(argument, fmt::format("expected {}, got '{}'", what, text));
  return value;
}

Scalar scalar(const std::string& argument, DType dtype, std::string_view text) {
  if (is_float(dtype)) return Scalar::of_float(dtype, number<double>(argument, text, "a number"));
  if (dtype == U64)
    return Scalar::of_int(
        U64, static_cast<int64_t>(number<uint64_t>(argument, text, "a whole number from 0 on")));
  const auto value = number<int64_t>(argument, text, "a whole number");
  if (wrap_to(dtype, value) != value)
    bad_argument(argument, fmt::format("{} is not a value of {}", value, name(dtype)));
  return Scalar::of_int(dtype, value);
}

// Zeros of "f32[100,4]".
Array zeros(const std::string& argument, std::string_view text) {
  const size_t open = text.find('[');
  const auto dtype = dtype_named(std::string(text.substr(0, open)));
  if (!dtype || open == text.npos || !text.ends_with(']'))
    bad_argument(argument,
                 fmt::format("expected a type and extents as f32[100,4], got '{}'", text));
  std::string_view extents = text.substr(open + 1, text.size() - open - 2);
  Shape shape;
  while (!extents.empty()) {
    const size_t comma = std::min(extents.find(','), extents.size());
    shape.push_back(number<int64_t>(argument, extents.substr(0, comma), "an extent"));
    extents.remove_prefix(std::min(comma + 1, extents.size()));
  }
  return Array(*dtype, shape);
}

// What one --arg says.
struct Argument {
  std::string text;
  Scalar value;               // unless it is a buffer
  std::optional<Array> data;  // of a buffer
  bool writable = false;
  std::string output;  // where the buffer goes to; empty: nowhere

  explicit Argument(const std::string& given) : text(given) {
    const size_t colon = std::min(text.find(':'), text.size());
    const std::string kind = text.substr(0, colon);
    const std::string rest = text.substr(std::min(colon + 1, text.size()));
    if (kind == "in") {
      data = read_npy(rest);
    } else if (kind == "zeros") {
      data = zeros(text, rest);
      writable = true;
    } else if (kind == "out") {
      const size_t last = rest.rfind(':');
      if (last == rest.npos || last == 0) bad_argument(text, "expected out:FILE.npy:TYPE[EXTENTS]");
      output = rest.substr(0, last);
      data = zeros(text, rest.substr(last + 1));
      writable = true;
    } else if (const auto dtype = dtype_named(kind)) {
      value = scalar(text, *dtype, rest);
    } else {
      bad_argument(text, fmt::format("'{}' is no type, nor in, out or zeros", kind));
    }
  }

  size_t bytes() const { return data ? sizeof(uint64_t) : size_of(value.dtype); }
  void store(std::byte* to) {
    if (!data) return store_element(value, to);
    store_element(
        Scalar::of_int(U64, static_cast<int64_t>(reinterpret_cast<uintptr_t>(data->data()))), to);
  }
};

const ptx::Entry& chosen_entry(const EmulateOptions& options, const ptx::Program& program) {
  const auto& entries = program.module().entries;
  if (options.entry.empty() && entries.size() == 1) return entries.begin()->second;
  auto it = entries.find(options.entry);
  if (it != entries.end()) return it->second;
  const std::string what =
      options.entry.empty() ? "which entry?" : "there is no entry '" + options.entry + "'";
  throw UserError(fmt::format("{}: {}", options.file, what),
                  fmt::format("--entry {}", fmt::join(program.entries(), ", --entry ")));
}

// The bytes of the parameters; the arguments must fit them one by one.
std::vector<std::byte> parameters(const ptx::Entry& entry, std::list<Argument>& arguments) {
  auto list = [&] {
    std::vector<std::string> all;
    for (const ptx::Variable& parameter : entry.parameters)
      all.push_back(fmt::format("{} ({} bytes)", parameter.name, parameter.bytes));
    return fmt::format("its parameters: {}", fmt::join(all, ", "));
  };
  if (arguments.size() != entry.parameters.size())
    throw UserError(fmt::format("{} takes {} arguments, got {}", entry.name,
                                entry.parameters.size(), arguments.size()),
                    list());
  std::vector<std::byte> bytes(entry.parameter_bytes);
  auto argument = arguments.begin();
  for (const ptx::Variable& parameter : entry.parameters) {
    if (argument->bytes() != parameter.bytes)
      throw UserError(fmt::format("--arg {}: it has {} bytes, {} has {}", argument->text,
                                  argument->bytes(), parameter.name, parameter.bytes),
                      list());
    argument++->store(bytes.data() + parameter.offset);
  }
  return bytes;
}

ptx::Options emulator_options(const EmulateOptions& options) {
  ptx::Options out;
  out.async = options.async == "latest"   ? ptx::AsyncMode::AtLatest
              : options.async == "random" ? ptx::AsyncMode::Random
                                          : ptx::AsyncMode::AtIssue;
  if (!options.only.empty()) out.only_block = parse_dim3("--block-only", options.only, 0);
  if (!options.timeline.empty()) out.timeline = out.only_block.value_or(ptx::Dim3{0, 0, 0});
  out.threads = host_threads();
  return out;
}

ptx::Report launch(const EmulateOptions& options, std::list<Argument>& arguments) {
  const std::string text = read_file(options.file);
  try {
    const ptx::Program program = ptx::parse(text);
    const ptx::Entry& entry = chosen_entry(options, program);
    const std::vector<std::byte> bytes = parameters(entry, arguments);
    ptx::Memory memory;
    for (const Argument& argument : arguments)
      if (argument.data && argument.data->bytes() > 0)
        memory.add(argument.data->data(), argument.data->bytes(), argument.text, argument.writable);
    return ptx::launch(program, entry.name, parse_dim3("--grid", options.grid, 1),
                       parse_dim3("--block", options.block, 1), options.shared, bytes, memory,
                       emulator_options(options));
  } catch (const ptx::Error& error) {
    throw UserError(fmt::format("{}: {}", options.file, error.what()));
  }
}

void emulate(const EmulateOptions& options) {
  std::list<Argument> arguments;
  NamedTexts outputs;
  for (const std::string& text : options.arguments) {
    const Argument& argument = arguments.emplace_back(text);
    if (!argument.output.empty())
      outputs.emplace(fmt::format("argument {}", arguments.size()), argument.output);
  }
  if (!options.timeline.empty()) outputs.emplace("--timeline", options.timeline);
  check_output_paths(outputs);
  const ptx::Report report = launch(options, arguments);
  for (const ptx::Finding& finding : report.findings) fmt::print("{}\n", finding.text());
  if (options.profile) print_profile(report);
  if (!options.timeline.empty()) write_timeline(options.timeline, report.timeline);
  for (const Argument& argument : arguments) {
    if (argument.output.empty()) continue;
    write_npy(argument.output, *argument.data);
    fmt::print("{}: {} {}\n", argument.output, name(argument.data->dtype()),
               str(argument.data->shape()));
  }
  if (!report.findings.empty())
    throw UserError(fmt::format("{}: the emulator found {}", options.file,
                                report.findings.size() == 1
                                    ? std::string("a mistake")
                                    : fmt::format("{} mistakes", report.findings.size())));
}

constexpr const char* kFooter = R"(One --arg for each parameter of the entry, in their order:
  u32:4 s32:-1 u64:7 f32:0.5 f64:1e-3  a number of that type (any of Kiln's types)
  in:FILE.npy                          the address of the file's elements, which are only read
  out:FILE.npy:TYPE[EXTENTS]           the address of zeros; they go to the file afterwards
  zeros:TYPE[EXTENTS]                  the address of zeros
TYPE is f32, f16, bf16, u8, i32 (or s32), …; EXTENTS are as 100 or 100,4.
Findings are printed with the line of the PTX, that of the source if the PTX names it, and advice;
the exit status is 1 if there is one. Outputs are written in any case.
  kiln emulate scale.ptx --grid 4 --block 128 --arg in:x.npy --arg out:y.npy:f32[500] --arg u32:500)";

}  // namespace

void add_emulate(CLI::App& app) {
  auto options = std::make_shared<EmulateOptions>();
  CLI::App* command =
      app.add_subcommand("emulate", "run PTX on this CPU; finds races, deadlocks, bad accesses");
  command->add_option("file", options->file, "PTX text")->type_name("FILE.ptx")->required();
  command->add_option("--entry", options->entry, "the kernel; not needed if there is only one")
      ->type_name("NAME");
  command->add_option("--grid", options->grid, "how many blocks")
      ->type_name("X[,Y[,Z]]")
      ->capture_default_str();
  command->add_option("--block", options->block, "how many threads in each")
      ->type_name("X[,Y[,Z]]")
      ->required();
  command->add_option("--shared", options->shared, "dynamic shared memory")
      ->type_name("BYTES")
      ->check(not_negative());
  command->add_option("--arg", options->arguments, "an argument, see below")
      ->type_name("ARG")
      ->allow_extra_args(false);
  command->add_option("--block-only", options->only, "run this block of the grid alone")
      ->type_name("I[,J[,K]]");
  command->add_option("--async", options->async, "when cp.async copies: at once, or at its wait")
      ->type_name("WORD")
      ->transform(CLI::IsMember({"issue", "latest", "random"}).description(""))
      ->capture_default_str();
  command
      ->add_option(
          "--timeline", options->timeline,
          "what the warps of a block do when, as JSON for ui.perfetto.dev; of the block of "
          "--block-only or the first")
      ->type_name("FILE.json");
  command->add_flag("--profile", options->profile, "print counters, and what each line did");
  command->footer(kFooter);
  command->callback([options] { emulate(*options); });
}

}  // namespace kiln::cli
