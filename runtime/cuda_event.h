// Points in a stream's work, to measure the device's time between them.
#pragma once

#include "runtime/cuda_context.h"

namespace kiln::cuda {

class Event {
 public:
  explicit Event(const Context& context);
  ~Event();
  Event(const Event&) = delete;

  void record(CUstream stream);  // when all that was queued on the stream before is done
  void synchronize() const;      // waits for it
  const Context& context() const { return context_; }
  CUevent handle() const { return handle_; }

 private:
  const Context& context_;
  CUevent handle_ = nullptr;
};

// Milliseconds from one recorded event to another of the same device; waits for the second.
float elapsed_ms(const Event& start, const Event& stop);

}  // namespace kiln::cuda
