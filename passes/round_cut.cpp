#include <fmt/format.h>

#include <algorithm>

#include "ir/walk.h"
#include "passes/loops.h"
#include "passes/round_cut_impl.h"

namespace kiln {
namespace {

bool is_channel_op(OpCode code) {
  return code == OpCode::PushBegin || code == OpCode::PushEnd || code == OpCode::Pop ||
         code == OpCode::Held || code == OpCode::Release || code == OpCode::CopyAsync;
}

bool touches(const Kernel& kernel, const Op& op, Value base) {
  const std::vector<Access> all = accesses_deep(kernel, op);
  return std::any_of(all.begin(), all.end(), [&](const Access& a) { return a.base == base; });
}

// Leaves nothing of what was in the tile before, nor reads it.
bool writes_whole(const Kernel& kernel, const Op& op, Value tile) {
  if (!op.regions.empty()) return false;
  int named = 0;
  bool whole = false;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!op.operands[i] || base_of(kernel, op.operands[i]) != tile) continue;
    ++named;
    whole |= op.operands[i] == tile && info(op.code).operand(i).effect == Effect::Write;
    whole |= op.operands[i] == tile && op.code == OpCode::Gemm && op.flag("clear");
    whole |= op.code == OpCode::Store && kernel.type(tile).rank() == 0;
  }
  return whole && named == 1;
}

}  // namespace

RoundCut::RoundCut(const Kernel& kernel, OpId launch, OpId loop)
    : kernel_(kernel),
      loop_(kernel.op(loop)),
      in_loop_(kernel, loop_),
      in_launch_(kernel, kernel.op(launch)),
      ops_(kernel.region(loop_.regions[0]).ops),
      parts_(ops_.size(), Part::Tail) {
  for (size_t at = 0; at < ops_.size(); ++at) at_[ops_[at]] = at;
  find_gemms();
  if (!gemm_) {
    why_not_ = "no gemm at the top of a round needs what another there gives";
    return;
  }
  walk(kernel, kernel.op(launch).regions[0], [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Channel) apart_.insert(op.result);
    if (op.code == OpCode::Slice || op.code == OpCode::Reshape)
      viewed_.insert(base_of(kernel, op.result));
  });
  why_not_ = cut();
}

bool RoundCut::is_free(OpId op) const {
  const auto found = at_.find(op);
  return found != at_.end() && parts_[found->second] == Part::Free;
}

bool RoundCut::reads_tensors() const {
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (parts_[at] != Part::Head || is_channel_op(op(at).code)) continue;
    for (const Access& access : accesses_deep(kernel_, op(at)))
      if (kernel_.type(access.base).space == Space::Global) return true;
  }
  return false;
}

// Follows what a gemm gives, op by op, to a later gemm that reads of it.
void RoundCut::find_gemms() {
  for (size_t first = 0; first < ops_.size() && !gemm_; ++first) {
    if (op(first).code != OpCode::Gemm) continue;
    std::set<Value> given = {base_of(kernel_, op(first).operands[2])};
    const auto is_given = [&](const Op& each) {
      return std::any_of(each.operands.begin(), each.operands.end(), [&](Value operand) {
        return operand && (given.contains(operand) || given.contains(base_of(kernel_, operand)));
      });
    };
    for (size_t at = first + 1; at < ops_.size(); ++at) {
      const Op& later = op(at);
      if (later.code == OpCode::Gemm && (given.contains(base_of(kernel_, later.operands[0])) ||
                                         given.contains(base_of(kernel_, later.operands[1])))) {
        gemm_ = ops_[first];
        second_ = ops_[at];
        break;
      }
      if (!any_op(kernel_, later, is_given)) continue;
      if (later.result) given.insert(later.result);
      for (const Access& access : accesses_deep(kernel_, later))
        if (access.effect != Effect::Read) given.insert(access.base);
    }
  }
}

