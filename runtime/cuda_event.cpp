#include "runtime/cuda_event.h"

#include "ir/error.h"

namespace kiln::cuda {

Event::Event(const Context& context) : context_(context) {
  Current current(context);
  context.check(api().event_create(&handle_, 0), "creating an event");
}

Event::~Event() {
  // As for modules: nobody to tell, and at exit the driver may be gone.
  try {
    Current current(context_);
    api().event_destroy(handle_);
  } catch (const Error&) {
  }
}

void Event::record(CUstream stream) {
  Current current(context_);
  context_.check(api().event_record(handle_, stream), "recording an event");
}

void Event::synchronize() const {
  Current current(context_);
  context_.check(api().event_synchronize(handle_), "waiting for an event");
}

float elapsed_ms(const Event& start, const Event& stop) {
  stop.synchronize();
  float milliseconds = 0;
  Current current(start.context());
  start.context().check(api().event_elapsed(&milliseconds, start.handle(), stop.handle()),
                        "measuring the time between events");
  return milliseconds;
}

}  // namespace kiln::cuda
