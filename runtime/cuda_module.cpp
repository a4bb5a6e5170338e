#include "runtime/cuda_module.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "ir/error.h"
#include "ir/loc.h"
#include "runtime/cuda_error.h"

namespace kiln::cuda {
namespace {

constexpr size_t kLogBytes = 64 << 10;

// Reads a number at the front of `text` and removes it.
std::optional<int> number(std::string_view& text) {
  int value = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(rest - text.data()));
  return value;
}

// The buffers that the driver fills while it compiles, and the options that name them.
class JitLog {
 public:
  Result load(CUmodule* module, const std::string& code) {
    JitOption options[] = {JitOption::InfoLog, JitOption::InfoLogSize, JitOption::ErrorLog,
                           JitOption::ErrorLogSize, JitOption::LogVerbose};
    // Numbers travel in the pointers themselves.
    void* values[] = {info_.data(), reinterpret_cast<void*>(info_.size()), error_.data(),
                      reinterpret_cast<void*>(error_.size()),
                      reinterpret_cast<void*>(uintptr_t{1})};
    return api().module_load(module, code.c_str(), std::size(options), options, values);
  }
  std::string info() const { return text(info_); }
  std::string error() const { return text(error_); }

 private:
  static std::string text(const std::string& buffer) {
    std::string result = buffer.c_str();
    while (!result.empty() && (result.back() == '\n' || result.back() == ' ')) result.pop_back();
    return result;
  }
  std::string info_ = std::string(kLogBytes, '\0'), error_ = info_;
};

// The line that the compiler's first "line <n>" means, to be read beside its message.
std::string quoted_line(std::string_view log, std::string_view code) {
  constexpr std::string_view kLine = "line ";
  const size_t at = log.find(kLine);
  if (at == log.npos) return "";
  log.remove_prefix(at + kLine.size());
  const int line = number(log).value_or(0);
  for (int skip = 1; skip < line; ++skip) {
    const size_t end = code.find('\n');
    if (end == code.npos) return "";
    code.remove_prefix(end + 1);
  }
  return line < 1 ? "" : fmt::format("\n{:6} | {}", line, code.substr(0, code.find('\n')));
}

std::string version_of_ptx(int version) {
  return fmt::format("{}.{}", version / 10, version % 10);
}

[[noreturn]] void refuse(const Context& context, Result result, const std::string& code,
                         const std::string& name, const JitLog& log) {
  const int driver = api().driver_version;
  if (result == Result::UnsupportedPtxVersion) {
    const auto version = ptx_version(code);
    throw DeviceError(
        fmt::format("the PTX of '{}' is newer than the driver: it is PTX {}, the driver (CUDA {}) "
                    "takes PTX up to {} ({})",
                    name, version ? version_of_ptx(*version) : "of an unknown version",
                    version_text(driver), version_of_ptx(newest_ptx(driver)), explain(result).name),
        "update the NVIDIA driver, or compile for an older PTX version");
  }
  const std::string said = log.error();
  const std::string detail =
      said.empty() ? "the driver gave no log" : said + quoted_line(said, code);
  if (result == Result::InvalidPtx)
    throw DeviceError(
        fmt::format("the driver (CUDA {}) refuses the PTX of '{}' on {} ({}):\n{}",
                    version_text(driver), name, context.text(), explain(result).name, detail),
        "report this program with the PTX that KILN_DUMP=directory writes");
  context.fail(result, fmt::format("loading the code of '{}'", name), detail);
}

}  // namespace

std::optional<int> ptx_version(std::string_view ptx) {
  constexpr std::string_view kDirective = ".version";
  const size_t at = ptx.find(kDirective);
  if (at == ptx.npos) return std::nullopt;
  ptx.remove_prefix(at + kDirective.size());
  ptx.remove_prefix(std::min(ptx.find_first_not_of(" \t"), ptx.size()));
  const auto major = number(ptx);
  if (!major || !ptx.starts_with('.')) return std::nullopt;
  ptx.remove_prefix(1);
  const auto minor = number(ptx);
  return minor ? std::optional(*major * 10 + *minor) : std::nullopt;
}