std::string RoundCut::cut() {
  if (constant_int(kernel_, loop_.operands[2]) != 1) return "the loop's step is not 1";
  if (std::string why = classify(); !why.empty()) return why;
  make_head();
  if (std::string why = take_channels(); !why.empty()) return why;
  if (std::string why = check(); !why.empty()) return why;
  find_start();
  return "";
}

std::string RoundCut::classify() {
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (std::string why = classify(at); !why.empty()) return why;
    if (parts_[at] == Part::Commit) top_ = at + 1;
  }
  return "";
}

std::string RoundCut::classify(size_t at) {
  const Op& op = this->op(at);
  const bool is_ordered = any_op(kernel_, op, [](const Op& each) {
    return each.code == OpCode::Barrier || each.code == OpCode::WaitCopies;
  });
  if (is_ordered) return "the rounds are ordered by barriers or waits already";
  const bool is_late = any_op(kernel_, op, [](const Op& each) {
    const bool late = each.code >= OpCode::Roles && each.code <= OpCode::NextTile;
    return late && !is_channel_op(each.code);
  });
  if (is_late) return "the rounds have ops of the late IR";
  if (op.code == OpCode::CommitCopies) {
    parts_[at] = Part::Commit;
    return "";
  }
  if (is_channel_op(op.code)) return "";
  if (is_pushing(op)) {
    parts_[at] = Part::Fetch;
    return "";
  }
  const bool is_guarded = any_op(kernel_, op, [](const Op& each) {
    return is_channel_op(each.code) || each.code == OpCode::CommitCopies;
  });
  if (is_guarded) return "a branch or a loop of the round takes slots of a channel";
  const bool reads_only =
      op.code == OpCode::Load && !in_loop_.writer(base_of(kernel_, op.operands[0]));
  if (info(op.code).pure || op.code == OpCode::Alloc || reads_only) parts_[at] = Part::Free;
  return "";
}

// A branch with pushes and nothing else.
bool RoundCut::is_pushing(const Op& op) const {
  bool pushes = false, only = op.code == OpCode::If;
  for (RegionId region : op.regions)
    walk(kernel_, region, [&](OpId id) {
      const Op& each = kernel_.op(id);
      const bool push = each.code == OpCode::PushBegin || each.code == OpCode::CopyAsync ||
                        each.code == OpCode::PushEnd;
      pushes |= push;
      only &= push || info(each.code).pure || each.code == OpCode::If ||
              (each.code == OpCode::Load && !in_loop_.writer(base_of(kernel_, each.operands[0])));
    });
  return pushes && only;
}

Value RoundCut::channel_at(const Op& op) const {
  if (!is_channel_op(op.code)) return {};
  if (op.code != OpCode::CopyAsync) return op.operands[0];
  const Op* channel = channel_of(kernel_, op.operands[1]);
  return channel ? channel->result : Value{};
}

// The ops of the body, other than free ones, whose results the op needs.
void RoundCut::each_source(const Op& op, const std::function<void(size_t)>& visit) const {
  std::set<OpId> seen;
  std::function<void(const Op&)> follow = [&](const Op& each) {
    for (Value operand : each.operands) {
      if (!operand) continue;
      const OpId def = kernel_.def(operand);
      const auto found = def ? at_.find(def) : at_.end();
      if (found == at_.end() || !seen.insert(def).second) continue;
      if (parts_[found->second] == Part::Free)
        follow(kernel_.op(def));
      else
        visit(found->second);
    }
  };
  follow(op);
  for (RegionId region : op.regions)
    walk(kernel_, region, [&](OpId id) { follow(kernel_.op(id)); });
}

bool RoundCut::uses_result(const Op& op, size_t of) const {
  bool found = false;
  each_source(op, [&](size_t source) { found |= source == of; });
  return found;
}

