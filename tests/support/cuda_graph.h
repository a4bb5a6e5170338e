// Streams and graphs of the CUDA driver, which the library never makes: its callers do.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/cuda_context.h"

namespace kiln::test {

// Calls an entry point of the driver that the library has open; throws if it fails.
template <class... Parameters>
void call_driver(const char* name, Parameters... parameters) {
  const char* path = std::getenv("KILN_LIBCUDA");
  static void* library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
  void* entry = library ? dlsym(library, name) : nullptr;
  if (!entry) throw std::runtime_error(std::string("the driver has no ") + name);
  const int result = reinterpret_cast<int (*)(Parameters...)>(entry)(parameters...);
  if (result != 0) throw std::runtime_error(std::string(name) + ": " + std::to_string(result));
}

class OwnStream {
 public:
  explicit OwnStream(const cuda::Context& context) : context_(context) {
    cuda::Current current(context_);
    call_driver("cuStreamCreate", &stream_, 1u);  // not waiting for the legacy default stream
  }
  ~OwnStream() {
    cuda::Current current(context_);
    call_driver("cuStreamDestroy_v2", stream_);
  }
  OwnStream(const OwnStream&) = delete;
  operator void*() const { return stream_; }

 private:
  const cuda::Context& context_;
  void* stream_ = nullptr;
};

// What `queue` puts on the stream, to be run again and again.
class OwnGraph {
 public:
  template <class Queue>
  OwnGraph(const cuda::Context& context, void* stream, const Queue& queue) : context_(context) {
    constexpr int kThreadLocal = 1;
    cuda::Current current(context_);
    void* graph = nullptr;
    call_driver("cuStreamBeginCapture_v2", stream, kThreadLocal);
    queue(stream);
    call_driver("cuStreamEndCapture", stream, &graph);
    call_driver("cuGraphInstantiateWithFlags", &made_, graph, 0ull);
    call_driver("cuGraphDestroy", graph);
  }
  ~OwnGraph() {
    cuda::Current current(context_);
    call_driver("cuGraphExecDestroy", made_);
  }
  OwnGraph(const OwnGraph&) = delete;
  void launch(void* stream) const {
    cuda::Current current(context_);
    call_driver("cuGraphLaunch", made_, stream);
  }

 private:
  const cuda::Context& context_;
  void* made_ = nullptr;
};

}  // namespace kiln::test
