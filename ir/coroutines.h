// Functions that take turns: each on a thread of its own, one running at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ir/loc.h"

namespace kiln {

struct Agent {
  std::string name;
  std::function<void()> function;
};

// What an agent waits for: the user's line, and words such as "pop of channel …: nothing was
// pushed".
struct Waiting {
  Loc loc;
  std::string what;
};

class Coroutines {
 public:
  // Given the numbers of the agents that can go on (ascending, not empty): the position in that
  // list of the one that does. Agents are numbered as given to run.
  using Chooser = std::function<size_t(const std::vector<size_t>& ready)>;
  using Predicate = std::function<bool()>;
  using Describe = std::function<Waiting()>;  // called for an error only
  // Thrown by wait and yield in the other agents of a run that failed; an agent lets it through.
  struct Cancelled {};

  // Runs the agents to their ends. The first exception out of one ends all and is rethrown. If
  // every agent that has not ended waits: UserError at the first one's line, saying what each waits
  // for.
  void run(std::vector<Agent> agents, Chooser choose = first);

  // The rest is for a running agent.
  // Goes on when `ready` holds; at once, without a switch, if it does already. Others may run
  // `ready`, while this agent is stopped: it reads what agents share and changes nothing.
  void wait(const Predicate& ready, const Describe& describe);
  // As wait for agents that exceptions cannot pass (compiled code): false instead of Cancelled, now
  // and from then on; the agent then returns without touching what is shared.
  bool try_wait(const Predicate& ready, const Describe& describe);
  void yield();                                // lets the chooser choose, this agent included
  size_t current() const { return current_; }  // the running agent

  static size_t first(const std::vector<size_t>&) { return 0; }
  static size_t last(const std::vector<size_t>& ready) { return ready.size() - 1; }

 private:
  struct State {
    Agent agent;
    std::condition_variable resumed;
    const Predicate* ready = nullptr;  // none: it can go on
    const Describe* describe = nullptr;
    bool ended = false;
  };

  void body(size_t number);
  bool suspend();
  void hand_over();
  size_t next_agent();
  void fail(std::exception_ptr error);
  std::exception_ptr deadlock() const;

  static constexpr size_t kNobody = ~size_t{0};
  std::vector<std::unique_ptr<State>> states_;
  Chooser choose_;
  std::exception_ptr error_;  // set: the run is being ended
  std::mutex mutex_;          // guards current_ while the baton is handed over
  size_t current_ = kNobody;  // who holds the baton
};

}  // namespace kiln
