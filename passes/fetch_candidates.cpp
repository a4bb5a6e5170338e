#include "passes/fetch_candidates_impl.h"

#include <fmt/format.h>

#include "ir/walk.h"
#include "passes/loops.h"

namespace kiln {
namespace {

bool from_global_to_shared(const Kernel& kernel, const Op& op) {
  return op.code == OpCode::Copy && kernel.type(op.operands[0]).space == Space::Global &&
         kernel.type(op.operands[1]).space == Space::Shared;
}

}  // namespace

FetchCandidates::FetchCandidates(const Kernel& kernel, OpId launch, OpId loop,
                                 std::map<OpId, std::string> left_out)
    : kernel_(kernel),
      launch_(kernel.op(launch)),
      loop_(kernel.op(loop)),
      in_loop_(kernel, loop_),
      in_launch_(kernel, launch_),
      room_(kernel, launch_, in_loop_),
      slice_(kernel, loop_, in_loop_),
      left_out_(std::move(left_out)) {
  walk(kernel, launch_.regions[0], [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Reshape) reshaped_.insert(base_of(kernel, op.operands[0]));
  });
  survey(loop_.regions[0], "");
}

// `why_not`: of all copies in the region; empty if they may.
void FetchCandidates::survey(RegionId region, const std::string& why_not) {
  for (OpId id : kernel_.region(region).ops) {
    const Op& op = kernel_.op(id);
    if (from_global_to_shared(kernel_, op)) consider(id, region, why_not);
    if (op.code == OpCode::For && op.word("kind") == "pipelined") continue;  // has its own
    for (size_t i = 0; i < op.regions.size(); ++i) {
      std::string why = why_not;
      if (why.empty() && is_loop(op)) why = "it stands in a loop inside";
      if (why.empty() && i > 0) why = "it stands in the other side of a branch";
      if (op.code == OpCode::If) ifs_.push_back(id);
      survey(op.regions[i], why);
      if (op.code == OpCode::If) ifs_.pop_back();
    }
  }
}

void FetchCandidates::consider(OpId id, RegionId region, std::string why) {
  const Op& copy = kernel_.op(id);
  const Value tile = copy.operands[1];
  if (auto out = left_out_.find(id); why.empty() && out != left_out_.end()) why = out->second;
  if (why.empty()) why = why_not_tile(id, region);
  if (why.empty()) why = why_not_source(copy);
  std::optional<Layout> staging;
  if (why.empty() && copy.word("instruction") != "cp_async") {
    staging = staging_layout(kernel_, copy, launch_.integer("warps"));
    why = room_.take(staging_registers(kernel_, copy, *staging));
  }
  if (!why.empty()) {
    declined_[id] = why;
    return;
  }
  fetches_.push_back({id, tile, region, std::move(staging)});
  guards_.insert(ifs_.begin(), ifs_.end());
}

// The slot of a round must stand for the tile: nothing of an earlier round, or of before the
// loop, is in it, and nothing is read from it after.
std::string FetchCandidates::why_not_tile(OpId id, RegionId region) const {
  const Op& copy = kernel_.op(id);
  const Value tile = copy.operands[1];
  if (kernel_.type(tile).kind != Kind::Tile || kernel_.type(tile).rank() == 0 ||
      !kernel_.def_as(tile, OpCode::Alloc))
    return "it fills a part of a tile";
  if (reshaped_.contains(tile)) return "its tile is looked at in another form";
  if (in_launch_.uses(tile) != in_loop_.uses(tile)) return "its tile is used outside of the loop";
  int here = 0;
  bool filled = false;
  for (OpId other : kernel_.region(region).ops) {
    const Op& op = kernel_.op(other);
    const int uses = Effects(kernel_, op).uses(tile);
    here += uses;
    if (uses > 0 && !filled && other != id) return "its tile is used before it in the round";
    filled |= other == id;
    if (other == id) continue;
    const auto refills = [&](const Op& each) {
      return from_global_to_shared(kernel_, each) && base_of(kernel_, each.operands[1]) == tile;
    };
    if (any_op(kernel_, op, refills)) return "a second copy fills its tile in the round";
  }
  if (here != in_loop_.uses(tile)) return "its tile is used in other rounds than it is filled";
  return "";
}

std::string FetchCandidates::why_not_source(const Op& copy) {
  const Value source = base_of(kernel_, copy.operands[0]);
  if (const Op* writer = in_loop_.writer(source))
    return fmt::format("the loop writes its source, by {}", info(writer->code).name);
  for (OpId guard : ifs_)
    if (std::string why = slice_.add(kernel_.op(guard).operands[0]); !why.empty())
      return "its guard depends on " + why;
  std::string why = slice_.add(copy.operands[0]);
  return why.empty() ? "" : "its address depends on " + why;
}

}  // namespace kiln
