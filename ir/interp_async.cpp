// Tasks, and the ops that begin and await them. Whatever the mode, what a task uses stays guarded
// until the program awaits it, so that a mistake is found in every mode.
#include "ir/interp_async_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"
#include "ir/interp_impl.h"

namespace kiln::interp {
namespace {

std::string_view name_of(const Op& op) {
  return info(op.code).name;
}

bool overlap(const View& a, const View& b) {
  if (a.base != b.base) return false;
  if (a.lacking != b.lacking) return true;  // not told apart
  if (a.first != b.first) return false;
  for (size_t axis = 0; axis < a.low.size(); ++axis)
    if (std::max(a.low[axis], b.low[axis]) >= std::min(a.high[axis], b.high[axis])) return false;
  return true;
}

bool same_part(const View& a, const View& b) {
  return a.base == b.base && a.first == b.first && a.low == b.low && a.high == b.high;
}

const char* how_to_wait(const Op& op) {
  switch (op.code) {
    case OpCode::GemmAsync: return "await its token first";
    case OpCode::StoreAsync: return "await_stores with `read` first";
    default: return "only the role that pops the slot sees the copy done";
  }
}

Scalar zero_of(const View& view) {
  return convert(Scalar::of_int(I32, 0), view.base->type.dtype);
}

}  // namespace

void Task::advance(size_t to) {
  while (done < to) steps[done++]();
}

uint64_t AsyncWork::begin(Task task) {
  task.number = ++issued_;
  if (mode_ == InterpOptions::Async::Eager) task.advance(task.steps.size());
  tasks_.push_back(std::move(task));
  return issued_;
}

// The gemms of an agent take effect in order.
void AsyncWork::advance_gemms(size_t agent, uint64_t last) {
  for (Task& task : tasks_)
    if (task.op->code == OpCode::GemmAsync && task.agent == agent && task.number <= last)
      task.advance(task.steps.size());
}

void AsyncWork::await_gemms(size_t agent, uint64_t last) {
  advance_gemms(agent, last);
  tasks_.remove_if([&](const Task& task) {
    return task.op->code == OpCode::GemmAsync && task.agent == agent && task.number <= last;
  });
}

void AsyncWork::await_stores(size_t agent, size_t pending, bool read) {
  std::vector<std::list<Task>::iterator> stores;
  for (auto it = tasks_.begin(); it != tasks_.end(); ++it)
    if (it->op->code == OpCode::StoreAsync && it->agent == agent) stores.push_back(it);
  if (stores.size() <= pending) return;
  stores.resize(stores.size() - pending);
  for (auto store : stores) {
    store->advance(read ? 1 : store->steps.size());
    store->guarded.clear();
    if (!read) tasks_.erase(store);
  }
}

void AsyncWork::arrive(const Storage& slot) {
  auto into_slot = [&](const Task& task) {
    return task.op->code == OpCode::CopyAsync && task.guarded.front().view.base == &slot;
  };
  for (Task& task : tasks_)
    if (into_slot(task)) task.advance(task.steps.size());
  tasks_.remove_if(into_slot);
}

void AsyncWork::progress() {
  if (mode_ != InterpOptions::Async::Random || tasks_.empty()) return;
  Task& task = *std::next(tasks_.begin(), static_cast<int64_t>(random_() % tasks_.size()));
  if (task.op->code == OpCode::GemmAsync)
    advance_gemms(task.agent, task.number);
  else if (task.done < task.steps.size())
    task.advance(task.done + 1);
}

void AsyncWork::check(const Op& op, const View& view, Effect effect, bool accumulator) const {
  for (const Task& task : tasks_)
    for (const Task::Guarded& guarded : task.guarded) {
      if (effect == Effect::Read && !guarded.written) continue;
      if (!overlap(guarded.view, view)) continue;
      if (accumulator && guarded.written && task.op->code == OpCode::GemmAsync &&
          same_part(guarded.view, view))
        continue;
      throw UserError(
          op.loc,
          fmt::format("{} {} {}, which {} at {} still {}", name_of(op),
                      effect == Effect::Read ? "reads" : "writes", str(view.base->type),
                      name_of(*task.op), str(task.op->loc), guarded.written ? "writes" : "reads"),
          how_to_wait(*task.op));
    }
}

bool AsyncWork::uses(const Storage& storage) const {
  for (const Task& task : tasks_)
    for (const Task::Guarded& guarded : task.guarded)
      if (guarded.view.base == &storage) return true;
  return false;
}

void AsyncWork::check_unused(const Op& op, const Storage& slot) const {
  for (const Task& task : tasks_) {
    if (task.op->code == OpCode::CopyAsync) continue;
    for (const Task::Guarded& guarded : task.guarded)
      if (guarded.view.base == &slot)
        throw UserError(
            op.loc,
            fmt::format("{} of a slot that {} at {} still {}", name_of(op), name_of(*task.op),
                        str(task.op->loc), guarded.written ? "writes" : "reads"),
            how_to_wait(*task.op));
  }
}

void AsyncWork::check_awaited(size_t agent, size_t depth) const {
  for (const Task& task : tasks_)
    if (task.op->code == OpCode::GemmAsync && task.agent == agent && task.depth >= depth)
      throw UserError(task.op->loc, "gemm_async: its region ends and the token was never awaited",
                      "await it, or one begun later, in the region that begins it");
}

void Interpreter::run_gemm_async(const Op& op) {
  Task task{&op, agent_number(), agent().depth, {}, {}};
  for (size_t i = 0; i < 3; ++i) task.guarded.push_back({view(op.operands[i]), i == 2});
  // The views that the values name now are the same until the token is awaited.
  task.steps.push_back([this, &op] { run_gemm(*this, op); });
  tokens_[op.result.id] = {work_.begin(std::move(task)), false};
}

void Interpreter::run_await(const Op& op) {
  Token& token = tokens_.at(op.operands[0].id);
  if (token.awaited) {
    const Op& begun = kernel_.op(kernel_.def(op.operands[0]));
    throw UserError(op.loc, fmt::format("await: the token of gemm_async at {} was awaited before",
                                        str(begun.loc)));
  }
  token.awaited = true;
  work_.await_gemms(agent_number(), token.number);
}

// By then the program may have given its values new views, so the task keeps its own.
void Interpreter::run_copy_async(const Op& op) {
  const View from = view(op.operands[0]), to = view(op.operands[1]);
  require_open(op, *to.base);
  to.base->slot->copied = {&op, committed_};
  Task task{&op, agent_number(), agent().depth, {{to, true}}, {}};
  task.steps.push_back([&op, from, to] { scatter(to, gather(op, from, zero_of(from))); });
  work_.begin(std::move(task));
}

void Interpreter::run_store_async(const Op& op) {
  const View from = view(op.operands[0]), to = view(op.operands[1]);
  auto values = std::make_shared<std::vector<Scalar>>();
  Task task{&op, agent_number(), agent().depth, {{from, false}}, {}};
  task.steps.push_back([&op, from, values] { *values = gather(op, from, zero_of(from)); });
  task.steps.push_back([to, values] { scatter(to, *values); });
  work_.begin(std::move(task));
}

void Interpreter::run_await_stores(const Op& op) {
  work_.await_stores(agent_number(), static_cast<size_t>(op.integer("pending")), op.flag("read"));
}

}  // namespace kiln::interp
