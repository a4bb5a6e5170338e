// Everything but `current_` is touched only by who holds the baton: the running agent, or the
// caller of run before the first and after the last. The mutex orders one holder's work before the
// next's.
#include "ir/coroutines.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "ir/error.h"

namespace kiln {

void Coroutines::run(std::vector<Agent> agents, Chooser choose) {
  states_.clear();
  for (Agent& agent : agents) {
    states_.push_back(std::make_unique<State>());
    states_.back()->agent = std::move(agent);
  }
  choose_ = std::move(choose);
  error_ = nullptr;
  current_ = kNobody;

  std::vector<std::thread> threads;
  try {
    for (size_t i = 0; i < states_.size(); ++i) threads.emplace_back([this, i] { body(i); });
  } catch (const std::exception& error) {  // no more threads: those that there are must end
    for (size_t i = threads.size(); i < states_.size(); ++i) states_[i]->ended = true;
    fail(std::make_exception_ptr(
        DeviceError(fmt::format("no thread for an agent: {}", error.what()))));
  }
  hand_over();
  for (std::thread& thread : threads) thread.join();
  states_.clear();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Coroutines::body(size_t number) {
  State& self = *states_[number];
  {
    std::unique_lock lock(mutex_);
    self.resumed.wait(lock, [&] { return current_ == number; });
  }
  if (!error_) {
    try {
      self.agent.function();
    } catch (const Cancelled&) {
    } catch (...) {
      fail(std::current_exception());
    }
  }
  self.ended = true;
  hand_over();
}

void Coroutines::wait(const Predicate& ready, const Describe& describe) {
  if (!try_wait(ready, describe)) throw Cancelled{};
}

bool Coroutines::try_wait(const Predicate& ready, const Describe& describe) {
  if (error_) return false;
  if (ready()) return true;
  State& self = *states_[current_];
  self.ready = &ready;
  self.describe = &describe;
  const bool goes_on = suspend();
  self.ready = nullptr;
  return goes_on;
}

void Coroutines::yield() {
  if (error_ || !suspend()) throw Cancelled{};
}

// Gives the baton away and waits to get it back; false if the run is being ended.
bool Coroutines::suspend() {
  const size_t self = current_;
  hand_over();
  std::unique_lock lock(mutex_);
  states_[self]->resumed.wait(lock, [&] { return current_ == self; });
  return !error_;
}

void Coroutines::hand_over() {
  const size_t next = next_agent();
  if (next == kNobody) return;
  std::lock_guard lock(mutex_);
  current_ = next;
  states_[next]->resumed.notify_one();
}

// Once the run is being ended, the agents are unwound one after the other.
size_t Coroutines::next_agent() {
  std::vector<size_t> ready, left;
  for (size_t i = 0; i < states_.size(); ++i)
    if (!states_[i]->ended) left.push_back(i);
  if (left.empty()) return kNobody;
  if (error_) return left.front();
  try {
    for (size_t i : left)
      if (!states_[i]->ready || (*states_[i]->ready)()) ready.push_back(i);
    if (!ready.empty()) return ready[choose_(ready)];
    fail(deadlock());
  } catch (...) {
    fail(std::current_exception());
  }
  return left.front();
}

void Coroutines::fail(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
}

std::exception_ptr Coroutines::deadlock() const {
  Loc where;
  std::string text = "deadlock: nobody can go on";
  for (const auto& state : states_) {
    if (state->ended) {
      text += fmt::format("\n  {} has ended", state->agent.name);
      continue;
    }
    const Waiting waiting = (*state->describe)();
    if (!where.known()) where = waiting.loc;
    text +=
        fmt::format("\n  {} waits at {}: {}", state->agent.name, str(waiting.loc), waiting.what);
  }
  return std::make_exception_ptr(UserError(where, std::move(text)));
}

}  // namespace kiln
