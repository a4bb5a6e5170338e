// Code on a GPU: PTX compiled by the driver, or a cubin, and the functions in it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/cuda_context.h"

namespace kiln::cuda {

// Loaded code; unloaded with the last copy of the pointer to it.
class Module {
 public:
  Module(const Context& context, CUmodule handle, std::string name, std::string log)
      : context_(context), handle_(handle), name_(std::move(name)), log_(std::move(log)) {}
  ~Module();
  Module(const Module&) = delete;

  const Context& context() const { return context_; }
  CUmodule handle() const { return handle_; }
  const std::string& name() const { return name_; }
  // What the driver's compiler said: registers and spills of each function, advisories. Empty for
  // a cubin and for PTX that the driver had in its own cache.
  const std::string& log() const { return log_; }

 private:
  const Context& context_;
  CUmodule handle_;
  std::string name_, log_;
};

// `code` is PTX text or a cubin, `name` what messages call it. DeviceError with the compiler's log
// and the line of the PTX it complains of; with both versions if the PTX is newer than the driver.
std::shared_ptr<const Module> load_module(const Context& context, const std::string& code,
                                          const std::string& name);

struct FunctionAttributes {
  int registers = 0;      // a thread
  int local_bytes = 0;    // a thread: spills and arrays
  int static_shared = 0;  // bytes a block
  int constant_bytes = 0;
  int max_threads = 0;                      // a block, as registers and .maxntid allow
  int ptx_version = 0, binary_version = 0;  // 80, 90: the .target it was made from and for
};

// A function ready to be launched. Cheap to copy; any thread may launch it.
class Function {
 public:
  // UserError if the block needs more shared memory than the device has, DeviceError if the module
  // has no such function. Opts in to more than 48 KiB of dynamic shared memory where needed.
  Function(std::shared_ptr<const Module> module, const std::string& name, int dynamic_shared = 0);

  const Context& context() const { return module_->context(); }
  const Module& module() const { return *module_; }
  CUfunction handle() const { return handle_; }
  const char* name() const { return name_; }
  int dynamic_shared() const { return dynamic_shared_; }
  const FunctionAttributes& attributes() const { return attributes_; }
  int blocks_per_multiprocessor(int threads_per_block) const;  // that are resident at once
  // Empty if all is in registers; else what it costs, with the compiler's words.
  std::string local_memory_complaint() const;

 private:
  void opt_in();

  std::shared_ptr<const Module> module_;
  CUfunction handle_ = nullptr;
  const char* name_;
  int dynamic_shared_;
  FunctionAttributes attributes_;
};

// 83 for ".version 8.3"; none if the text has no such directive.
std::optional<int> ptx_version(std::string_view ptx);
// The newest PTX that a driver of a CUDA version takes: 83 for 12030.
int newest_ptx(int driver_version);

}  // namespace kiln::cuda
