// Rules of a launch as a whole: its roles, the channels between them, its loops.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ir/channel.h"
#include "ir/layout/text.h"
#include "ir/verify_impl.h"
#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kThreadsPerWarp = 32;
constexpr int64_t kRegisterFile = 65536;  // of a multiprocessor, and all that one block may have
constexpr int64_t kMostRegistersAThread = 256;  // in units of 8; 255 are named

int64_t warpgroups(int64_t warps) {
  return (warps + kWarpsPerGroup - 1) / kWarpsPerGroup;
}

// A number of bytes of the block's shared memory that an op asks for.
struct Span {
  int64_t begin, bytes;
  const char* what;  // "ring", "control", "tile"
  const Op* op;
  size_t role;  // kEveryRole for a channel
};
constexpr size_t kEveryRole = SIZE_MAX;

class Agents {
 public:
  Agents(const Law& law, const Op& launch)
      : law_(law), kernel_(law.kernel), launch_(launch), body_(launch.regions[0]) {}

  void check() {
    find_roles();
    check_loops(body_);
    check_block(body_);
    if (!roles_) return check_without_roles();
    check_launch_warps();
    check_registers();
    for (size_t role = 0; role < roles_->regions.size(); ++role) check_role(role);
    check_channels();
    check_shared();
  }

