// Streams and graphs of the fake driver.
#include <mutex>

#include "tests/support/fake_state.h"

using namespace kiln::cuda;
using namespace kiln::test;

extern "C" {

Result cuStreamCreate(CUstream* stream, unsigned) {
  *stream = new char;
  return Result::Success;
}

Result cuStreamDestroy_v2(CUstream stream) {
  delete static_cast<char*>(stream);
  return Result::Success;
}

Result cuStreamBeginCapture_v2(CUstream stream, int) {
  if (fake.captured || !stream) return Result::StreamCaptureUnsupported;
  fake.captured = stream;
  return Result::Success;
}

Result cuStreamEndCapture(CUstream stream, void** graph) {
  if (stream != fake.captured) return Result::StreamCaptureUnsupported;
  fake.captured = nullptr;
  *graph = new Graph(std::exchange(capture, {}));
  return Result::Success;
}

Result cuGraphInstantiateWithFlags(void** made, void* graph, unsigned long long) {
  *made = new Graph(*static_cast<Graph*>(graph));
  return Result::Success;
}

Result cuGraphLaunch(void* made, CUstream) {
  std::lock_guard lock(fake.launching);
  for (const auto& [function, launch] : static_cast<Graph*>(made)->launches)
    if (Result result = execute(function, launch); result != Result::Success) return result;
  return Result::Success;
}

Result cuGraphDestroy(void* graph) {
  delete static_cast<Graph*>(graph);
  return Result::Success;
}

Result cuGraphExecDestroy(void* made) {
  delete static_cast<Graph*>(made);
  return Result::Success;
}

}  // extern "C"
