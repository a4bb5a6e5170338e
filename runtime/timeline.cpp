#include "runtime/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/walk.h"
#include "passes/work_estimate.h"

namespace kiln {
namespace {

int64_t bytes_of(const Type& type) {
  return count(type.shape) * static_cast<int64_t>(size_of(type.dtype));
}

bool is_fetch(const Kernel& kernel, const Op& op) {
  if (op.code == OpCode::CopyAsync) return true;
  return op.code == OpCode::Copy && kernel.type(op.operands[0]).space == Space::Global &&
         kernel.type(op.operands[1]).space == Space::Shared;
}

// The names that people know tiles by: of the tensors that they are copied from.
class Names {
 public:
  Names(const Kernel& kernel, OpId launch) : kernel_(kernel) {
    walk(kernel, kernel.op(launch).regions[0], [&](OpId id) {
      const Op& op = kernel.op(id);
      if (is_fetch(kernel, op)) names_.try_emplace(home(op.operands[1]).id, tensor(op.operands[0]));
    });
  }

  // The channel of a slot, or the tile of a view.
  Value home(Value storage) const {
    storage = base_of(kernel_, storage);
    const Op* channel = channel_of(kernel_, storage);
    return channel ? channel->result : storage;
  }
  std::string of(Value storage) const {
    auto found = names_.find(home(storage).id);
    if (found != names_.end()) return found->second;
    if (kernel_.type(storage).space == Space::Global) return tensor(storage);
    const Type& type = kernel_.type(storage);
    return fmt::format("{}{}", name(type.dtype), str(type.shape));
  }

 private:
  std::string tensor(Value source) const {
    const Op* op = kernel_.def_as(base_of(kernel_, source), OpCode::Tensor);
    return op ? op->word("name") : "?";
  }

  const Kernel& kernel_;
  std::map<uint32_t, std::string> names_;  // by channel or tile
};

// What is copied into a tile.
struct Fetched {
  std::string item;
  Value tile;
  int64_t bytes = 0;
};

// How often one round, or what comes before the loop, does something to each channel or tile.
using Counts = std::map<uint32_t, int64_t>;

class Writer {
 public:
  Writer(const Kernel& kernel, OpId launch, OpId loop)
      : kernel_(kernel), names_(kernel, launch), loop_(loop) {
    count_region(kernel.op(loop).regions[0], 1, pushed_, popped_);
    find_region(kernel.op(launch).regions[0]);
  }

  Timeline write() {
    Timeline all;
    std::set<uint32_t> known;
    walk(kernel_, kernel_.op(loop_).regions[0], [&](OpId id) {
      const Op& op = kernel_.op(id);
      if (op.code != OpCode::Pop || !known.insert(op.operands[0].id).second) return;
      const Op& channel = *kernel_.def_as(op.operands[0], OpCode::Channel);
      const Type& type = kernel_.type(channel.result);
      all.rings.push_back(fmt::format("{}: {} slots of {}{}, {} bytes each", names_.of(op.result),
                                      channel.integer("slots"), name(type.dtype), str(type.shape),
                                      bytes_of(type)));
    });
    std::vector<std::string> first;
    for (OpId id : before_) first_fetches(kernel_.op(id), first);
    if (!first.empty()) all.before.push_back({fmt::format("fetch {}", fmt::join(first, ", ")), 0});
    for (const auto& [channel, pushes] : pushed_before_)
      begun_ += pushes * slot_bytes(channel) - popped_before_[channel] * slot_bytes(channel);
    if (!first.empty()) all.before.back().bytes = begun_;
    most_ = begun_;
    region(kernel_.op(loop_).regions[0]);
    flush();
    all.round = std::move(rows_);
    all.most_bytes = most_;
    return all;
  }

 private:
  int64_t slot_bytes(uint32_t channel) const { return bytes_of(kernel_.type(Value{channel})); }

  // ---- what is done how often ----

  void count_region(RegionId region, int64_t times, Counts& pushed, Counts& popped) {
    for (OpId id : kernel_.region(region).ops) count_op(kernel_.op(id), times, pushed, popped);
  }
  void count_op(const Op& op, int64_t times, Counts& pushed, Counts& popped) {
    if (op.code == OpCode::PushBegin) pushed[op.operands[0].id] += times;
    if (op.code == OpCode::Pop) popped[op.operands[0].id] += times;
    if (op.code == OpCode::For) times *= std::max<int64_t>(1, constant_rounds(kernel_, op));
    for (RegionId inner : op.regions) count_region(inner, times, pushed, popped);
  }
  // What comes before the loop in its region.
  bool find_region(RegionId region) {
    const std::vector<OpId>& ops = kernel_.region(region).ops;
    const auto at = std::find(ops.begin(), ops.end(), loop_);
    if (at == ops.end()) {
      for (OpId id : ops)
        for (RegionId inner : kernel_.op(id).regions)
          if (find_region(inner)) return true;
      return false;
    }
    before_.assign(ops.begin(), at);
    for (OpId id : before_) count_op(kernel_.op(id), 1, pushed_before_, popped_before_);
    return true;
  }
  void first_fetches(const Op& op, std::vector<std::string>& first) {
    if (op.code == OpCode::PushEnd && pushed_.contains(op.operands[0].id))
      for (int64_t n = 0; n < pushed_before_[op.operands[0].id]; ++n) {
        const std::string item = fmt::format("{}({})", names_.of(op.operands[1]), n);
        if (std::find(first.begin(), first.end(), item) == first.end()) first.push_back(item);
      }
    for (RegionId inner : op.regions)
      for (OpId id : kernel_.region(inner).ops) first_fetches(kernel_.op(id), first);
  }

  // ---- the rows ----

