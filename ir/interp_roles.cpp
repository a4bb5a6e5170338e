// Agents: roles as coroutines, loops with exits, the next tile, and what is checked before an op
// and at the end of a region or an agent.
#include <fmt/format.h>

#include <utility>

#include "ir/channel.h"
#include "ir/error.h"
#include "ir/interp_impl.h"

namespace kiln::interp {

// One in four: often enough to disturb, seldom enough to let an agent get ahead of the others.
static bool now_and_then(std::mt19937_64& random) {
  return random() % 4 == 0;
}

bool Interpreter::guesses() const {
  switch (options_.async) {
    case InterpOptions::Async::Eager: return false;
    case InterpOptions::Async::Lazy: return true;
    case InterpOptions::Async::Random: return random_() % 2 == 0;
  }
  return false;
}

void Interpreter::start_block() {
  agents_ = {{"the block"}};
  channels_.clear();
}

// The agent's stores are done when it ends.
void Interpreter::end_agent() {
  const size_t number = agent_number();
  work_.await_stores(number, 0, false);
  for (const auto& [id, channel] : channels_) check_left(*channel, number, agents_[number].name);
}

void Interpreter::wait(const Coroutines::Predicate& ready, const Coroutines::Describe& describe) {
  if (in_roles_) return coroutines_.wait(ready, describe);
  if (ready()) return;
  const Waiting waiting = describe();
  throw UserError(waiting.loc, "deadlock: " + waiting.what);
}

void Interpreter::run_scope(RegionId region) {
  ++agent().depth;
  for (const Inst& inst : code_[region.id]) run_step(inst);
  work_.check_awaited(agent_number(), agent().depth);
  --agent().depth;
}

void Interpreter::run_step(const Inst& inst) {
  if (options_.async == InterpOptions::Async::Random) {
    if (in_roles_ && now_and_then(random_)) coroutines_.yield();
    if (now_and_then(random_)) work_.progress();
  }
  check_operands(*inst.op);
  run_inst(inst);
}

void Interpreter::check_operands(const Op& op) const {
  switch (op.code) {
    case OpCode::Load:
    case OpCode::Store:
    case OpCode::Atomic:  // check the element
    case OpCode::PushEnd:
    case OpCode::Message:
    case OpCode::Release: return;  // say more
    default: break;
  }
  const OpInfo& row = info(op.code);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const Effect effect = row.operand(i).effect;
    if (effect == Effect::None || !op.operands[i]) continue;
    if (!kernel_.type(op.operands[i]).is_storage()) continue;
    check_access(op, view(op.operands[i]), effect, op.code == OpCode::GemmAsync && i == 2);
  }
}

void Interpreter::check_access(const Op& op, const View& view, Effect effect,
                               bool accumulator) const {
  if (view.base->slot) check_slot(op, *view.base->slot, agent_number());
  // Which part of the tile a part of a reshape is, is not looked at: all of it counts.
  Storage* whole = view.base->whole;
  work_.check(op, whole ? View::whole(*whole) : view, effect, accumulator);
}

void Interpreter::run_roles(const Op& op) {
  work_.check_awaited(0, agent().depth);
  end_agent();
  const std::vector<AgentState> block = std::exchange(agents_, {});
  std::vector<Agent> roles;
  for (const std::string& name : role_names(op)) {
    const RegionId region = op.regions[roles.size()];
    agents_.push_back({fmt::format("role '{}'", name)});
    roles.push_back({agents_.back().name, [this, region] {
                       run_scope(region);
                       end_agent();
                     }});
  }
  Coroutines::Chooser choose = options_.reverse_agents ? Coroutines::last : Coroutines::first;
  if (options_.async == InterpOptions::Async::Random)
    choose = [this](const std::vector<size_t>& ready) { return random_() % ready.size(); };
  in_roles_ = true;
  coroutines_.run(std::move(roles), choose);
  in_roles_ = false;
  agents_ = block;
  for (const auto& [id, channel] : channels_) check_drained(*channel);
}

void Interpreter::run_loop(const Op& op) {
  const std::vector<Inst>& body = code_[op.regions[0].id];
  const size_t number = agent_number(), depth = ++agents_[number].depth;
  for (bool goes_on = true; goes_on;) {
    for (size_t i = 0; i < body.size() && goes_on; ++i) {
      const Op& inner = *body[i].op;
      if (inner.code != OpCode::ExitIf) {
        run_step(body[i]);
      } else if (integer(inner.operands[0])) {
        goes_on = false;
        run_scope(inner.regions[0]);
      }
    }
    work_.check_awaited(number, depth);
  }
  --agents_[number].depth;
}

// Blocks run one after the other, so the first to ask takes all tiles.
void Interpreter::run_next_tile(const Op& op) {
  if (!op.operand(1)) return set_i32(op.result, integer(op.operands[0]) + blocks_);
  const View& counter = view(op.operands[1]);
  const int64_t first[] = {0};
  auto offset = counter.locate(first);
  if (!offset) throw UserError(op.loc, "next_tile: the counter has no element");
  const int64_t taken = read_element(op, *counter.base, *offset).i;
  write_element(*counter.base, *offset, Scalar::of_int(I32, taken + 1));
  set_i32(op.result, blocks_ + taken);
}

}  // namespace kiln::interp