int newest_ptx(int driver_version) {
  struct Row {
    int driver, ptx;
  };
  constexpr Row kRows[] = {{13010, 91}, {13000, 90}, {12090, 88}, {12080, 87},
                           {12070, 86}, {12050, 85}, {12040, 84}, {12030, 83},
                           {12020, 82}, {12010, 81}, {12000, 80}};
  for (const Row& row : kRows)
    if (driver_version >= row.driver) return row.ptx;
  return 78;  // CUDA 11.8
}

Module::~Module() {
  // A destructor has nobody to tell; at exit the driver may be gone, which is as good.
  try {
    Current current(context_);
    api().module_unload(handle_);
  } catch (const Error&) {
  }
}

std::shared_ptr<const Module> load_module(const Context& context, const std::string& code,
                                          const std::string& name) {
  Current current(context);
  JitLog log;
  CUmodule handle = nullptr;
  Result result = log.load(&handle, code);
  if (result != Result::Success) refuse(context, result, code, name, log);
  return std::make_shared<const Module>(context, handle, name, log.info());
}

Function::Function(std::shared_ptr<const Module> module, const std::string& name,
                   int dynamic_shared)
    : module_(std::move(module)), name_(intern(name)), dynamic_shared_(dynamic_shared) {
  Current current(context());
  Result found = api().module_get_function(&handle_, module_->handle(), name_);
  if (found != Result::Success)
    context().fail(found,
                   fmt::format("looking for the function '{}' in '{}'", name, module_->name()));
  auto get = [&](FunctionAttribute attribute) {
    int value = 0;
    context().check(api().function_get_attribute(&value, attribute, handle_),
                    "asking for a function's attributes");
    return value;
  };
  using enum FunctionAttribute;
  attributes_ = {get(Registers),          get(LocalBytes), get(StaticShared), get(ConstantBytes),
                 get(MaxThreadsPerBlock), get(PtxVersion), get(BinaryVersion)};
  opt_in();
}

void Function::opt_in() {
  const DeviceProperties& device = context().properties();
  const int64_t total = int64_t{dynamic_shared_} + attributes_.static_shared;
  if (dynamic_shared_ < 0 || total > device.shared_per_block_optin)
    throw UserError(
        fmt::format("kernel '{}' needs {} bytes of shared memory a block ({} of them static), {} "
                    "has {}",
                    name_, total, attributes_.static_shared, context().text(),
                    device.shared_per_block_optin),
        "use smaller tiles or fewer pipeline stages");
  int allowed = 0;
  context().check(
      api().function_get_attribute(&allowed, FunctionAttribute::MaxDynamicShared, handle_),
      "asking for a function's shared memory");
  // Never lowered: another Function of the same code may need more.
  if (dynamic_shared_ > allowed)
    context().check(
        api().function_set_attribute(handle_, FunctionAttribute::MaxDynamicShared, dynamic_shared_),
        "asking for more shared memory");
}

int Function::blocks_per_multiprocessor(int threads_per_block) const {
  Current current(context());
  int blocks = 0;
  context().check(
      api().occupancy(&blocks, handle_, threads_per_block, static_cast<size_t>(dynamic_shared_)),
      "asking for a function's occupancy");
  return blocks;
}

std::string Function::local_memory_complaint() const {
  if (attributes_.local_bytes == 0) return "";
  const DeviceProperties& device = context().properties();
  const uint64_t threads = static_cast<uint64_t>(device.multiprocessors) *
                           static_cast<uint64_t>(device.max_threads_per_multiprocessor);
  std::string text = fmt::format(
      "kernel '{}' keeps {} bytes a thread in local memory (up to {} on {}): {} registers do not "
      "hold its fragments, or it indexes one at run time; use smaller tiles or more threads",
      name_, attributes_.local_bytes,
      size_text(static_cast<uint64_t>(attributes_.local_bytes) * threads), context().text(),
      attributes_.registers);
  return module_->log().empty() ? text : text + "\n" + module_->log();
}

}  // namespace kiln::cuda