  void region(RegionId region) {
    for (OpId id : kernel_.region(region).ops) one(kernel_.op(id));
  }
  void one(const Op& op) {
    wait_for_read(op);
    switch (op.code) {
      case OpCode::Pop: {
        const uint32_t channel = op.operands[0].id;
        begun_ -= slot_bytes(channel);
        add("wait for", item(op.result, popped_before_, popped_, taken_));
        slots_[op.result.id] = last_item_;
        return;
      }
      case OpCode::PushEnd: {
        const uint32_t channel = op.operands[0].id;
        begun_ += slot_bytes(channel);
        add("fetch", item(op.operands[1], pushed_before_, pushed_, given_));
        return;
      }
      case OpCode::Release: add("free", called(op.operands[1])); return;
      case OpCode::Copy: return copy(op);
      case OpCode::WaitCopies: return wait();
      case OpCode::Gemm:
        flush();
        add(op.word("instruction") == "fma" ? "gemm by fma" : "gemm",
            fmt::format("{}, {} -> {}{}", called(op.operands[0]), called(op.operands[1]),
                        name(kernel_.type(op.operands[2]).dtype),
                        str(kernel_.type(op.operands[2]).shape)));
        return flush();
      case OpCode::Reduce:
        work();
        ++reductions_;
        return;
      case OpCode::Parallel:
        work();
        ++loops_;
        exponentials_ += estimate_work(kernel_, op).exponentials;
        return;
      default: break;
    }
    for (RegionId inner : op.regions) region(inner);
  }
  void copy(const Op& op) {
    if (!is_fetch(kernel_, op))
      return add("copy", called(op.operands[0]) + " -> " + called(op.operands[1]));
    const std::string item = names_.of(op.operands[1]) + "(i)";
    slots_[base_of(kernel_, op.operands[1]).id] = item;
    if (op.word("instruction") != "cp_async") return add("copy", item);
    begun_ += bytes_of(kernel_.type(op.operands[1]));
    under_way_.push_back(
        {item, names_.home(op.operands[1]), bytes_of(kernel_.type(op.operands[1]))});
    add("fetch", item);
  }
  // Beside channels there are no waits in the text yet: they come to stand where a tile is read.
  void wait_for_read(const Op& op) {
    if (popped_.empty() || under_way_.empty() || op.code == OpCode::If) return;
    for (const Access& access : accesses_deep(kernel_, op)) {
      const auto is_read = [&](const Fetched& fetched) { return fetched.tile == access.base; };
      if (std::any_of(under_way_.begin(), under_way_.end(), is_read)) return wait();
    }
  }
  void wait() {
    if (under_way_.empty()) return;
    for (const Fetched& fetched : under_way_) begun_ -= fetched.bytes;
    for (const Fetched& fetched : under_way_) add("wait for", fetched.item);
    under_way_.clear();
  }

  // "k(i+1)": which of those that go through the channel it is.
  std::string item(Value slot, Counts& before, Counts& a_round, Counts& done) {
    const uint32_t channel = names_.home(slot).id;
    const int64_t rounds = a_round[channel], at = before[channel] + done[channel]++;
    std::string index = rounds > 1 ? fmt::format("{}i", rounds) : "i";
    if (at > 0) index += fmt::format("+{}", at);
    last_item_ = fmt::format("{}({})", names_.of(slot), index);
    return last_item_;
  }
  std::string called(Value storage) const {
    auto found = slots_.find(base_of(kernel_, storage).id);
    return found != slots_.end() ? found->second : names_.of(storage);
  }

  void work() {
    if (verb_ != "work") flush();
    verb_ = "work";
    bytes_ = begun_;
  }
  // Neighbours of a kind share a row.
  void add(const std::string& verb, std::string what) {
    if (verb != verb_) flush();
    verb_ = verb;
    items_.push_back(std::move(what));
    most_ = std::max(most_, begun_);
    bytes_ = begun_;
  }
  void flush() {
    if (verb_.empty()) return;
    std::string what = fmt::format("{} {}", verb_, fmt::join(items_, ", "));
    if (verb_ == "work") what = work_text();
    rows_.push_back({what, bytes_});
    verb_.clear();
    items_.clear();
    loops_ = reductions_ = 0;
    exponentials_ = 0;
  }
  std::string work_text() const {
    std::vector<std::string> parts;
    const auto part = [&](int64_t n, const char* what) {
      if (n > 0) parts.push_back(fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"));
    };
    part(loops_, "loop");
    part(reductions_, "reduction");
    if (exponentials_ > 0) parts.push_back(fmt::format("{:.0f} exponentials", exponentials_));
    return fmt::format("elements: {}", fmt::join(parts, ", "));
  }

  const Kernel& kernel_;
  const Names names_;
  const OpId loop_;
  std::vector<OpId> before_;
  Counts pushed_, popped_, pushed_before_, popped_before_;  // by channel
  Counts given_, taken_;                                    // so far in the round
  std::map<uint32_t, std::string> slots_;                   // what a slot or tile holds
  std::string last_item_;
  std::vector<Fetched> under_way_;  // that no channel counts
  int64_t begun_ = 0, most_ = 0;    // bytes
  // The row that is being written.
  std::string verb_;
  std::vector<std::string> items_;
  int64_t bytes_ = 0, loops_ = 0, reductions_ = 0;
  double exponentials_ = 0;
  std::vector<TimelineRow> rows_;
};

}  // namespace

Timeline timeline(const Kernel& kernel, OpId launch, OpId loop) {
  return Writer(kernel, launch, loop).write();
}

std::vector<OpId> pipelined_loops(const Kernel& kernel, OpId launch) {
  std::vector<OpId> found;
  walk(kernel, kernel.op(launch).regions[0], [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::For && op.word("kind") == "pipelined") found.push_back(id);
  });
  return found;
}

}  // namespace kiln