 private:
  // Roles end the launch, channels stand beside them. Without roles a channel is the block's own.
  void find_roles() {
    const std::vector<OpId>& ops = kernel_.region(body_).ops;
    if (!ops.empty() && kernel_.op(ops.back()).code == OpCode::Roles)
      roles_ = &kernel_.op(ops.back());
    for (OpId id : ops)
      if (kernel_.op(id).code == OpCode::Channel) channels_[kernel_.op(id).result.id] = {};
    walk(kernel_, body_, [&](OpId id) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Roles && &op != roles_)
        law_.fail(op, "expected it to be the last op of a launch's region",
                  "what comes after belongs into a role, or into another launch");
      if (op.code == OpCode::Channel && !roles_) channels_[op.result.id] = {};
      if (op.code == OpCode::Channel && !channels_.contains(op.result.id))
        law_.fail(op, "stands in a region inside the launch's; expected the launch's own",
                  "channels are made before the roles that share them");
    });
  }

  void check_loops(RegionId region, const Op* loop = nullptr) {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::ExitIf && !loop)
        law_.fail(op, "expected it directly in the region of a loop",
                  "store the condition in a scalar variable and exit in the loop's region");
      if (op.code == OpCode::Loop && !has_exit(op.regions[0]))
        law_.fail(op, "has no exit_if directly in its region: it would never end",
                  "exit_if %condition do { } directly in its region");
      for (RegionId inner : op.regions) check_loops(inner, op.code == OpCode::Loop ? &op : nullptr);
    }
  }
  bool has_exit(RegionId region) const {
    const std::vector<OpId>& ops = kernel_.region(region).ops;
    return std::any_of(ops.begin(), ops.end(),
                       [&](OpId id) { return kernel_.op(id).code == OpCode::ExitIf; });
  }

  static bool names_channel(const Op& op) {
    return op.code == OpCode::PushBegin || op.code == OpCode::PushEnd || op.code == OpCode::Pop ||
           op.code == OpCode::Held || op.code == OpCode::Release;
  }

  void check_block(RegionId region) const {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (&op == roles_) continue;
      if (names_channel(op) && roles_)
        law_.fail(op, "stands outside of roles", "a channel is between two");
      if (launch_.integer("warps") > 0) require_even_split(op, launch_.integer("warps"));
      for (RegionId inner : op.regions) check_block(inner);
    }
  }

  void check_without_roles() {
    std::set<uint32_t> pushed, popped;
    walk(kernel_, body_, [&](OpId id) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::PushEnd) pushed.insert(op.operands[0].id);
      if (op.code == OpCode::Pop) popped.insert(op.operands[0].id);
    });
    for (const auto& [id, ends] : channels_) {
      const Op& op = channel(id);
      if (!op.word("message").empty())
        law_.fail(op, "message: the launch has no roles that could send it",
                  "the block keeps what it knows in scalars");
      if (!pushed.contains(id)) law_.fail(op, "nothing pushes it");
      if (!popped.contains(id)) law_.fail(op, "nothing pops it");
    }
  }

  int64_t role_warps(size_t role) const { return roles_->ints("warps")[role]; }
  std::string name_of(size_t role) const { return role_names(*roles_)[role]; }

  int64_t warps_of_roles() const {
    int64_t sum = 0;
    for (int64_t warps : roles_->ints("warps")) sum += warpgroups(warps) * kWarpsPerGroup;
    return sum;
  }

  void check_launch_warps() const {
    const int64_t given = launch_.integer("warps"), sum = warps_of_roles();
    if (sum > kMostWarps)
      law_.fail(*roles_, fmt::format("warps: expected at most {} in whole warpgroups, got {}",
                                     kMostWarps, sum));
    if (given != 0 && given != sum)
      law_.fail(launch_, fmt::format("warps: expected {}, those of its roles in whole warpgroups, "
                                     "got {}",
                                     sum, given));
  }

  // A role that asks for registers waits until others gave enough back: for ever, if they have not.
  void check_registers() const {
    const int64_t threads = warps_of_roles() * kThreadsPerWarp;
    const int64_t each = std::min(kMostRegistersAThread, kRegisterFile / threads / 8 * 8);
    int64_t sum = 0;
    std::string terms;
    for (size_t role = 0; role < roles_->regions.size(); ++role) {
      const int64_t of_role = warpgroups(role_warps(role)) * kWarpsPerGroup * kThreadsPerWarp;
      const int64_t registers = roles_->ints("registers")[role];
      sum += of_role * registers;
      terms += fmt::format("{}{}·{}", terms.empty() ? "" : " + ", of_role, registers);
    }
    if (sum > threads * each)
      law_.fail(*roles_,
                fmt::format("registers: the roles need {} = {}, a block of {} threads gets {} = "
                            "{}·{}",
                            sum, terms, threads, threads * each, threads, each),
                "the roles would wait for registers for ever");
  }

  void check_role(size_t role) {
    std::set<uint32_t> own;  // tiles
    walk(kernel_, roles_->regions[role], [&](OpId id) {
      const Op& op = kernel_.op(id);
      if (op.result && kernel_.type(op.result).kind == Kind::Tile) own.insert(op.result.id);
      for (Value operand : op.operands) require_own(op, operand, own);
      if (role_warps(role) == 1 && needs_warps(op))
        law_.fail(op, fmt::format("works on a tile, but role '{}' is one thread", name_of(role)),
                  fmt::format("give the role {} warps or a multiple", kWarpsPerGroup));
      require_warps_of_layout(op, role);
      if (names_channel(op)) note_end(op, role);
      if (op.code == OpCode::Pop && op.integer("pending") != 0)
        law_.fail(op, "pending: counts groups of copies, which a role has none of");
      if (op.code == OpCode::CommitCopies)
        law_.fail(op, "stands in a role, whose copies are counted by their slots");
      require_even_split(op, role_warps(role));
      if (op.code == OpCode::Alloc) note_tile(op, role);
    });
  }

  void require_own(const Op& op, Value operand, const std::set<uint32_t>& own) const {
    if (!operand || !kernel_.type(operand).is_storage()) return;
    const Value base = base_of(kernel_, operand);
    if (kernel_.type(base).kind == Kind::Tile && !own.contains(base.id))
      law_.fail(op, fmt::format("uses {} from outside of the role", str(kernel_.type(base))),
                "roles share scalars, tensors and channels; send tiles through a channel");
  }

  // Is it work that threads share?
  bool needs_warps(const Op& op) const {
    switch (op.code) {
      case OpCode::Parallel:
      case OpCode::Gemm:
      case OpCode::GemmAsync:
      case OpCode::Reduce:
      case OpCode::Convert:
      case OpCode::Barrier:
      case OpCode::SoftmaxStep:
      case OpCode::ScaleRows:
      case OpCode::SoftmaxFinish: return true;
      case OpCode::Copy:
      case OpCode::Fill: return count(kernel_.type(op.operands[1]).shape) > 1;
      case OpCode::Alloc:
        return kernel_.type(op.result).space == Space::Fragment &&
               kernel_.type(op.result).rank() > 0;
      default: return false;
    }
  }

  void require_warps_of_layout(const Op& op, size_t role) const {
    const bool by_thread =
        op.code == OpCode::Parallel ||
        (op.code == OpCode::Alloc && kernel_.type(op.result).space == Space::Fragment);
    if (!by_thread || op.word("layout").empty()) return;
    const int64_t warps = parse_layout(op.word("layout")).warps();
    if (warps != role_warps(role))
      law_.fail(op,
                fmt::format("layout: expected one of the {} warps of role '{}', got one of {}",
                            role_warps(role), name_of(role), warps),
                "a layout repeated for the role's warps");
  }

  void require_even_split(const Op& op, int64_t warps) const {
    if (op.code != OpCode::StoreAsync || op.word("split") != "warps") return;
    const Type& source = kernel_.type(op.operands[0]);
    const int64_t rows = source.shape[source.shape.size() - 2];
    if (rows % warps != 0)
      law_.fail(op,
                fmt::format("split: expected rows that {} warps share evenly, got {} of {}", warps,
                            rows, str(source)),
                "rows that are a multiple of the agent's warps");
  }

  // ---- Channels

  struct End {
    size_t role;
    const Op* first;  // op that shows it
  };
  struct Ends {
    std::optional<End> push, pop;
  };

  const Op& channel(uint32_t value) const { return kernel_.op(kernel_.def(Value{value})); }

  void note_end(const Op& op, size_t role) {
    Ends& ends = channels_.at(op.operands[0].id);
    const bool pushes = op.code == OpCode::PushBegin || op.code == OpCode::PushEnd;
    std::optional<End>&end = pushes ? ends.push : ends.pop, &other = pushes ? ends.pop : ends.push;
    const char* verb = pushes ? "pushes" : "pops";
    if (end && end->role != role)
      law_.fail(op,
                fmt::format("role '{}' {} the channel too: role '{}' does {}", name_of(role), verb,
                            name_of(end->role), on_line(*end->first)),
                "a channel has one role that pushes and one that pops");
    if (other && other->role == role)
      law_.fail(op,
                fmt::format("role '{}' both pushes and pops the channel, the other {}",
                            name_of(role), on_line(*other->first)),
                "a channel is from one role to another");
    if (!end) end = End{role, &op};
  }

  void check_channels() {
    for (const auto& [id, ends] : channels_) {
      if (!ends.push) law_.fail(channel(id), "no role pushes it");
      if (!ends.pop) law_.fail(channel(id), "no role pops it");
    }
  }

  // ---- Places in shared memory, where the text has them

  int64_t tile_bytes(const Type& type, const std::string& layout) const {
    const int64_t elements =
        layout.empty() ? count(type.shape) : parse_layout(layout).extent(Resource::Offset);
    return elements * static_cast<int64_t>(size_of(type.dtype));
  }

  void note_tile(const Op& op, size_t role) {
    const Type& type = kernel_.type(op.result);
    if (type.space == Space::Shared && op.integer("offset") >= 0)
      spans_.push_back(
          {op.integer("offset"), tile_bytes(type, op.word("layout")), "tile", &op, role});
  }

  void note_channel(const Op& op) {
    const Type& type = kernel_.type(op.result);
    if (op.integer("offset") >= 0 && type.rank() > 0)
      spans_.push_back({op.integer("offset"),
                        op.integer("slots") * tile_bytes(type, op.word("layout")), "ring", &op,
                        kEveryRole});
    if (op.integer("control") >= 0)
      spans_.push_back({op.integer("control"), control_bytes(op), "control", &op, kEveryRole});
  }

  // Tiles of one role may share a place: they need not be alive together.
  void check_shared() {
    for (const auto& [id, ends] : channels_) note_channel(channel(id));
    const int64_t shared = launch_.integer("shared");
    for (const Span& span : spans_)
      if (shared > 0 && span.begin + span.bytes > shared)
        law_.fail(*span.op,
                  fmt::format("{}: {} bytes from {} on are more than the {} of the "
                              "launch's shared memory",
                              span.what, span.bytes, span.begin, shared),
                  "a lower offset, or a larger `shared` of the launch");
    std::sort(spans_.begin(), spans_.end(),
              [](const Span& a, const Span& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < spans_.size(); ++i)
      for (size_t j = i + 1; j < spans_.size(); ++j) {
        const Span &a = spans_[i], &b = spans_[j];
        if (b.begin >= a.begin + a.bytes) break;
        if (a.role == b.role && a.role != kEveryRole) continue;
        law_.fail(*b.op,
                  fmt::format("{}: begins at {} in shared memory, inside the {} bytes from "
                              "{} on of the {} {}",
                              b.what, b.begin, a.bytes, a.begin, a.what, on_line(*a.op)),
                  "offsets at which nothing that is alive at one time overlaps");
      }
  }

  const Law& law_;
  const Kernel& kernel_;
  const Op& launch_;
  const RegionId body_;
  const Op* roles_ = nullptr;
  std::map<uint32_t, Ends> channels_;  // by value
  std::vector<Span> spans_;
};

}  // namespace

void check_agents(const Law& law, const Op& launch) {
  Agents(law, launch).check();
}

}  // namespace kiln
