// The order of basic blocks in which divergent lanes wait for each other: the lanes in the block of
// lowest order run first. An order that is topological but for the edges back to loop heads, with
// loops in one piece, makes lanes meet again at the immediate post-dominator or before.
#include <algorithm>
#include <vector>

#include "runtime/ptx/program.h"

namespace kiln::ptx {
namespace {

struct Graph {
  std::vector<int32_t> first;                    // instruction of each block
  std::vector<std::vector<int32_t>> successors;  // blocks
};

void mark_leaders(Entry& entry) {
  auto& code = entry.code;
  code[0].leader = true;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].flow == Flow::Branch) code[static_cast<size_t>(code[i].target)].leader = true;
    if (code[i].flow == Flow::BranchTable)
      for (int32_t target : entry.tables[static_cast<size_t>(code[i].target)])
        code[static_cast<size_t>(target)].leader = true;
    bool ends = code[i].flow == Flow::Branch || code[i].flow == Flow::BranchTable ||
                code[i].flow == Flow::Exit;
    if (ends && i + 1 < code.size()) code[i + 1].leader = true;
  }
}

Graph build(const Entry& entry) {
  const auto& code = entry.code;
  Graph graph;
  std::vector<int32_t> block_of(code.size());
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].leader) graph.first.push_back(static_cast<int32_t>(i));
    block_of[i] = static_cast<int32_t>(graph.first.size()) - 1;
  }
  graph.successors.resize(graph.first.size());
  for (size_t block = 0; block < graph.first.size(); ++block) {
    size_t end =
        block + 1 < graph.first.size() ? static_cast<size_t>(graph.first[block + 1]) : code.size();
    const Instruction& last = code[end - 1];
    auto& successors = graph.successors[block];
    bool falls = last.guard >= 0 || last.flow == Flow::Next || last.flow > Flow::Exit;
    if (falls && end < code.size()) successors.push_back(block_of[end]);
    if (last.flow == Flow::Branch) successors.push_back(block_of[static_cast<size_t>(last.target)]);
    if (last.flow == Flow::BranchTable)
      for (int32_t target : entry.tables[static_cast<size_t>(last.target)])
        successors.push_back(block_of[static_cast<size_t>(target)]);
  }
  return graph;
}

// Strongly connected components in topological order (Tarjan, without recursion); a component of
// several blocks is a loop: its head goes first and the rest is ordered without the edges to it.
class Orderer {
 public:
  explicit Orderer(const Graph& graph)
      : graph_(graph), state_(graph.first.size()), in_(graph.first.size(), 1) {}

  std::vector<int32_t> run() {
    std::vector<int32_t> all(graph_.first.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    // A work list of parts in their order; parts that are loops are replaced by their parts.
    std::vector<std::vector<int32_t>> work = {all};
    std::vector<int32_t> order;
    while (!work.empty()) {
      std::vector<int32_t> part = std::move(work.back());
      work.pop_back();
      if (part.size() == 1) {
        order.push_back(part[0]);
        in_[static_cast<size_t>(part[0])] = 0;
        continue;
      }
      std::vector<std::vector<int32_t>> components = split(part);
      for (auto it = components.rbegin(); it != components.rend(); ++it) {
        if (it->size() == 1) {
          work.push_back(std::move(*it));
          continue;
        }
        std::sort(it->begin(), it->end());
        int32_t head = head_of(*it);
        std::vector<int32_t> rest;
        std::copy_if(it->begin(), it->end(), std::back_inserter(rest),
                     [&](int32_t block) { return block != head; });
        work.push_back(std::move(rest));
        work.push_back({head});
      }
    }
    return order;
  }

 private:
  struct State {
    int32_t index = -1, low = 0;
    int32_t part = -1;
    bool on_stack = false;
  };
  struct Frame {
    int32_t block;
    size_t next;
  };

  // The block of a loop that is entered from outside; the first in the text of several.
  int32_t head_of(const std::vector<int32_t>& loop) {
    ++mark_;
    marks_.resize(graph_.first.size(), 0);
    for (int32_t block : loop) marks_[static_cast<size_t>(block)] = mark_;
    int32_t head = loop[0];
    for (size_t from = 0; from < graph_.successors.size(); ++from) {
      if (marks_[from] == mark_) continue;
      for (int32_t to : graph_.successors[from])
        if (marks_[static_cast<size_t>(to)] == mark_) return to;
    }
    return head;
  }

  std::vector<std::vector<int32_t>> split(const std::vector<int32_t>& part) {
    ++part_;
    for (int32_t block : part) {
      state_[static_cast<size_t>(block)] = State{};
      state_[static_cast<size_t>(block)].part = part_;
    }
    components_.clear();
    index_ = 0;
    for (int32_t block : part)
      if (state_[static_cast<size_t>(block)].index < 0) visit(block);
    std::reverse(components_.begin(), components_.end());
    return std::move(components_);
  }

  void enter(int32_t block) {
    State& state = state_[static_cast<size_t>(block)];
    state.index = state.low = index_++;
    state.on_stack = true;
    stack_.push_back(block);
    frames_.push_back({block, 0});
  }

  void visit(int32_t root) {
    enter(root);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      int32_t block = frame.block;
      State& state = state_[static_cast<size_t>(block)];
      const auto& successors = graph_.successors[static_cast<size_t>(block)];
      if (frame.next < successors.size()) {
        int32_t to = successors[frame.next++];
        State& other = state_[static_cast<size_t>(to)];
        if (other.part != part_ || in_[static_cast<size_t>(to)] == 0) continue;
        if (other.index < 0)
          enter(to);
        else if (other.on_stack)
          state.low = std::min(state.low, other.index);
        continue;
      }
      frames_.pop_back();
      if (!frames_.empty()) {
        State& parent = state_[static_cast<size_t>(frames_.back().block)];
        parent.low = std::min(parent.low, state.low);
      }
      if (state.low != state.index) continue;
      std::vector<int32_t> component;
      int32_t member;
      do {
        member = stack_.back();
        stack_.pop_back();
        state_[static_cast<size_t>(member)].on_stack = false;
        component.push_back(member);
      } while (member != block);
      components_.push_back(std::move(component));
    }
  }

  const Graph& graph_;
  std::vector<State> state_;
  std::vector<uint8_t> in_;  // not ordered yet
  std::vector<int32_t> stack_;
  std::vector<int32_t> marks_;
  std::vector<Frame> frames_;
  std::vector<std::vector<int32_t>> components_;
  int32_t index_ = 0, part_ = 0, mark_ = 0;
};

}  // namespace

void order_blocks(Entry& entry) {
  mark_leaders(entry);
  Graph graph = build(entry);
  std::vector<int32_t> order = Orderer(graph).run();
  for (size_t i = 0; i < order.size(); ++i) {
    auto at = static_cast<size_t>(graph.first[static_cast<size_t>(order[i])]);
    do entry.code[at].order = static_cast<int32_t>(i);
    while (++at < entry.code.size() && !entry.code[at].leader);
  }
}

}  // namespace kiln::ptx