// The gemm, gemms that add to its result at once, and what comes before and is needed for these.
void RoundCut::make_head() {
  const size_t first = at_.at(gemm_);
  const Value given = base_of(kernel_, op(first).operands[2]);
  add_to_head(first);
  for (size_t at = first + 1; at < ops_.size(); ++at) {
    if (!touches(kernel_, op(at), given)) continue;
    const bool adds = op(at).code == OpCode::Gemm && base_of(kernel_, op(at).operands[2]) == given;
    if (!adds || base_of(kernel_, op(at).operands[0]) == given ||
        base_of(kernel_, op(at).operands[1]) == given)
      break;
    add_to_head(at);
  }
}

void RoundCut::add_to_head(size_t at) {
  if (parts_[at] != Part::Tail) return;
  parts_[at] = Part::Head;
  each_source(op(at), [&](size_t source) { add_to_head(source); });
  for (size_t before = 0; before < at; ++before)
    if (parts_[before] == Part::Tail && dependence(kernel_, op(before), op(at), apart_))
      add_to_head(before);
  if (const Value channel = channel_at(op(at))) early_.insert(channel);
}

// All that is done to a channel stays in order: it is the head's if its pop is.
std::string RoundCut::take_channels() {
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (!early_.contains(channel_at(op(at))) || parts_[at] == Part::Head) continue;
    if (op(at).code == OpCode::Pop || op(at).code == OpCode::Held)
      return fmt::format("the channel of its tile also brings others, by the {}",
                         op_in_words(op(at)));
    add_to_head(at);
  }
  return "";
}

std::string RoundCut::check() {
  for (size_t at = 0; at < ops_.size(); ++at) {
    if (parts_[at] == Part::Fetch) {
      bool known = true;
      each_source(op(at), [&](size_t) { known = false; });
      if (!known) return "what is fetched depends on what the round computes";
    }
    if (parts_[at] != Part::Tail && parts_[at] != Part::Fetch) continue;
    for (size_t head = 0; head < ops_.size(); ++head) {
      const bool fetches = parts_[head] == Part::Fetch && parts_[at] == Part::Tail;
      if (parts_[head] != Part::Head && !fetches) continue;
      if (std::string why = check(at, head); !why.empty()) return why;
    }
  }
  return "";
}

// The op of the head, of the next round, before the other.
std::string RoundCut::check(size_t tail, size_t head) {
  if (uses_result(op(tail), head)) {
    if (op(head).code == OpCode::Pop)
      return fmt::format("the {} still reads a tile of it", op_in_words(op(tail)));
    return fmt::format("the {} needs what the {} gives", op_in_words(op(tail)),
                       op_in_words(op(head)));
  }
  while (const auto found = dependence(kernel_, op(tail), op(head), apart_)) {
    if (std::string why = why_not_twice(found->on); !why.empty())
      return fmt::format("the {} must come before the {} of the next round: {}, {}",
                         op_in_words(op(tail)), op_in_words(op(head)),
                         storage_in_words(kernel_, found->on), why);
    apart_.insert(found->on);
    twice_.push_back(found->on);
  }
  return "";
}

// Two rounds may have one each if nothing of it goes from round to round.
std::string RoundCut::why_not_twice(Value tile) const {
  if (!kernel_.def_as(tile, OpCode::Alloc) || kernel_.type(tile).space != Space::Fragment)
    return "is not in registers";
  if (viewed_.contains(tile)) return "has views";
  size_t first = 0;
  while (!touches(kernel_, op(first), tile)) ++first;
  if (parts_[first] != Part::Head || !writes_whole(kernel_, op(first), tile))
    return "is not written whole first in a round";
  return in_launch_.uses(tile) == in_loop_.uses(tile) ? "" : "is used outside of the loop";
}

void RoundCut::find_start() {
  start_ = top_;
  for (size_t at = top_; at < ops_.size(); ++at) {
    if (parts_[at] != Part::Tail) continue;
    if (op(at).code != OpCode::If && !is_channel_op(op(at).code)) return;
    start_ = at + 1;
  }
}

}  // namespace kiln
