// What the CUDA driver's answers mean to people.
#pragma once

#include <string>

#include "runtime/cuda_api.h"

namespace kiln::cuda {

struct ResultInfo {
  std::string name;     // "CUDA_ERROR_OUT_OF_MEMORY"
  std::string meaning;  // "out of memory"
  std::string hint;     // what to try; may be empty
};

// Of any number: what the table has, else what the driver says of it, else the number.
ResultInfo explain(Result result);

// Where explain() asks for what it does not know; for the loader of the driver.
using Describe = Result (*)(Result, const char**);
void describe_with(Describe name, Describe text);

// Throws DeviceError: "<meaning> while <doing> (<name>)", then `detail` if there is one.
[[noreturn]] void fail(Result result, const std::string& doing, const std::string& detail = "");

inline void check(Result result, const char* doing) {
  if (result != Result::Success) [[unlikely]]
    fail(result, doing);
}

// Is it the failure of a kernel that was running? Then any later call may be the one that reports
// it, and the process's context on the device is lost.
bool is_of_kernel(Result result);

std::string size_text(uint64_t bytes);  // "12.50 GiB"; below 1 KiB "17 bytes"

}  // namespace kiln::cuda
