// Links objects into this process: the one file that knows ORC.
//
// One session for the process, since creating it takes milliseconds; each object is a library of
// its own in it, with nothing to link against but the C functions named here.
#include <llvm/ExecutionEngine/Orc/AbsoluteSymbols.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "codegen/host.h"
#include "codegen/host_impl.h"
#include "codegen/llvm_impl.h"
#include "ir/error.h"

namespace kiln {
namespace {

namespace orc = llvm::orc;

// What ORC reported besides the error it returns, which only says that something failed.
thread_local std::string reported;

void report(llvm::Error error) {
  reported += "; " + llvm::toString(std::move(error));
}

void require(llvm::Error error) {
  if (!error) return;
  const std::string details = std::exchange(reported, "");
  throw InternalError("linking compiled code: " + llvm::toString(std::move(error)) + details);
}

template <class T>
T require(llvm::Expected<T> value) {
  if (!value) require(value.takeError());
  return std::move(*value);
}

orc::LLJIT& session() {
  // Never destroyed: code may still run while the process ends.
  static orc::LLJIT* jit = [] {
    initialize_llvm();
    auto machine = require(orc::JITTargetMachineBuilder::detectHost());
    auto made = require(orc::LLJITBuilder()
                            .setJITTargetMachineBuilder(std::move(machine))
                            .setPlatformSetUp(orc::setUpInactivePlatform)
                            .create());
    made->getExecutionSession().setErrorReporter(report);
    return made.release();
  }();
  return *jit;
}

orc::SymbolMap library_functions(orc::LLJIT& jit) {
  orc::SymbolMap symbols;
  auto add = [&](const char* name, auto* function) {
    symbols[jit.mangleAndIntern(name)] = {
        orc::ExecutorAddr::fromPtr(function),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  using Real = double (*)(double);
  using Single = float (*)(float);
  add("exp", static_cast<Real>(std::exp));
  add("exp2", static_cast<Real>(std::exp2));
  add("log", static_cast<Real>(std::log));
  add("log2", static_cast<Real>(std::log2));
  add("tanh", static_cast<Real>(std::tanh));
  // What old CPUs have no instruction for.
  add("floor", static_cast<Real>(std::floor));
  add("ceil", static_cast<Real>(std::ceil));
  add("floorf", static_cast<Single>(std::floor));
  add("ceilf", static_cast<Single>(std::ceil));
  add("fma", static_cast<double (*)(double, double, double)>(std::fma));
  add("fmaf", static_cast<float (*)(float, float, float)>(std::fma));
  add("kiln_watch", &host::report_watch);
  // What LLVM may turn loops and stores into.
  add("memset", &std::memset);
  add("memcpy", &std::memcpy);
  add("memmove", &std::memmove);
  return symbols;
}

}  // namespace

struct HostCode::Impl {
  orc::JITDylib* library = nullptr;
  std::vector<HostEntry> entries;
  std::vector<std::vector<HostRoleEntry>> roles;  // of each launch

  ~Impl() {
    if (library) llvm::consumeError(session().getExecutionSession().removeJITDylib(*library));
  }
};

HostCode::HostCode(const HostObject& object) : impl_(std::make_unique<Impl>()) {
  static std::atomic<uint64_t> count = 0;
  orc::LLJIT& jit = session();
  const std::string name = "kernel" + std::to_string(count++);
  impl_->library = &jit.getExecutionSession().createBareJITDylib(name);
  require(impl_->library->define(orc::absoluteSymbols(library_functions(jit))));
  require(
      jit.addObjectFile(*impl_->library, llvm::MemoryBuffer::getMemBufferCopy(object.code, name)));
  const auto find = [&](const std::string& symbol) {
    return require(jit.lookup(*impl_->library, symbol));
  };
  for (const HostLaunch& launch : object.launches) {
    impl_->entries.push_back(find(launch.entry).toPtr<HostEntry>());
    auto& roles = impl_->roles.emplace_back();
    for (const HostRole& role : launch.roles)
      roles.push_back(find(role.entry).toPtr<HostRoleEntry>());
  }
}

HostCode::~HostCode() = default;

HostEntry HostCode::entry(size_t launch) const {
  return impl_->entries.at(launch);
}

HostRoleEntry HostCode::role(size_t launch, size_t number) const {
  return impl_->roles.at(launch).at(number);
}

}  // namespace kiln
