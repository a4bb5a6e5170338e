// An assembler of the CUDA toolkit, if the machine has one and the user wants it: KILN_PTXAS=path,
// or KILN_PTXAS=auto for one in PATH or /usr/local/cuda/bin. Without it the driver compiles PTX.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kiln {

struct ExternalPtxas {
  std::string path;
  std::string version;  // "V12.4.131"
  bool chosen = false;  // named by a path: then a failure is an error
};

// None if KILN_PTXAS is unset, or auto and there is none. UserError if the path is no ptxas.
std::optional<ExternalPtxas> external_ptxas();

// One that is there, wanted for kernels or not; for tools that look at code.
std::optional<ExternalPtxas> find_ptxas();

struct Assembled {
  std::string cubin;
  std::string log;  // of ptxas -v: registers, spills and shared memory of each function
};
// DeviceError naming `name`, with what ptxas said. `arch` is "sm_90".
Assembled assemble(const ExternalPtxas& ptxas, std::string_view ptx, std::string_view arch,
                   std::string_view name);
// SASS text, by the nvdisasm beside the ptxas. UserError if there is none.
std::string disassemble(const ExternalPtxas& ptxas, std::string_view cubin);

}  // namespace kiln
