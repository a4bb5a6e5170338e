// Asynchronous ops under way: when each takes effect, and what may not be touched until it is
// awaited.
#pragma once

#include <functional>
#include <list>
#include <random>
#include <vector>

#include "ir/interp.h"
#include "ir/interp_storage_impl.h"

namespace kiln::interp {

// An asynchronous op of an agent, from its issue until it is awaited (a copy: until its slot is
// popped).
struct Task {
  struct Guarded {
    View view;
    bool written;  // by the task; else read
  };
  const Op* op;
  size_t agent;
  size_t depth;  // of the region that issued it, in its agent
  std::vector<Guarded> guarded;
  std::vector<std::function<void()>> steps;  // what it does, in order: a store reads, then writes
  uint64_t number = 0;
  size_t done = 0;  // of the steps

  void advance(size_t to);
};

class AsyncWork {
 public:
  // Effects come at once, as late as they may, or by `random`.
  AsyncWork(InterpOptions::Async mode, std::mt19937_64& random) : mode_(mode), random_(random) {}

  uint64_t begin(Task task);  // its number, ascending
  void await_gemms(size_t agent, uint64_t last);
  void await_stores(size_t agent, size_t pending, bool read);
  void arrive(const Storage& slot);  // the copies into it are done
  void progress();                   // in mode Random one of the tasks goes on

  // UserError if `op` may not access the view yet. `accumulator`: it is the c of a gemm_async.
  void check(const Op& op, const View& view, Effect effect, bool accumulator = false) const;
  // UserError if an op other than a copy has the slot, which `op` gives away, in use.
  void check_unused(const Op& op, const Storage& slot) const;
  // UserError if a gemm that this region or an inner one issued is not awaited.
  void check_awaited(size_t agent, size_t depth) const;
  bool uses(const Storage& storage) const;  // does any?

 private:
  void advance_gemms(size_t agent, uint64_t last);

  const InterpOptions::Async mode_;
  std::mt19937_64& random_;
  std::list<Task> tasks_;  // in order of issue
  uint64_t issued_ = 0;
};

}  // namespace kiln::interp
